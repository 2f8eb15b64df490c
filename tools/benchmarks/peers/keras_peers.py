"""ALBERT in KerasHub and in the TF Model Garden, as programs to measure.

KerasHub has masked LM only: it lacks the sentence-order head, so it has
slightly less to compute. Each library has a separate virtual environment; see
`protocol`.
"""

from __future__ import annotations

import os
import time
from importlib import metadata

from official_albert.tools.benchmarks.peers import protocol


def build(workload: protocol.Workload) -> protocol.Program:
  """Builds the training step of one of the libraries."""
  library = workload.variant.removesuffix("_jit")
  jit = workload.variant.endswith("_jit")
  builders = {
    "keras_hub": _build_keras_hub,
    "model_garden": _build_model_garden,
  }
  os.environ["KERAS_BACKEND"] = "tensorflow"
  import tensorflow as tf

  tf.config.threading.set_intra_op_parallelism_threads(workload.threads)
  batch = {
    name: tf.constant(value)
    for name, value in protocol.training_batch(workload).items()
  }
  return builders[library](workload, batch, jit)


def _build_keras_hub(workload, batch, jit: bool) -> protocol.Program:
  """Builds `AlbertMaskedLM`, `train_on_batch` and Keras' AdamW."""
  import keras
  import keras_hub
  import tensorflow as tf

  keras.utils.set_random_seed(workload.seed)
  keras.mixed_precision.set_global_policy(workload.precision)
  backbone = keras_hub.models.AlbertBackbone(
    vocabulary_size=workload.vocab_size,
    num_layers=workload.num_hidden_layers,
    num_heads=workload.num_attention_heads,
    embedding_dim=workload.embedding_size,
    hidden_dim=workload.hidden_size,
    intermediate_dim=workload.intermediate_size,
    max_sequence_length=workload.max_position_embeddings,
  )
  model = keras_hub.models.AlbertMaskedLM(backbone)
  model.compile(
    optimizer=keras.optimizers.AdamW(
      workload.learning_rate,
      weight_decay=workload.weight_decay,
      global_clipnorm=workload.clip_norm,
    ),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    jit_compile=jit,
  )
  inputs = {
    "mask_positions": batch["masked_lm_positions"],
    "padding_mask": batch["input_mask"],
    "segment_ids": batch["segment_ids"],
    "token_ids": batch["input_ids"],
  }

  def step() -> float:
    # Otherwise Keras returns the mean over all batches so far.
    model.reset_metrics()
    labels = batch["masked_lm_ids"]
    return model.train_on_batch(inputs, labels, return_dict=True)["loss"]

  versions = {
    "tensorflow": tf.__version__,
    "keras": keras.__version__,
    "keras-hub": keras_hub.__version__,
  }
  about = f"masked LM only, train_on_batch, jit_compile={jit}, Keras AdamW"
  return protocol.Program(step, versions, about)


def _build_model_garden(workload, batch, jit: bool) -> protocol.Program:
  """Builds `AlbertEncoder` in a `BertPretrainer`, and `AdamWeightDecay`."""
  import tensorflow as tf
  from official.modeling import activations
  from official.modeling.optimization import legacy_adamw
  from official.nlp.modeling import models, networks

  tf.keras.utils.set_random_seed(workload.seed)
  tf.keras.mixed_precision.set_global_policy(workload.precision)
  encoder = networks.AlbertEncoder(
    vocab_size=workload.vocab_size,
    embedding_width=workload.embedding_size,
    hidden_size=workload.hidden_size,
    num_layers=workload.num_hidden_layers,
    num_attention_heads=workload.num_attention_heads,
    max_sequence_length=workload.max_position_embeddings,
    type_vocab_size=2,
    intermediate_size=workload.intermediate_size,
    dropout_rate=0.0,
    attention_dropout_rate=0.0,
  )
  model = models.BertPretrainer(
    encoder,
    num_classes=2,
    num_token_predictions=workload.predictions,
    activation=activations.gelu,
    initializer=tf.keras.initializers.TruncatedNormal(stddev=0.02),
  )
  optimizer = legacy_adamw.AdamWeightDecay(
    learning_rate=workload.learning_rate,
    weight_decay_rate=workload.weight_decay,
    gradient_clip_norm=workload.clip_norm,
    exclude_from_weight_decay=["LayerNorm", "layer_norm", "bias"],
  )
  inputs = {
    "input_word_ids": batch["input_ids"],
    "input_mask": batch["input_mask"],
    "input_type_ids": batch["segment_ids"],
    "masked_lm_positions": batch["masked_lm_positions"],
  }
  labels, order = batch["masked_lm_ids"], batch["next_sentence_labels"][:, 0]

  def mean_loss(logits, targets):
    return tf.reduce_mean(
      tf.nn.sparse_softmax_cross_entropy_with_logits(
        targets, tf.cast(logits, tf.float32)
      )
    )

  @tf.function(jit_compile=jit)
  def train_step(inputs, labels, order):
    with tf.GradientTape() as tape:
      outputs = model(inputs, training=True)
      loss = mean_loss(outputs["masked_lm"], labels)
      loss += mean_loss(outputs["classification"], order)
    variables = model.trainable_variables
    gradients = tape.gradient(loss, variables)
    optimizer.apply_gradients(zip(gradients, variables))
    return loss

  start = time.monotonic()
  train_step.get_concrete_function(inputs, labels, order)
  return protocol.Program(
    lambda: float(train_step(inputs, labels, order)),
    {
      "tensorflow": tf.__version__,
      "tf-models-official": metadata.version("tf-models-official"),
    },
    f"tf.function, jit_compile={jit}, AdamWeightDecay",
    trace_seconds=time.monotonic() - start,
  )


if __name__ == "__main__":
  protocol.serve(build)
