"""What a run is about to do, in three lines, before it does it.

A batch or a number of steps that is wrong by a factor of ten shows in the
operations, not after a week.
"""

from __future__ import annotations

import tensorflow as tf

from official_albert import objective
from official_albert.train_config import TrainConfig


def describe(
  task: objective.Task,
  config: TrainConfig,
  parameters: int,
  strategy: tf.distribute.Strategy,
) -> list[str]:
  """Model and devices; work in all; schedule.

  Args:
    task: gives tokens and operations of one example.
    config: the settings.
    parameters: of the model.
    strategy: the devices.

  Returns:
    The lines to print.
  """
  replicas = strategy.num_replicas_in_sync
  device = strategy.extended.worker_devices[0].rsplit("device:", 1)[-1]
  precision = tf.keras.mixed_precision.global_policy().name
  steps, batch = config.num_train_steps, config.train_batch_size
  parts = replicas * config.gradient_accumulation_steps
  share = f", {batch // parts:,} at a time on a device" if parts > 1 else ""
  examples = steps * batch
  return [
    f"{task.name}: {parameters:,} parameters, {precision}, {replicas} x "
    f"{device.split(':')[0]}",
    f"{steps:,} steps of {batch:,} sequences{share}: "
    f"{examples * task.tokens_per_example:.4g} tokens, "
    f"{examples * task.flops_per_example:.3g} operations",
    f"{config.optimizer}, learning rate 0 to {config.learning_rate:.4g} in "
    f"{config.num_warmup_steps:,} steps, then to 0 "
    f"({config.learning_rate_decay})",
  ]
