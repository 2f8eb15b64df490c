"""The checkpoint with the best held-out number, in `best/` under the run.

It holds the weights only, a third of a whole checkpoint: it is there to be
exported or fine-tuned, and what goes on is the run, from its own checkpoints.

`best.json` names the checkpoint, and is written after it: whoever is killed in
between leaves the one before. Losses of phases cannot be compared, as longer
sequences are easier, so each phase starts anew.
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
  """Keeps a model's best weights."""

  def __init__(
    self,
    model_dir: str,
    model: tf.keras.Model,
    metric: str,
    best_is: str = "lowest",
  ):
    """Writes nothing yet.

    Args:
      model_dir: the run's folder.
      model: whose weights are kept.
      metric: the name of the value to judge by.
      best_is: which of its values is the best, one of `DIRECTIONS`.
    """
    self._folder = os.path.join(model_dir, BEST_FOLDER)
    self._model_dir = model_dir
    self._checkpoint = tf.train.Checkpoint(model=model)
    self._metric = metric
    self._best_is = best_is

  def check(self, values: Mapping[str, float]) -> None:
    """Refuses a metric that is not measured.

    Raises:
      ValueError: it is not in `values`.
    """
    if self._metric not in values:
      raise ValueError(
        f"best_metric {self._metric!r} is not among the held-out numbers: "
        f"choose one of {', '.join(values)}."
      )

  def offer(self, step: int, phase: int, values: Mapping[str, float]) -> bool:
    """Keeps the model's weights if no others of this phase were better.

    Of equal ones the first is kept, so an evaluation that is done again after
    a kill changes nothing.

    Args:
      step: updates that made the weights.
      phase: number of the phase, from 1, whose held-out data gave `values`.
      values: losses and metrics; any number is better than NaN.

    Returns:
      Whether the weights are the best so far.

    Raises:
      ValueError: there is no such metric in `values`.
      OSError: they could not be written; those before are untouched.
    """
    self.check(values)
    kept = before = read_best(self._model_dir)
    self._remove_all_but(kept)
    if (
      before
      and before["phase"] == phase
      and self._judged_alike(before)
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
      # After a rollback, say. Two files cannot be replaced in one step.
      record["checkpoint"] = f"{_NAME}.again-{step}"
    try:
      tf.io.gfile.makedirs(self._folder)
      prefix = os.path.join(self._folder, record["checkpoint"])
      self._checkpoint.write(prefix)
      self._write(record)
      kept = record
      # For those who look for the folder's latest checkpoint.
      tf.compat.v1.train.update_checkpoint_state(
        self._folder, prefix, all_model_checkpoint_paths=[prefix]
      )
    except (OSError, tf.errors.OpError) as error:
      self._remove_all_but(kept)
      reason = getattr(error, "message", None) or str(error)
      raise OSError(
        f"the best checkpoint, of step {step:,}, could not be written to "
        f"{self._folder} ({reason.splitlines()[0]}): make room there and give "
        "the same command again."
      ) from error
    self._remove_all_but(kept)
    return True

  def evaluations_since(self, step: int, eval_steps: int) -> int:
    """Scheduled evaluations up to `step` that have brought nothing better.

    It is a function of the files and the step, so that a run that is killed
    and started again counts as the uninterrupted one did.

    Args:
      step: a step whose evaluation, if it has one, has been offered.
      eval_steps: steps between two evaluations.
    """
    record = read_best(self._model_dir)
    if not record or not self._judged_alike(record):
      return 0
    # A resumed run may not have come yet to where the best was measured.
    return max(0, step // eval_steps - record["step"] // eval_steps)

  def no_better(self, evaluations: int) -> str:
    """As in "no better accuracy than 0.91 of step 600 in 3 evaluations"."""
    record = read_best(self._model_dir)
    value = record["values"][self._metric]
    return (
      f"no better {self._metric} than {value:.4g} of step {record['step']:,} "
      f"in {evaluations} evaluation{'s' if evaluations > 1 else ''}"
    )

  def _judged_alike(self, record: Mapping[str, Any]) -> bool:
    # Records of earlier versions know losses only.
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
    """Forgets the best weights, which were another run's."""
    if tf.io.gfile.exists(self._folder):
      self._remove(_RECORD)
      tf.io.gfile.rmtree(self._folder)

  def _write(self, record: Mapping[str, Any]) -> None:
    files.write_json(os.path.join(self._folder, _RECORD), record)

  def _remove_all_but(self, record: Optional[Mapping[str, Any]]) -> None:
    """Removes checkpoints, whole or half, that `record` does not name."""
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
  """`best.json`: step, phase, metric, best_is, values and checkpoint.

  Returns:
    None if the run keeps no best checkpoint.

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
  """The path of the checkpoint that `record` names, for `warm_start`."""
  return os.path.join(model_dir, BEST_FOLDER, record["checkpoint"])
