"""Saves and restores runs, and keeps the weights with the best held-out metric.

A checkpoint holds the weights, the optimizer and the number of examples seen.
That is enough for an exact resume, because everything else is a function of the
settings. `best/` in the run's folder holds only weights, for export and
fine-tuning. With several workers, the chief writes and selects the checkpoints.
"""

from __future__ import annotations

import contextlib
import math
import os
from typing import Any, Iterator, Mapping, Optional

import tensorflow as tf

from official_albert import distribution, files, remote, runs
from official_albert.train_config import TrainConfig
from official_albert.training import objective

_DAMAGED = "damaged-"
_NO_STEP = -1
# TensorFlow's name of the file that names the latest checkpoint.
_LATEST_FILE = "checkpoint"


class CheckpointManager:
  """The checkpoints of one run, which all its workers share.

  Only the chief looks at the folder, because a file there may be damaged or
  half written. The other workers restore the step that the chief sends them.

  Attributes:
    latest: the prefix of the last restored or saved checkpoint, or None.
  """

  def __init__(
    self,
    model_dir: str,
    max_to_keep: int,
    strategy: Optional[tf.distribute.Strategy] = None,
    **trackables: Any,
  ):
    """Creates the folder; `trackables` are the content of a checkpoint."""
    self.latest: Optional[str] = None
    self._checkpoint = tf.train.Checkpoint(**trackables)
    self._directory, self._max_to_keep = model_dir, max_to_keep
    self._strategy = strategy
    self._is_chief = distribution.is_chief(strategy)
    if self._is_chief:
      files.make_folder(model_dir)
      self._remove_leftovers()

  def restore_latest(self) -> str:
    """Restores the newest checkpoint that is not damaged.

    The damaged ones are renamed.

    Returns:
      A sentence for the log; "" if there is no checkpoint.

    Raises:
      ValueError: the checkpoint belongs to another model, or all are damaged.
    """
    step, damaged = self._restore_whole() if self._is_chief else (_NO_STEP, [])
    step = distribution.from_chief(self._strategy, step)
    if step == _NO_STEP:
      return ""
    self.latest = self._prefix(step)
    if not self._is_chief:
      try:
        self._checkpoint.restore(self.latest).assert_consumed()
      except (tf.errors.OpError, IndexError) as error:
        raise OSError(
          f"this worker cannot read {self.latest}, from which the chief "
          f"resumes ({error}): model_dir has to be a folder that all workers "
          "share."
        ) from error
    if not damaged:
      return f"resumed from {self.latest}"
    found = runs.checkpoint_files(self._directory)
    for path in (path for prefix in damaged for path in found[prefix]):
      aside = os.path.join(self._directory, _DAMAGED + os.path.basename(path))
      files.rename(path, aside)
    names = ", ".join(map(os.path.basename, damaged))
    return (
      f"resumed from {self.latest}, because {names} cannot be read (renamed to "
      f"{_DAMAGED}...)"
    )

  def _restore_whole(self) -> tuple[int, list[str]]:
    """Restores the newest whole checkpoint.

    Returns:
      Its step, `_NO_STEP` without one, and the damaged checkpoints after it.
    """
    damaged: list[str] = []
    # A damaged checkpoint may lack one of its files.
    for path in reversed(runs.checkpoint_files(self._directory)):
      try:
        self._checkpoint.restore(path).assert_consumed()
        return runs.step_of(path), damaged
      except (AssertionError, ValueError) as error:
        _raise_if_unreachable(error)
        raise ValueError(
          f"{path} does not fit this model: its folder belongs to a run of "
          "another configuration, or only one of both has float16's loss scale "
          "or freezes the encoder; choose another model_dir, or remove it."
        ) from error
      except (tf.errors.OpError, IndexError) as error:
        _raise_if_unreachable(error)
        damaged.append(path)
    if damaged:
      raise ValueError(
        f"no checkpoint in {self._directory} can be read, all {len(damaged)} "
        "are damaged: restore one from a backup, or choose another model_dir "
        "to start again."
      )
    return _NO_STEP, damaged

  def _prefix(self, step: int) -> str:
    return os.path.join(self._directory, f"{runs.CHECKPOINT_NAME}-{step}")

  def save(self, step: int) -> None:
    """Writes a checkpoint, then removes old ones.

    Raises:
      OSError: the checkpoint cannot be written, for example because the disk is
        full. Older checkpoints are kept.
    """
    latest = self._prefix(step)
    if self._is_chief:
      with _writing(f"the checkpoint of step {step:,}", self._directory):
        self._checkpoint.save_counter.assign_add(1)
        self._checkpoint.write(latest)
        # For tf.train.latest_checkpoint.
        name = os.path.basename(latest)
        path = os.path.join(self._directory, _LATEST_FILE)
        files.write_text(path, f'model_checkpoint_path: "{name}"\n')
        found = runs.checkpoint_files(self._directory)
        whole = [x for x, paths in found.items() if f"{x}.index" in paths]
        for part in (p for x in whole[: -self._max_to_keep] for p in found[x]):
          files.remove(part)
    distribution.barrier(self._strategy)
    self.latest = latest

  def _remove_leftovers(self) -> None:
    """Removes the files of a save that was killed.

    TensorFlow moves the values out of a temporary folder, writes the index, and
    removes the folder.
    """
    for name in runs.visible_names(self._directory):
      path = os.path.join(self._directory, name)
      if "_temp" in name and name.startswith(runs.CHECKPOINT_NAME):
        found = runs.checkpoint_files(self._directory)
        prefix = os.path.join(self._directory, name.partition("_temp")[0])
        for part in found.get(prefix, ()):
          files.remove(part)
        files.remove_tree(path)  # Last, because it marks the other files.
      elif name.startswith(f"{_LATEST_FILE}.") and ".tmp" in name:
        files.remove(path)


