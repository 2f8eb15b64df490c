"""Reads, averages and writes the predictions of a split, for all tasks.

    predictions/dev.probabilities.tsv       classes, numbers, options of RACE
    predictions/dev/nbest_predictions.json  SQuAD, with the files beside it

Predictions are a `ProbabilityTable`, or SQuAD's answers by question.
"""

from __future__ import annotations

import os
from typing import Mapping, Optional, Sequence, Union

from tasks import common, squad

Predictions = Union[
  common.ProbabilityTable, Mapping[str, squad.QuestionAnswers]
]


def splits(folder: str) -> list[str]:
  """Returns the splits of which a folder has predictions, sorted.

  Raises:
    OSError: there is no such folder.
  """
  found = []
  for name in os.listdir(folder):
    if name.endswith(common.PROBABILITIES_SUFFIX):
      found.append(name.removesuffix(common.PROBABILITIES_SUFFIX))
    elif os.path.exists(os.path.join(folder, name, squad.NBEST_FILE)):
      found.append(name)
  return sorted(found)


def read(folder: str, split: str) -> Predictions:
  """Reads the predictions of a split.

  Raises:
    OSError: a file is missing or cannot be read.
    ValueError: a file is invalid.
  """
  table = _table_path(folder, split)
  if os.path.exists(table):
    return common.read_probabilities(table)
  return squad.read_answers(os.path.join(folder, split))


def count(predictions: Predictions) -> int:
  """Returns the number of examples."""
  if isinstance(predictions, common.ProbabilityTable):
    return len(predictions.ids)
  return len(predictions)


def average(folders: Sequence[str], split: str) -> Predictions:
  """Returns the mean of a split's predictions in several folders.

  Raises:
    OSError, ValueError: see `read`; or the predictions are of different
      examples, labels or tasks.
  """
  members = {folder: read(folder, split) for folder in folders}
  tables = {
    _table_path(folder, split): member
    for folder, member in members.items()
    if isinstance(member, common.ProbabilityTable)
  }
  if not tables:
    return squad.average_answers(list(members.values()))
  if len(tables) < len(members):
    raise ValueError(
      f"some members have a table of probabilities of {split}, others SQuAD's "
      "answers: they are of different tasks."
    )
  return common.average_probabilities(tables)


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

  Raises:
    OSError: a file cannot be written.
    ValueError: there is a threshold, but no null odds.
  """
  if not isinstance(predictions, common.ProbabilityTable):
    return squad.write_predictions(
      os.path.join(folder, split), predictions, null_score_diff_threshold
    )
  os.makedirs(folder, exist_ok=True)
  path = _table_path(folder, split)
  common.write_probabilities(path, predictions)
  return [path]


def _table_path(folder: str, split: str) -> str:
  return os.path.join(folder, f"{split}{common.PROBABILITIES_SUFFIX}")
