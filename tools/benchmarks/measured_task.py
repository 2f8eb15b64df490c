"""A task with the losses of pretraining and random full batches.

For programs that measure the training step: no data, no metrics.
"""

from __future__ import annotations

from typing import Callable

import tensorflow as tf

from official_albert import training as training_lib
from tasks import pretraining


class MeasuredTask:
  """What `train_step.make_train_step` needs of a task, and no more."""

  def loss_weights(self, batch):
    return pretraining.loss_weights(batch)

  def forward(self, model, batch, training, dropout_seed):
    outputs = model(
      batch, training=training, dropout_seed=dropout_seed, logits_only=True
    )
    return pretraining.loss_totals(outputs, batch, compiled=training), {}


def make_step(
  model: tf.keras.Model, config: training_lib.TrainConfig
) -> Callable:
  """The update of `tools.run_pretraining`, not yet traced.

  Returns:
    A tf.function from a batch to the step's results.
  """
  optimizer = config.make_optimizer()
  optimizer._create_all_weights(model.trainable_variables)
  return tf.function(
    training_lib.make_train_step(
      MeasuredTask(),
      model,
      optimizer,
      config,
      training_lib.make_loss_scale(model),
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
