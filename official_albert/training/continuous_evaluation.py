"""Evaluates the checkpoints of a run that another process trains.

The two processes share only the run's folder. The evaluator reads its
checkpoints and run.json, and writes metrics to the subfolder `evaluator/`. It
also keeps the best checkpoint if the training process does not (eval_steps 0).
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from typing import Optional, Sequence

import tensorflow as tf

from official_albert import files, run_logs, runs
from official_albert.settings import TIMEOUT_EXIT_CODE
from official_albert.train_config import TrainConfig
from official_albert.training import checkpoint_manager as checkpoints
from official_albert.training import evaluation, objective, reporting

# A subfolder of the run's folder.
EVALUATION_FOLDER = "evaluator"


class Evaluator:
  """Evaluates a model with the weights of several checkpoints."""

  def __init__(
    self,
    tasks: Sequence[objective.Task],
    strategy: tf.distribute.Strategy,
    eval_batch_size: int,
  ):
    """Builds the model; `tasks` has one for each phase of the run."""
    replicas = strategy.num_replicas_in_sync
    if eval_batch_size % replicas:
      raise ValueError(
        f"eval_batch_size {eval_batch_size} cannot be cut into {replicas} "
        "equal parts for the devices: choose a multiple."
      )
    self._tasks = tasks
    with strategy.scope():
      self.model = tasks[0].build_model()
    self._evaluations = [
      evaluation.make_evaluation(task, self.model, strategy) for task in tasks
    ]
    self._data = [task.eval_dataset(eval_batch_size) for task in tasks]

  def read(self, path: str) -> None:
    """Reads the weights of a checkpoint.

    Raises:
      ValueError: the checkpoint belongs to another model.
      OSError: it cannot be read, as it is being written or removed.
    """
    report = self._tasks[0].warm_start(self.model, path)
    if report.missing:
      raise ValueError(f"{path} lacks weights of the model: {report}")

  def evaluate(self, phase: int) -> objective.Values:
    """Returns losses and metrics on the held-out data of a phase (from 0)."""
    return self._evaluations[phase](self._data[phase])


@dataclasses.dataclass(frozen=True)
class _Run:
  """What the evaluation reads of run.json."""

  settings: TrainConfig


def read_train_config(model_dir: str) -> TrainConfig:
  """Returns the settings in run.json, without a depth schedule.

  All checkpoints of a run with a depth schedule are evaluated at full depth.
  """
  path = runs.find_record(model_dir)
  config = files.read_json(path, _Run, runs.RECORD_ADVICE).settings
  phases = config.phases
  if any(phase.num_layers for phase in phases):
    phases = ()
  # The folder may have been moved.
  return dataclasses.replace(config, model_dir=model_dir, phases=phases)


def wait_for_run(model_dir: str, timeout_seconds: float) -> TrainConfig:
  """Waits until the folder has a run.json, and returns its settings."""
  begun = time.monotonic()
  while True:
    try:
      return read_train_config(model_dir)
    except FileNotFoundError:
      _wait(begun, timeout_seconds, "run began", model_dir)


def evaluate_continuously(
  evaluator: Evaluator,
  model_dir: str,
  report: reporting.Reporter,
  timeout_seconds: float,
) -> None:
  """Evaluates each checkpoint of a run as it appears, until the last one.

  A run that diverged or was stopped may be continued, so only the time ends the
  wait for it.

  Checkpoints that an earlier process has evaluated are skipped. At the boundary
  of two phases, a checkpoint is evaluated on the data of both.

  `report` writes to `EVALUATION_FOLDER` in the run's folder.

  Raises:
    SystemExit: no new checkpoint appeared; the code is `TIMEOUT_EXIT_CODE`.
    ValueError: the run belongs to another model, or a held-out loss is not
      finite.
  """
  folder = os.path.join(model_dir, EVALUATION_FOLDER)
  # A step saved again after a rollback has another time stamp.
  done = {
    (r["step"], r["checkpoint_time"], r.get("phase", 1))
    for r in run_logs.read_metrics(folder, "eval")
  }
  unreadable: set[tuple[int, int]] = set()
  begun = time.monotonic()
  while True:
    config = read_train_config(model_dir)
    best = checkpoints.BestCheckpoint(
      model_dir, evaluator.model, config.best_metric, config.best_is
    )
    for path in runs.list_checkpoints(model_dir):
      step, written = runs.step_of(path), _written(path)
      phases = [
        phase
        for phase in config.phases_at(step)
        if (step, written, phase + 1) not in done
      ]
      if not phases or written is None:
        continue
      try:
        evaluator.read(path)
      except OSError as error:
        if (step, written) not in unreadable:
          report.note(
            f"{path} cannot be read ({error}) and is "
            "tried again if it exists; if the run has removed it, a larger "
            "--keep_checkpoint_max keeps it longer."
          )
        unreadable.add((step, written))
        continue
      for phase in phases:
        values = evaluator.evaluate(phase)
        # This comes first, so a kill in between repeats both.
        if step and not config.eval_steps:
          best.offer(step, phase + 1, values)
        labels = config.labels(phase)
        report.evaluation(step, values, checkpoint_time=written, **labels)
        done.add((step, written, phase + 1))
      begun = time.monotonic()
    last = runs.newest_step(model_dir)
    steps = {step for step, *_ in done}
    if config.num_train_steps in steps or (last in steps and _is_over(config)):
      report.note(f"step {max(steps):,} was the run's last.")
      return
    _wait(begun, timeout_seconds, "new checkpoint", model_dir)


def _is_over(config: TrainConfig) -> bool:
  """Returns whether the run has ended early.

  A run saves a step before it evaluates it, and it keeps the best weights
  before it logs the evaluation. So only a logged step is known to be no better.
  """
  step = runs.newest_step(config.model_dir)
  with contextlib.suppress(FileNotFoundError):  # Only checkpoints were copied.
    log = run_logs.read_metrics(config.model_dir, "eval")
    if not any(record["step"] == step for record in log):
      return False
  return checkpoints.is_finished(config)


def _written(path: str) -> Optional[int]:
  """Returns a checkpoint's time stamp; None if it has been removed."""
  try:
    return tf.io.gfile.stat(f"{path}.index").mtime_nsec
  except tf.errors.NotFoundError:
    return None


def _wait(
  begun: float, timeout_seconds: float, what: str, model_dir: str
) -> None:
  waited = time.monotonic() - begun
  if waited >= timeout_seconds:
    shown = run_logs.duration(waited)
    print(
      f"no {what} in {model_dir} for {shown}: ended by --timeout.", flush=True
    )
    raise SystemExit(TIMEOUT_EXIT_CODE)
  # Each look into a bucket takes several requests, which are charged for.
  longest = 60 if files.is_remote(model_dir) else 5
  time.sleep(min(longest, timeout_seconds / 20))
