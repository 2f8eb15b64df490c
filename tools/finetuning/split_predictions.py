"""Files of predictions, whatever the task: read, averaged, written.

    predictions/dev.probabilities.tsv       classes, numbers, RACE's options
    predictions/dev/nbest_predictions.json  SQuAD, with the files beside it

What is in them is a `ProbabilityTable`, or SQuAD's answers by question.
"""

from __future__ import annotations

import os
from typing import Mapping, Optional, Sequence, Union

from tasks import common, squad

Predictions = Union[
  common.ProbabilityTable, Mapping[str, squad.QuestionAnswers]
]


def splits(folder: str) -> list[str]:
  """The splits that a folder has predictions of, sorted.

  Raises:
    OSError: there is no such folder.
  """
  found = []
  for name in os.listdir(folder):
    if name.endswith(common.PROBABILITIES_SUFFIX):
      found.append(name[: -len(common.PROBABILITIES_SUFFIX)])
    elif os.path.exists(os.path.join(folder, name, squad.NBEST_FILE)):
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
    return common.read_probabilities(table)
  return squad.read_answers(os.path.join(folder, split))


def count(predictions: Predictions) -> int:
  """The number of examples."""
  if isinstance(predictions, common.ProbabilityTable):
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
    folder: made if missing.
    split: its name.
    predictions: of the split.
    null_score_diff_threshold: null odds of SQuAD 2.0 over it mean no answer.

  Raises:
    OSError: they cannot be written.
    ValueError: a threshold for what has no null odds.
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