class BestCheckpoint:
  """Keeps the best weights of a model.

  `best.json` names the checkpoint and is written after it, so a kill in between
  keeps the previous best. Losses of different phases are not comparable, so
  each phase starts over.
  """

  def __init__(self, config: TrainConfig, model: tf.keras.Model):
    """Creates no files."""
    self._config, self._metric = config, config.best_metric
    self._folder = os.path.join(config.model_dir, runs.BEST_FOLDER)
    self._checkpoint = tf.train.Checkpoint(model=model)

  def check(self, values: objective.Values) -> None:
    """Raises ValueError if the metric is not in `values`."""
    if self._metric not in values:
      raise ValueError(
        f"best_metric {self._metric!r} is not among the held-out numbers: "
        f"choose one of {', '.join(values)}."
      )

  def offer(self, step: int, phase: int, values: objective.Values) -> bool:
    """Writes the model's weights if they are the best of the phase.

    The first of equal values is kept, so an evaluation that is repeated after a
    kill changes nothing. Any number is better than NaN, and None is not
    compared. `phase` counts from 1.

    Returns:
      Whether the weights are the best so far.
    """
    if values[self._metric] is None:
      return False
    before = runs.read_best(self._config.model_dir)
    self._remove_others(before)
    rival = read_best(self._config)
    if rival and rival["phase"] == phase:
      new, old = values[self._metric], rival["values"][self._metric]
      if self._config.best_is == "highest":
        new, old = -new, -old
      if not (new < old or (math.isnan(old) and not math.isnan(new))):
        return False
    name = f"{runs.CHECKPOINT_NAME}-{step}"
    if before and before["checkpoint"] == name:
      # At a boundary of phases. The two files of a checkpoint cannot be
      # replaced in one step.
      name = f"{runs.CHECKPOINT_NAME}.again-{step}"
    record: runs.BestRecord = {
      "step": step,
      "phase": phase,
      "metric": self._metric,
      "best_is": self._config.best_is,
      "values": {k: x for k, x in values.items() if x is not None},
      "checkpoint": name,
    }
    with _writing(f"the best checkpoint, of step {step:,},", self._folder):
      files.make_folder(self._folder)
      self._checkpoint.write(os.path.join(self._folder, name))
      files.write_json(os.path.join(self._folder, runs.BEST_FILE), record)
    self._remove_others(record)
    return True

  def clear(self) -> None:
    """Removes the best weights of a previous run, best.json first."""
    with contextlib.suppress(FileNotFoundError):
      files.remove(os.path.join(self._folder, runs.BEST_FILE))
    self._remove_others(None)

  def _remove_others(self, record: Optional[Mapping[str, Any]]) -> None:
    """Removes checkpoints that `record` does not name, even partial ones."""
    ours = runs.CHECKPOINT_NAME, f"{runs.BEST_FILE}."
    for name in runs.visible_names(self._folder):
      is_kept = record and name.rsplit(".", 1)[0] == record["checkpoint"]
      if not is_kept and name.startswith(ours):
        path = os.path.join(self._folder, name)
        remove = files.remove_tree if files.is_dir(path) else files.remove
        remove(path)


@contextlib.contextmanager
def _writing(what: str, folder: str) -> Iterator[None]:
  """Turns a failure of the body into one sentence with advice."""
  try:
    yield
  except (OSError, tf.errors.OpError) as error:
    reason = remote.explain(getattr(error, "message", None) or str(error))[1]
    if not files.is_remote(folder):
      reason += ": free disk space and run the command again"
    raise OSError(f"{what} was not written to {folder}: {reason}.") from error


def _raise_if_unreachable(error: BaseException) -> None:
  """Raises `error` if a request failed for an object that exists."""
  address, _ = remote.explain(str(error))
  if address and files.exists(address):
    raise error


def read_best(config: TrainConfig) -> Optional[runs.BestRecord]:
  """Returns the record of the best weights by a run's metric, or None."""
  best = runs.read_best(config.model_dir)
  wanted = config.best_metric, config.best_is
  return best if best and (best["metric"], best["best_is"]) == wanted else None


def early_stop(config: TrainConfig, step: int) -> str:
  """Returns why the run ends early at `step`; "" if it continues.

  It depends only on the files and the step, so a restarted run stops where the
  uninterrupted run does.
  """
  metric, patience = config.best_metric, config.early_stopping_evaluations
  best = read_best(config)
  if not best or not patience:
    return ""
  count = step // config.eval_steps - best["step"] // config.eval_steps
  if count < patience:
    return ""
  return (
    f"stopped: the best {metric} is {best['values'][metric]:.4g} of step "
    f"{best['step']:,}, {count} evaluations ago"
  )
