"""Reads the record of a fine-tuned run, so that its flags need not be repeated.

run.json has the task and its settings, eval_results.json a threshold.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Mapping, Optional

from official_albert import files, runs
from official_albert.tasks import common, squad

RESULTS_FILE = "eval_results.json"
# The metrics by split.
Results = dict[str, dict[str, float]]


@dataclasses.dataclass(frozen=True)
class TrainedRun:
  """The record of a fine-tuned run.

  `max_seq_length` is 0 if it is not known. `settings` are those of its records,
  such as labels, columns or doc_stride. `null_score_diff_threshold` is the
  given one of SQuAD 2.0, or else the best one for the evaluated questions;
  `thresholds` are those of labels, where a text may have several.
  """

  model_dir: str
  task: str
  max_seq_length: int
  settings: Mapping[str, Any]
  null_score_diff_threshold: Optional[float]
  thresholds: Mapping[str, float] = dataclasses.field(default_factory=dict)

  @property
  def labels(self) -> Optional[tuple[str, ...]]:
    """The classes in the order of the head; None if there are none."""
    labels = self.settings.get("labels")
    return None if labels is None else tuple(labels)

  @property
  def columns(self) -> Mapping[str, str]:
    """The columns of the user's own data, by role."""
    return self.settings.get("columns", {})


def read(model_dir: str) -> TrainedRun:
  """Reads the record of a run; raises ValueError for a pretraining run."""
  data, threshold = runs.read_run(model_dir)["data"], None
  thresholds: dict[str, float] = {}
  if "task" not in data:
    raise ValueError(
      f"{model_dir} is the folder of a pretraining run: give that of a run of "
      "tools.run_finetuning."
    )
  # The first split, which chooses it, wins.
  for values in reversed(read_results(model_dir).values()):
    fallback = values.get("null_score_diff_threshold", threshold)
    threshold = values.get(squad.CHOSEN_THRESHOLD, fallback)
    thresholds |= {
      name.removesuffix(common.THRESHOLD): value
      for name, value in values.items()
      if name.endswith(common.THRESHOLD)
    }
  return TrainedRun(
    model_dir,
    data["task"],
    data.get("max_seq_length", 0),
    data.get("settings") or {},
    threshold,
    thresholds,
  )


def write_results(model_dir: str, results: Results) -> None:
  """Writes `eval_results.json`."""
  files.write_json(os.path.join(model_dir, RESULTS_FILE), results)


def read_results(model_dir: str) -> Results:
  """Reads `eval_results.json`; returns {} if there is none."""
  path = os.path.join(model_dir, RESULTS_FILE)
  if not files.exists(path):
    return {}
  return files.read_json(path, Results, "remove it, and evaluate again")
