"""Evaluates the checkpoints of a run that another process trains.

The two processes share only the run's folder. This one reads checkpoints and
run.json there, and writes metrics to `evaluator/` in it. It also keeps the best
checkpoint if the training process does not (because its eval_steps is 0).
"""

from __future__ import annotations

import dataclasses
import os
import time
from typing import Callable, NamedTuple, Optional, Sequence

import tensorflow as tf

from official_albert.training import (
  TIMEOUT_EXIT_CODE,
  best_checkpoint,
  evaluation,
  objective,
  reporting,
  run_record,
)
from official_albert.training import checkpoint_manager as checkpoints
from official_albert.training import train_config as train_config_lib

# In the run's folder.
EVALUATION_FOLDER = "evaluator"

# Raised by reading a checkpoint that is being written or removed.
_UNREADABLE = (FileNotFoundError, tf.errors.OpError, IndexError)


class TimedOut(SystemExit):
  """Ends the program with `TIMEOUT_EXIT_CODE`: no new checkpoint came."""

  def __init__(self, message: str):
    super().__init__(TIMEOUT_EXIT_CODE)
    self.message = message

  def __str__(self) -> str:
    return self.message


class _Checkpoint(NamedTuple):
  """A checkpoint and when it was written."""

  step: int
  # Nanoseconds since 1970.
  time: int
  path: str


class Evaluator:
  """Evaluates a model with the weights of several checkpoints.

  Attributes:
    model: the model.
  """

  def __init__(
    self,
    tasks: Sequence[objective.Task],
    strategy: tf.distribute.Strategy,
    eval_batch_size: int,
  ):
    """Builds the model.

    Args:
      tasks: one for each phase of the run.
      strategy: the devices.
      eval_batch_size: held-out examples in a batch.

    Raises:
      ValueError: there is no held-out data, or the batch size is not a multiple
        of the number of devices.
    """
    replicas = strategy.num_replicas_in_sync
    if eval_batch_size % replicas:
      raise ValueError(
        f"eval_batch_size {eval_batch_size} cannot be cut into {replicas} "
        "equal parts for the devices: choose a multiple."
      )
    with strategy.scope():
      self.model = tasks[0].build_model()
    self._evaluations = [
      evaluation.make_evaluation(task, self.model, strategy) for task in tasks
    ]
    self._data = [task.eval_dataset(eval_batch_size) for task in tasks]

  def read(self, path: str) -> None:
    """Reads the weights of a checkpoint.

    Raises:
      ValueError: it is of another model.
      FileNotFoundError, tf.errors.OpError, IndexError: it cannot be read.
    """
    report = checkpoints.warm_start(self.model, path)
    if report.missing:
      raise ValueError(f"{path} lacks weights of the model: {report}")

  def evaluate(self, phase: int) -> dict[str, float]:
    """Returns losses and metrics on the held-out data of a phase (from 0).

    Raises:
      Divergence: the loss is not finite.
    """
    return self._evaluations[phase](self._data[phase])


def read_train_config(model_dir: str) -> train_config_lib.TrainConfig:
  """Returns the settings in run.json, without a depth schedule.

  All checkpoints of a run with a depth schedule are evaluated at full depth.

  Raises:
    FileNotFoundError: the folder is not that of a run.
    ValueError: run.json cannot be read.
  """
  settings = run_record.read_run(model_dir)["settings"]
  names = {f.name for f in dataclasses.fields(train_config_lib.TrainConfig)}
  known = {name: value for name, value in settings.items() if name in names}
  phases = known.get("phases", ())
  if any(phase.get("num_layers") for phase in phases):
    phases = ()
  known["phases"] = tuple(train_config_lib.Phase(**phase) for phase in phases)
  known["random_depths"] = tuple(known.get("random_depths", ()))
  return train_config_lib.TrainConfig(**known)


