"""Files of predictions, whatever the task: read, averaged, written.

    predictions/dev.probabilities.tsv       classes, numbers, RACE's options
    predictions/dev/nbest_predictions.json  SQuAD, with the files beside it

What is in them is a `ProbabilityTable`, or SQuAD's answers by question.
"""

from __future__ import annotations

import os
from typing import Mapping, Optional, Sequence, Union

from official_albert import probability_table
from tasks.squad import answers, ensemble, prediction_files

Predictions = Union[
  probability_table.ProbabilityTable, Mapping[str, answers.QuestionAnswers]
]


def splits(folder: str) -> list[str]:
  """The splits that a folder has predictions of, sorted.

  Raises:
    OSError: there is no such folder.
  """
  found = []
  for name in os.listdir(folder):
    if name.endswith(probability_table.SUFFIX):
      found.append(name[: -len(probability_table.SUFFIX)])
    elif os.path.exists(
      os.path.join(folder, name, prediction_files.NBEST_FILE)
    ):
      found.append(name)
  return sorted(found)


def read(folder: str, split: str) -> Predictions:
  """The predictions of a split.

  Raises:
    OSError: there are none, or they cannot be read.
    ValueError: a file is not what its name says.
  """
  table = _table_path(folder, split)
  if os.path.exists(table):
    return probability_table.read(table)
  return prediction_files.read_answers(os.path.join(folder, split))


def count(predictions: Predictions) -> int:
  """The number of examples."""
  if isinstance(predictions, probability_table.ProbabilityTable):
    return len(predictions.ids)
  return len(predictions)


def average(folders: Sequence[str], split: str) -> Predictions:
  """The mean of a split's predictions in several folders.

  Raises:
    OSError, ValueError: see `read`; or the folders' predictions are of
      different examples, labels or tasks.
  """
  members = {folder: read(folder, split) for folder in folders}
  tables = {
    _table_path(folder, split): member
    for folder, member in members.items()
    if isinstance(member, probability_table.ProbabilityTable)
  }
  if not tables:
    return ensemble.average(list(members.values()))
  if len(tables) < len(members):
    raise ValueError(
      f"some members have a table of probabilities of {split}, others SQuAD's "
      "answers: they are of different tasks."
    )
  return probability_table.average(tables)


def write(
  folder: str,
  split: str,
  predictions: Predictions,
  null_score_diff_threshold: Optional[float] = None,
) -> list[str]:
  """Writes predictions where `read` finds them; returns the paths.

  Args:
    folder: made if missing.
    split: its name.
    predictions: of the split.
    null_score_diff_threshold: null odds of SQuAD 2.0 over it mean no answer.

  Raises:
    OSError: they cannot be written.
    ValueError: a threshold for what has no null odds.
  """
  if not isinstance(predictions, probability_table.ProbabilityTable):
    return prediction_files.write(
      os.path.join(folder, split), predictions, null_score_diff_threshold
    )
  os.makedirs(folder, exist_ok=True)
  path = _table_path(folder, split)
  probability_table.write(path, predictions)
  return [path]


def _table_path(folder: str, split: str) -> str:
  return os.path.join(folder, f"{split}{probability_table.SUFFIX}")
