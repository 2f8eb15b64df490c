"""What a run is about to do, in three lines, before it does it.

A batch or a number of steps that is wrong by a factor of ten shows in the
operations, not after a week.
"""

from __future__ import annotations

from typing import Sequence

import tensorflow as tf

from official_albert.training import objective
from official_albert.training.train_config import TrainConfig


def describe(
  tasks: Sequence[objective.Task],
  config: TrainConfig,
  parameters: int,
  strategy: tf.distribute.Strategy,
) -> list[str]:
  """Model and devices; work in all; schedule.

  Args:
    tasks: of each phase; they give tokens and operations of one example.
    config: the settings.
    parameters: of the model.
    strategy: the devices.

  Returns:
    The lines to print.
  """
  replicas = strategy.num_replicas_in_sync
  device = strategy.extended.worker_devices[0].rsplit("device:", 1)[-1]
  precision = tf.keras.mixed_precision.global_policy().name
  work, tokens, operations = [], 0, 0
  starts = (0, *config.phase_ends)
  for index, task in enumerate(tasks):
    phase = config.in_phase(index)
    steps, batch = starts[index + 1] - starts[index], phase.train_batch_size
    parts = replicas * phase.gradient_accumulation_steps
    share = f", {batch // parts:,} at a time on a device" if parts > 1 else ""
    depth = config.phases[index].num_layers if config.phases else None
    layers = f" at depth {depth}" if depth else ""
    work.append(f"{steps:,} steps of {batch:,} sequences{layers}{share}")
    tokens += steps * batch * task.tokens_per_example
    flops = objective.training_flops(task, config.random_depths)
    operations += steps * batch * flops
  if config.random_depths:
    depths = ", ".join(map(str, config.random_depths))
    work[-1] += f", each step at a random depth of {depths}"
  return [
    f"{tasks[0].name}: {parameters:,} parameters, {precision}, {replicas} x "
    f"{device.split(':')[0]}",
    f"{', then '.join(work)}: {tokens:.4g} tokens, {operations:.3g} operations",
    f"{config.optimizer}, learning rate 0 to {config.learning_rate:.4g} in "
    f"{config.num_warmup_steps:,} steps, then to 0 "
    f"({config.learning_rate_decay})",
  ]
