"""The TF Model Garden's ALBERT as a program that a benchmark measures.

Runs in a virtual environment of its own; see `protocol`.
"""

from __future__ import annotations

import functools
import time
from importlib import metadata

from tools.benchmarks.peers import protocol

# Whether XLA compiles the whole step.
VARIANTS = {"": False, "jit": True}


def build(workload: protocol.Workload) -> protocol.Program:
  """Builds `AlbertEncoder` in a `BertPretrainer`, and `AdamWeightDecay`."""
  jit = protocol.choose_variant(workload, VARIANTS)
  import tensorflow as tf

  tf.config.threading.set_intra_op_parallelism_threads(workload.threads)
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
  shape = [workload.batch_size, workload.max_seq_length]
  uniform = functools.partial(tf.random.uniform, seed=workload.seed)
  ids = uniform(shape, 5, workload.vocab_size, tf.int32)
  positions = tf.math.top_k(uniform(shape), workload.predictions).indices
  batch = {
    "input_word_ids": ids,
    "input_mask": tf.ones(shape, tf.int32),
    "input_type_ids": uniform(shape, 0, 2, tf.int32),
    "masked_lm_positions": positions,
  }
  labels = tf.gather(ids, positions, batch_dims=1)
  order = uniform(shape[:1], 0, 2, tf.int32)

  def mean_loss(logits, targets):
    return tf.reduce_mean(
      tf.nn.sparse_softmax_cross_entropy_with_logits(
        targets, tf.cast(logits, tf.float32)
      )
    )

  @tf.function(jit_compile=jit)
  def train_step(batch, labels, order):
    with tf.GradientTape() as tape:
      outputs = model(batch, training=True)
      loss = mean_loss(outputs["masked_lm"], labels)
      loss += mean_loss(outputs["classification"], order)
    variables = model.trainable_variables
    gradients = tape.gradient(loss, variables)
    optimizer.apply_gradients(zip(gradients, variables))
    return loss

  start = time.monotonic()
  train_step.get_concrete_function(batch, labels, order)
  trace_seconds = time.monotonic() - start
  return protocol.Program(
    lambda: float(train_step(batch, labels, order)),
    {
      "tensorflow": tf.__version__,
      "tf-models-official": metadata.version("tf-models-official"),
    },
    f"tf.function, jit_compile={jit}, AdamWeightDecay",
    trace_seconds=trace_seconds,
  )


if __name__ == "__main__":
  protocol.serve(build)
