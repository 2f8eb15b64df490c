"""This project's pretraining step as a program that a benchmark times.

The update is the one of `tools.run_pretraining`; see `peer_protocol`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Callable

from official_albert import distribution, modeling, training
from tasks import pretraining
from tools.benchmarks.peers import protocol as peer_protocol

if TYPE_CHECKING:
  import tensorflow as tf

# Variants, and the optimizer of each. Peers have AdamW only.
VARIANTS = {"": "adamw", "lamb": "lamb"}


def build(workload: peer_protocol.Workload) -> peer_protocol.Program:
  """The model, its optimizer, and the traced step.

  Raises:
    ValueError: no such variant.
  """
  if workload.variant not in VARIANTS:
    raise ValueError(f"unknown variant {workload.variant!r}; there is lamb.")
  optimizer_name = VARIANTS[workload.variant]
  import tensorflow as tf

  tf.config.threading.set_intra_op_parallelism_threads(workload.threads)
  distribution.start_compiler()
  distribution.set_precision(workload.precision)
  tf.keras.utils.set_random_seed(workload.seed)
  model = pretraining.AlbertForPretraining(
    modeling.AlbertConfig(
      vocab_size=workload.vocab_size,
      embedding_size=workload.embedding_size,
      hidden_size=workload.hidden_size,
      num_hidden_layers=workload.num_hidden_layers,
      num_attention_heads=workload.num_attention_heads,
      intermediate_size=workload.intermediate_size,
      max_position_embeddings=workload.max_position_embeddings,
      sharing=workload.sharing,
      hidden_dropout_prob=workload.hidden_dropout_prob,
      attention_probs_dropout_prob=workload.attention_probs_dropout_prob,
    )
  )
  config = training.TrainConfig(
    model_dir="",
    num_train_steps=10**6,
    num_warmup_steps=0,
    learning_rate=workload.learning_rate,
    train_batch_size=workload.batch_size,
    optimizer=optimizer_name,
    # As the peers' AdamW has it.
    bias_correction=True,
    weight_decay=workload.weight_decay,
    clip_norm=workload.clip_norm,
  )
  step = make_step(model, config)
  batch = random_batch(
    workload.batch_size,
    workload.max_seq_length,
    workload.predictions,
    workload.vocab_size,
    workload.seed,
  )
  begun = time.monotonic()
  step.get_concrete_function(batch)
  trace_seconds = time.monotonic() - begun

  def loss() -> float:
    results = step(batch)
    losses = [results["masked_lm_loss"], results["sentence_order_loss"]]
    return sum(float(x.total) / float(x.weight) for x in losses)

  dtype = workload.product_dtype
  left = tf.cast(
    tf.random.normal([workload.tokens, workload.hidden_size]), dtype
  )
  right = tf.cast(
    tf.random.normal([workload.hidden_size, workload.intermediate_size]), dtype
  )
  return peer_protocol.Program(
    loss,
    {"tensorflow": tf.__version__},
    f"run_pretraining's step, {optimizer_name}",
    # Eager products are finished when they return.
    lambda: tf.matmul(left, right),
    trace_seconds,
  )


class MeasuredTask:
  """The losses of pretraining for `training.make_train_step`, no metrics."""

  def loss_weights(self, batch):
    return pretraining.loss_weights(batch)

  def forward(self, model, batch, training, dropout_seed):
    outputs = model(
      batch, training=training, dropout_seed=dropout_seed, logits_only=True
    )
    return pretraining.loss_totals(outputs, batch, compiled=training), {}


def make_step(model: tf.keras.Model, config: training.TrainConfig) -> Callable:
  """The update of `tools.run_pretraining`, not yet traced.

  Returns:
    A tf.function from a batch to the step's results.
  """
  import tensorflow as tf

  optimizer = config.make_optimizer()
  optimizer._create_all_weights(model.trainable_variables)
  return tf.function(
    training.make_train_step(
      MeasuredTask(),
      model,
      optimizer,
      config,
      training.make_loss_scale(model),
    )
  )


def random_batch(
  batch_size: int,
  max_seq_length: int,
  predictions: int,
  vocab_size: int,
  seed: int,
) -> dict[str, tf.Tensor]:
  """A batch without padding whose predictions are all used.

  Returns:
    The features of `tfrecords.schemas.PRETRAINING`, [B, S] or [B, P].
  """
  import tensorflow as tf

  shape = [batch_size, max_seq_length]

  def ids(shape, low, high):
    return tf.random.uniform(shape, low, high, tf.int32, seed=seed)

  return {
    "input_ids": ids(shape, 5, vocab_size),
    "input_mask": tf.ones(shape, tf.int32),
    "segment_ids": ids(shape, 0, 2),
    "masked_lm_positions": ids([batch_size, predictions], 0, max_seq_length),
    "masked_lm_ids": ids([batch_size, predictions], 5, vocab_size),
    "masked_lm_weights": tf.ones([batch_size, predictions]),
    "next_sentence_labels": ids([batch_size, 1], 0, 2),
  }


if __name__ == "__main__":
  peer_protocol.serve(build)