def wait_for_run(
  model_dir: str,
  timeout_seconds: float,
  note: Callable[[str], None] = print,
) -> train_config_lib.TrainConfig:
  """Waits until the folder has a run.json, and returns its settings.

  Raises:
    TimedOut: there was none in time.
  """
  begun = time.monotonic()
  while True:
    try:
      return read_train_config(model_dir)
    except FileNotFoundError:
      _wait(begun, timeout_seconds, f"no run began in {model_dir}", note)


def evaluate_continuously(
  evaluator: Evaluator,
  model_dir: str,
  report: reporting.Reporter,
  timeout_seconds: float,
) -> None:
  """Evaluates each checkpoint of a run as it appears, until the last one.

  Checkpoints that an earlier process has evaluated are skipped. At the border
  of two phases, a checkpoint is evaluated on the data of both.

  Args:
    evaluator: with a task for each phase of the run.
    model_dir: the run's folder.
    report: writes to `EVALUATION_FOLDER` in it.
    timeout_seconds: how long to wait for a new checkpoint.

  Raises:
    TimedOut: no new checkpoint came.
    ValueError: the run is of another model.
    Divergence: a held-out loss is not finite.
    OSError: the best checkpoint could not be written.
  """
  done = {
    (r["step"], r["checkpoint_time"], r.get("phase", 1))
    for r in reporting.read_metrics(
      os.path.join(model_dir, EVALUATION_FOLDER), "eval"
    )
  }
  unreadable: set[_Checkpoint] = set()
  begun = time.monotonic()
  while True:
    config = read_train_config(model_dir)
    best = best_checkpoint.BestCheckpoint(
      model_dir, evaluator.model, config.best_metric, config.best_is
    )
    for checkpoint in _list(model_dir):
      step = checkpoint.step
      phases = [
        phase
        for phase in config.phases_at(step)
        if (step, checkpoint.time, phase + 1) not in done
      ]
      if not phases:
        continue
      try:
        evaluator.read(checkpoint.path)
      except _UNREADABLE as error:
        if checkpoint not in unreadable:
          report.note(_complaint(checkpoint, error))
        unreadable.add(checkpoint)
        continue
      for phase in phases:
        values = evaluator.evaluate(phase)
        # First, so that a kill in between repeats both.
        if step and not config.eval_steps:
          best.offer(step, phase + 1, values)
        several = {"phase": phase + 1} if config.phases else {}
        report.evaluation(
          step, values, checkpoint_time=checkpoint.time, **several
        )
        done.add((step, checkpoint.time, phase + 1))
      begun = time.monotonic()
    if any(step == config.num_train_steps for step, *_ in done):
      report.note(f"step {config.num_train_steps:,} was the run's last.")
      return
    _wait(
      begun, timeout_seconds, f"no new checkpoint in {model_dir}", report.note
    )


def _list(model_dir: str) -> list[_Checkpoint]:
  found = []
  for path in checkpoints.list_checkpoints(model_dir):
    written = _written(path)
    if written is not None:
      found.append(_Checkpoint(checkpoints.step_of(path), written, path))
  return found


def _written(path: str) -> Optional[int]:
  try:
    return tf.io.gfile.stat(f"{path}.index").mtime_nsec
  except tf.errors.NotFoundError:
    return None


def _complaint(checkpoint: _Checkpoint, error: BaseException) -> str:
  if _written(checkpoint.path) is None:
    return (
      f"step {checkpoint.step:,} is skipped: the run has removed its "
      "checkpoint already; a larger --keep_checkpoint_max keeps it longer."
    )
  reason = getattr(error, "message", None) or str(error)
  return (
    f"{checkpoint.path} cannot be read ({reason.splitlines()[0]}); it is "
    "tried again as long as it exists."
  )


def _wait(
  begun: float,
  timeout_seconds: float,
  what: str,
  note: Callable[[str], None],
) -> None:
  waited = time.monotonic() - begun
  if waited >= timeout_seconds:
    message = f"{what} for {reporting.duration(waited)}: ended by --timeout."
    note(message)
    raise TimedOut(message)
  time.sleep(min(5, timeout_seconds / 20))
