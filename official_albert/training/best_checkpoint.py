"""The checkpoint with the best held-out metric, in `best/` of the run's folder.

It holds only the weights, to be exported or fine-tuned; a run resumes from its
own checkpoints. `best.json` names the checkpoint and is written after it, so a
kill in between leaves the previous best. Losses of different phases cannot be
compared, so each phase starts anew.
"""

from __future__ import annotations

import json
import math
import os
from typing import Any, Mapping, Optional

import tensorflow as tf

from official_albert import files

BEST_FOLDER = "best"
_RECORD = "best.json"
_NAME = "model.ckpt"


class BestCheckpoint:
  """Keeps the best weights of a model."""

  def __init__(
    self,
    model_dir: str,
    model: tf.keras.Model,
    metric: str,
    best_is: str = "lowest",
  ):
    """Creates no files.

    Args:
      model_dir: the run's folder.
      model: whose weights are kept.
      metric: name of the held-out metric to compare.
      best_is: one of `DIRECTIONS`.
    """
    self._folder = os.path.join(model_dir, BEST_FOLDER)
    self._model_dir = model_dir
    self._checkpoint = tf.train.Checkpoint(model=model)
    self._metric = metric
    self._best_is = best_is

  def check(self, values: Mapping[str, float]) -> None:
    """Raises ValueError if the metric is not in `values`."""
    if self._metric not in values:
      raise ValueError(
        f"best_metric {self._metric!r} is not among the held-out numbers: "
        f"choose one of {', '.join(values)}."
      )

  def offer(self, step: int, phase: int, values: Mapping[str, float]) -> bool:
    """Writes the model's weights if they are the best of the phase.

    Of equal values the first is kept, so an evaluation that is repeated after a
    kill changes nothing.

    Args:
      step: updates so far.
      phase: number of the phase, from 1, whose held-out data gave `values`.
      values: losses and metrics; any number is better than NaN.

    Returns:
      Whether the weights are the best so far.

    Raises:
      ValueError: the metric is not in `values`.
      OSError: the weights cannot be written; the previous best is kept.
    """
    self.check(values)
    kept = before = read_best(self._model_dir)
    self._remove_all_but(kept)
    if (
      before
      and before["phase"] == phase
      and self._is_comparable(before)
      and not self._is_better(values, before["values"])
    ):
      return False
    record = {
      "step": step,
      "phase": phase,
      "metric": self._metric,
      "best_is": self._best_is,
      "values": dict(values),
      "checkpoint": f"{_NAME}-{step}",
    }
    if before and before["checkpoint"] == record["checkpoint"]:
      # For example after a rollback. The two files of a checkpoint cannot be
      # replaced in one step.
      record["checkpoint"] = f"{_NAME}.again-{step}"
    try:
      tf.io.gfile.makedirs(self._folder)
      prefix = os.path.join(self._folder, record["checkpoint"])
      self._checkpoint.write(prefix)
      files.write_json(os.path.join(self._folder, _RECORD), record)
      kept = record
      # For tf.train.latest_checkpoint.
      tf.compat.v1.train.update_checkpoint_state(
        self._folder, prefix, all_model_checkpoint_paths=[prefix]
      )
    except (OSError, tf.errors.OpError) as error:
      self._remove_all_but(kept)
      reason = getattr(error, "message", None) or str(error)
      raise OSError(
        f"the best checkpoint, of step {step:,}, could not be written to "
        f"{self._folder} ({reason.splitlines()[0]}): make room there and "
        "give the same command again."
      ) from error
    self._remove_all_but(kept)
    return True

  def evaluations_since(self, step: int, eval_steps: int) -> int:
    """Returns how many evaluations up to `step` have not improved the metric.

    It depends only on the files and the step, so a restarted run counts as the
    uninterrupted run does.

    Args:
      step: its evaluation, if it has one, has been offered.
      eval_steps: updates between two evaluations.
    """
    record = read_best(self._model_dir)
    if not record or not self._is_comparable(record):
      return 0
    # A resumed run may be at a step before the best one.
    return max(0, step // eval_steps - record["step"] // eval_steps)

  def no_better(self, evaluations: int) -> str:
    """Returns "no better loss than 3.1 of step 600 in 3 evaluations"."""
    record = read_best(self._model_dir)
    value = record["values"][self._metric]
    return (
      f"no better {self._metric} than {value:.4g} of step {record['step']:,} "
      f"in {evaluations} evaluation{'s' if evaluations > 1 else ''}"
    )

  def _is_comparable(self, record: Mapping[str, Any]) -> bool:
    # Early versions record no direction.
    by = record["metric"], record.get("best_is", "lowest")
    return by == (self._metric, self._best_is)

  def _is_better(
    self, values: Mapping[str, float], before: Mapping[str, float]
  ) -> bool:
    new, old = values[self._metric], before[self._metric]
    if math.isnan(new) or math.isnan(old):
      return math.isnan(old) and not math.isnan(new)
    return new < old if self._best_is == "lowest" else new > old

  def clear(self) -> None:
    """Removes the best weights of a previous run."""
    if tf.io.gfile.exists(self._folder):
      self._remove(_RECORD)
      tf.io.gfile.rmtree(self._folder)

  def _remove_all_but(self, record: Optional[Mapping[str, Any]]) -> None:
    """Removes checkpoints, complete or not, that `record` does not name."""
    if not tf.io.gfile.exists(self._folder):
      return
    for name in tf.io.gfile.listdir(self._folder):
      name = name.rstrip("/")
      is_kept = record and name.rsplit(".", 1)[0] == record["checkpoint"]
      if not is_kept and name.startswith((_NAME, f"{_RECORD}.")):
        self._remove(name)

  def _remove(self, name: str) -> None:
    path = os.path.join(self._folder, name)
    if tf.io.gfile.isdir(path):
      tf.io.gfile.rmtree(path)
    elif tf.io.gfile.exists(path):
      tf.io.gfile.remove(path)


def read_best(model_dir: str) -> Optional[dict[str, Any]]:
  """Reads best.json; returns None if the run has no best checkpoint.

  Its keys are step, phase, metric, best_is, values and checkpoint.

  Raises:
    ValueError: the file is not valid JSON.
  """
  path = os.path.join(model_dir, BEST_FOLDER, _RECORD)
  try:
    with tf.io.gfile.GFile(path) as file:
      return json.loads(file.read())
  except tf.errors.NotFoundError:
    return None
  except ValueError as error:
    raise ValueError(
      f"{path} is not valid JSON ({error}): remove its folder."
    ) from error


def best_prefix(model_dir: str, record: Mapping[str, Any]) -> str:
  """Returns the prefix of the checkpoint that `record` names."""
  return os.path.join(model_dir, BEST_FOLDER, record["checkpoint"])
