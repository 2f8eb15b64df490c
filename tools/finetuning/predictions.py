"""Reads, averages and writes the predictions of a split, for all tasks.

predictions/dev.probabilities.tsv       classes, numbers, options of RACE
predictions/dev/nbest_predictions.json  SQuAD, with other files in this folder
"""

from __future__ import annotations

import os
from typing import Mapping, Optional, Union

from official_albert import files
from official_albert.tasks import common, squad

# The latter are the answers to each question of SQuAD.
Predictions = Union[
  common.ProbabilityTable, Mapping[str, squad.QuestionAnswers]
]


def _table_path(folder: str, split: str) -> str:
  return os.path.join(folder, f"{split}{common.PROBABILITIES_SUFFIX}")


def predicted_splits(folder: str) -> list[str]:
  """Returns the splits of which a folder has predictions, sorted."""
  found = []
  for name in files.list_dir(folder):
    if name.endswith(common.PROBABILITIES_SUFFIX):
      found.append(name.removesuffix(common.PROBABILITIES_SUFFIX))
    elif files.exists(os.path.join(folder, name, squad.NBEST_FILE)):
      found.append(name)
  return sorted(found)


def read_predictions(folder: str, split: str) -> Predictions:
  """Reads the predictions of a split."""
  table = _table_path(folder, split)
  if files.exists(table):
    return common.read_probabilities(table)
  return squad.read_answers(os.path.join(folder, split))


def average_predictions(
  members: Mapping[str, Predictions], split: str
) -> Predictions:
  """Returns the mean of a split's predictions; the keys are for messages."""
  tables, answers = {}, {}
  for name, predictions in members.items():
    if isinstance(predictions, common.ProbabilityTable):
      tables[f"{split} of {name}"] = predictions
    else:
      answers[name] = predictions
  if tables and answers:
    raise ValueError(
      f"{next(iter(tables))} has probabilities and {next(iter(answers))} "
      "answers of SQuAD: average models of one task."
    )
  if tables:
    return common.average_probabilities(tables)
  return squad.average_answers(list(answers.values()))


def write_predictions(
  folder: str,
  split: str,
  predictions: Predictions,
  null_score_diff_threshold: Optional[float] = None,
) -> list[str]:
  """Writes predictions where `read_predictions` finds them; returns the paths.

  Higher null odds of SQuAD 2.0 than the threshold mean no answer.
  """
  if not isinstance(predictions, common.ProbabilityTable):
    return squad.write_predictions(
      os.path.join(folder, split), predictions, null_score_diff_threshold
    )
  files.make_folder(folder)
  path = _table_path(folder, split)
  common.write_probabilities(path, predictions)
  return [path]
