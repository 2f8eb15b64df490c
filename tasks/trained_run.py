"""Reads the record of a fine-tuned run, so that its flags need not be repeated.

run.json has the task and its settings, eval_results.json thresholds.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Mapping, Optional

from official_albert import runs
from official_albert.tasks import squad


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
  if "task" not in data:
    raise ValueError(
      f"{model_dir} is the folder of a pretraining run: give that of a run of "
      "tools.run_finetuning."
    )
  # The first split, which chooses it, wins.
  for values in reversed(runs.read_results(model_dir).values()):
    fallback = values.get("null_score_diff_threshold", threshold)
    threshold = values.get(squad.CHOSEN_THRESHOLD, fallback)
  return TrainedRun(
    model_dir,
    data["task"],
    data.get("max_seq_length", 0),
    data.get("settings") or {},
    threshold,
    runs.read_thresholds(model_dir),
  )
