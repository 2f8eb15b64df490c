"""Reads, averages and writes the predictions of a split, for all tasks.

predictions/dev.probabilities.tsv       classes, numbers, options of RACE
predictions/dev/nbest_predictions.json  SQuAD, with the files beside it
"""

from __future__ import annotations

import os
from typing import Mapping, Optional, Sequence, Union

from tasks import common, squad

# The latter are the answers to each question of SQuAD.
Predictions = Union[
  common.ProbabilityTable, Mapping[str, squad.QuestionAnswers]
]


def _table_path(folder: str, split: str) -> str:
  return os.path.join(folder, f"{split}{common.PROBABILITIES_SUFFIX}")


def splits(folder: str) -> list[str]:
  """Returns the splits of which a folder has predictions, sorted."""
  found = []
  for name in os.listdir(folder):
    if name.endswith(common.PROBABILITIES_SUFFIX):
      found.append(name.removesuffix(common.PROBABILITIES_SUFFIX))
    elif os.path.exists(os.path.join(folder, name, squad.NBEST_FILE)):
      found.append(name)
  return sorted(found)


def read(folder: str, split: str) -> Predictions:
  """Reads the predictions of a split."""
  table = _table_path(folder, split)
  if os.path.exists(table):
    return common.read_probabilities(table)
  return squad.read_answers(os.path.join(folder, split))


def average(folders: Sequence[str], split: str) -> Predictions:
  """Returns the mean of a split's predictions in several folders.

  Raises:
    ValueError: they are of different examples, labels or tasks.
  """
  members = {
    _table_path(folder, split): read(folder, split) for folder in folders
  }
  is_table = {isinstance(m, common.ProbabilityTable) for m in members.values()}
  if is_table == {True, False}:
    raise ValueError(
      f"some members have a table of probabilities of {split}, others SQuAD's "
      "answers: they are of different tasks."
    )
  if is_table == {True}:
    return common.average_probabilities(members)
  return squad.average_answers(list(members.values()))


def write(
  folder: str,
  split: str,
  predictions: Predictions,
  null_score_diff_threshold: Optional[float] = None,
) -> list[str]:
  """Writes predictions where `read` finds them; returns the paths.

  Args:
    folder: created if missing.
    split: its name.
    predictions: of the split.
    null_score_diff_threshold: higher null odds of SQuAD 2.0 mean no answer.
  """
  if not isinstance(predictions, common.ProbabilityTable):
    return squad.write_predictions(
      os.path.join(folder, split), predictions, null_score_diff_threshold
    )
  os.makedirs(folder, exist_ok=True)
  path = _table_path(folder, split)
  common.write_probabilities(path, predictions)
  return [path]
