"""What a run's own records say about weights that are to be published.

Nothing is measured here, and nothing is taken from another checkpoint of the
same run.
"""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Mapping, Optional

from official_albert import training
from tools import finetuning

# Of an evaluation, what is no result.
_NO_RESULTS = ("kind", "step", "phase", "unix_time_seconds")
_NO_METRICS = ("total", "thresh", "threshold")


@dataclasses.dataclass(frozen=True)
class Measured:
  """Numbers, and where they are from.

  Attributes:
    what: as in "held-out data of pretraining, after 7,000 steps".
    file: of the run, in which they stand.
    values: by their names.
  """

  what: str
  file: str
  values: Mapping[str, float]


def read(folder: str, weights: str, is_best: bool) -> Optional[Measured]:
  """The results of one checkpoint of a run.

  Args:
    folder: of the run.
    weights: the checkpoint, or again the folder, for its latest.
    is_best: whether it is the run's best.

  Returns:
    None if that checkpoint was not evaluated.

  Raises:
    ValueError: a record is not valid JSON.
  """
  data = training.read_run(folder)["data"]
  best = training.read_best(folder)
  if "task" in data:
    # What is evaluated in the end is the best, or of a run without, the latest.
    if best and not is_best:
      return None
    return _of_finetuning(folder, data["task"])
  if best and is_best:
    return _of_pretraining(
      f"{training.BEST_FOLDER}/best.json", best["step"], best["values"]
    )
  return _logged(folder, _step(folder, weights))


def _step(folder: str, weights: str) -> int:
  try:
    return training.step_of(weights)
  except ValueError:
    return training.newest_step(folder)


def _of_finetuning(folder: str, task: str) -> Optional[Measured]:
  results = finetuning.trained_run.read_json(
    os.path.join(folder, finetuning.trained_run.RESULTS_FILE)
  )
  values = {
    f"{split} {name}": value
    for split, metrics in (results or {}).items()
    for name, value in metrics.items()
    if isinstance(value, (int, float)) and not name.endswith(_NO_METRICS)
  }
  if not values:
    return None
  return Measured(
    f"{task}, with the head that was fine-tuned together with this encoder",
    finetuning.trained_run.RESULTS_FILE,
    values,
  )


def _of_pretraining(file: str, step: int, values) -> Measured:
  values = {
    name: value
    for name, value in values.items()
    if name not in _NO_RESULTS and isinstance(value, (int, float))
  }
  what = f"held-out data of pretraining, after {step:,} steps"
  return Measured(what, file, values)


def _logged(folder: str, step: int) -> Optional[Measured]:
  path = os.path.join(folder, training.METRICS_FILE)
  if not os.path.exists(path):
    return None
  found = None
  with open(path, encoding="utf-8") as file:
    for line in file:
      try:
        record = json.loads(line)
      except ValueError:
        continue  # A kill can cut a line.
      if record.get("kind") == "eval" and record.get("step") == step:
        found = record
  if found is None:
    return None
  return _of_pretraining(training.METRICS_FILE, step, found)
