"""Checkpoints of several workers in one folder: the chief writes and chooses.

Only the chief looks at the folder, where a file may be damaged, half written
or just renamed. The others are told the step and read that checkpoint, so all
go on from the same one.
"""

from __future__ import annotations

from typing import Optional, Union

import tensorflow as tf

from official_albert import distribution
from official_albert.training import checkpoint_manager as checkpoints

_NONE = -1


class ChiefManager(checkpoints.CheckpointManager):
  """Tells the other workers what it does."""

  def __init__(self, strategy, model_dir, max_to_keep, **trackables):
    super().__init__(model_dir, max_to_keep, **trackables)
    self._strategy = strategy

  def initialize(
    self,
    model: tf.keras.Model,
    init_checkpoint: str,
    head: Optional[checkpoints.Head] = None,
  ) -> str:
    report = super().initialize(model, init_checkpoint, head)
    if not self.latest:  # Else it has been told.
      distribution.from_chief(self._strategy, _NONE)
    return report

  def restore_latest(self) -> str:
    report = super().restore_latest()
    distribution.from_chief(self._strategy, checkpoints.step_of(self.latest))
    return report

  def save(self, step: int) -> str:
    path = super().save(step)
    distribution.barrier(self._strategy)
    return path


class FollowingManager:
  """Does what the chief does, but writes nothing.

  Attributes:
    latest: the newest checkpoint's prefix, or None.
  """

  latest: Optional[str] = None

  def __init__(self, strategy, model_dir, **trackables):
    self._checkpoint = tf.train.Checkpoint(**trackables)
    self._strategy = strategy
    self._directory = model_dir

  def initialize(
    self,
    model: tf.keras.Model,
    init_checkpoint: str,
    head: Optional[checkpoints.Head] = None,
  ) -> str:
    report = self.restore_latest()
    if not self.latest and init_checkpoint:
      checkpoints.warm_start(model, init_checkpoint, head)
    return report

  def restore_latest(self) -> str:
    step = distribution.from_chief(self._strategy, _NONE)
    if step == _NONE:
      return "no checkpoint yet"
    path = checkpoints.path_of(self._directory, step)
    try:
      self._checkpoint.restore(path).assert_consumed()
    except (tf.errors.OpError, IndexError) as error:
      raise OSError(
        f"this worker cannot read {path}, which the chief goes on from "
        f"({error}): model_dir has to be a folder that all workers share."
      ) from error
    self.latest = path
    return f"resumed from {path}"

  def save(self, step: int) -> str:
    distribution.barrier(self._strategy)
    self.latest = checkpoints.path_of(self._directory, step)
    return self.latest


def make_manager(
  strategy: tf.distribute.Strategy,
  model_dir: str,
  max_to_keep: int,
  **trackables,
) -> Union[checkpoints.CheckpointManager, FollowingManager]:
  """The manager for this process's part; see `checkpoints.Manager`."""
  if distribution.num_workers(strategy) == 1:
    return checkpoints.CheckpointManager(model_dir, max_to_keep, **trackables)
  if distribution.is_chief(strategy):
    return ChiefManager(strategy, model_dir, max_to_keep, **trackables)
  return FollowingManager(strategy, model_dir, **trackables)
