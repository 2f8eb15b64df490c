"""The user's own texts, or pairs of them, with a class or a number each.

Each split is a file of its own with named columns (see `tables`). The classes
are those of the training file, or those that the caller knows. The recipes and
the metrics of such texts are here too.
"""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any, Mapping, Optional, Sequence

import numpy as np

from tasks import common
from tasks.classification import tables


@dataclasses.dataclass(frozen=True)
class Recipe:
  """How to fine-tune on one's own texts, for which no table has settings.

  Rate, batch and dropouts are the paper's (arXiv 1909.11942, Table 14) most
  frequent ones for single sentences and pairs; 128 tokens, because most texts
  that people classify are no longer, and attention costs a quarter of 512.

  Attributes:
    learning_rate: the peak, of AdamW.
    train_batch_size: examples in one update.
    num_train_epochs: passes over the training data, a tenth of them with a
      rising rate.
    albert_dropout: of hidden states and attention, within the encoder.
    classifier_dropout: of the pooled output.
    max_seq_length: tokens of an example at most, special ones included.
  """

  learning_rate: float = 2e-5
  train_batch_size: int = 32
  num_train_epochs: float = 3.0
  albert_dropout: float = 0.0
  classifier_dropout: float = 0.1
  max_seq_length: int = 128


RECIPES: Mapping[str, Recipe] = {
  "text_classification": Recipe(),
  "text_regression": Recipe(),
  "text_pair_classification": Recipe(),
  "text_pair_regression": Recipe(),
}


@dataclasses.dataclass(frozen=True)
class Columns:
  """Which columns of the user's files hold what.

  Attributes:
    text: the text.
    text_b: the second text of a pair; None if texts stand alone.
    label: class or number; None if nobody knows.
    guid: what rows are called in predictions; None for numbers from 0.

  Raises (when made):
    ValueError: a column is named twice, or has no name.
  """

  text: str = "text"
  text_b: Optional[str] = None
  label: Optional[str] = "label"
  guid: Optional[str] = None

  def __post_init__(self):
    names = self.names
    if not all(names):
      raise ValueError("the name of a column is empty.")
    twice = [name for name in names if names.count(name) > 1]
    if twice:
      raise ValueError(
        f"column {twice[0]!r} is named for two things: text, second text, "
        "label and id are columns of their own."
      )

  @property
  def names(self) -> tuple[str, ...]:
    values = dataclasses.astuple(self)
    return tuple(name for name in values if name is not None)


def read_examples(
  path: str,
  columns: Columns,
  labels: Optional[Sequence[str]] = None,
  regression: bool = False,
) -> list[common.TextExample]:
  """The examples of one file.

  Args:
    path: TSV, CSV or JSON lines.
    columns: what is where; with `label` None no label is read, so that a file
      to predict needs none.
    labels: the classes that are known, as those of the training file are when
      the others are read; None takes all.
    regression: labels are finite numbers.

  Raises:
    OSError: the file can't be opened.
    ValueError: see `tables.read_table`; or a text is empty or no text, a label
      missing, unknown, or no finite number. The message says file and line.
  """
  examples = []
  for record in tables.read_table(path, columns.names):
    label = None
    if columns.label is not None:
      label = _label(record, columns.label)
      if regression:
        _check_number(record, columns.label, label)
      elif labels is not None and label not in labels:
        raise ValueError(
          f"{record.where}: unknown label {label!r}; the known ones are "
          f"{', '.join(labels)}."
        )
    examples.append(
      common.TextExample(
        guid=str(len(examples))
        if columns.guid is None
        else plain_cell(record, columns.guid),
        text_a=text_cell(record, columns.text),
        text_b=None
        if columns.text_b is None
        else text_cell(record, columns.text_b),
        label=label,
      )
    )
  return examples


def find_labels(
  examples: Sequence[common.TextExample],
) -> tuple[str, ...]:
  """The classes of training examples, the order of the head's outputs.

  Sorted, by value if all are integers ("2" before "10").

  Raises:
    ValueError: there are fewer than two.
  """
  labels = {e.label for e in examples if e.label is not None}
  if len(labels) < 2:
    found = ", ".join(sorted(labels)) or "none"
    raise ValueError(
      f"the training file must have at least two labels, it has {found}."
    )
  if all(re.fullmatch("[+-]?[0-9]+", label) for label in labels):
    return tuple(sorted(labels, key=lambda label: (int(label), label)))
  return tuple(sorted(labels))


def text_cell(record: tables.Record, column: str) -> str:
  """The text of a column.

  Raises:
    ValueError: it is empty or no text; the message says file and line.
  """
  value = record.cells[column]
  if not isinstance(value, str):
    raise ValueError(
      f"{record.where}: {column!r} must be text, got {value!r:.40}."
    )
  if not value.strip():
    raise ValueError(f"{record.where}: {column!r} is empty.")
  try:
    value.encode("utf-8")
  except UnicodeEncodeError as error:
    # JSON may have one half of a pair, "\ud83d", that stands for nothing.
    raise ValueError(
      f"{record.where}: {column!r} has half a character, "
      f"{value[error.start]!a}."
    ) from error
  return value


def plain_cell(record: tables.Record, column: str) -> str:
  """A label or an id as text: JSON also has numbers, true and false.

  Raises:
    ValueError: it is empty or none of these.
  """
  value: Any = record.cells[column]
  if isinstance(value, bool):
    return "true" if value else "false"
  if isinstance(value, (int, float)):
    return str(value)
  if value is None or value == "":
    raise ValueError(f"{record.where}: {column!r} is empty.")
  return text_cell(record, column)


def _label(record: tables.Record, column: str) -> str:
  return plain_cell(record, column).strip()


def _check_number(record: tables.Record, column: str, label: str) -> None:
  try:
    value = float(label)
  except ValueError:
    value = math.nan
  if not math.isfinite(value):
    raise ValueError(
      f"{record.where}: {column!r} must be a finite number, got {label!r}."
    )


# Of these, the one that chooses the best checkpoint.
MAIN_CLASSIFICATION = "accuracy"
MAIN_REGRESSION = "pearson"


def of_classes(
  predictions: np.ndarray, labels: np.ndarray, num_classes: int
) -> dict[str, float]:
  """Accuracy and macro F1; of two classes Matthews' correlation too.

  Args:
    predictions: classes <int>[N].
    labels: the right ones <int>[N].
    num_classes: how many there are.
  """
  values = {
    "accuracy": common.accuracy(predictions, labels),
    "macro_f1": common.macro_f1(predictions, labels),
  }
  if num_classes == 2:
    values["matthews"] = common.matthews(predictions, labels)
  return values


def of_numbers(predictions: np.ndarray, labels: np.ndarray) -> dict[str, float]:
  """Pearson and Spearman correlation, and the mean squared error.

  Args:
    predictions: <float>[N].
    labels: the right ones <float>[N].
  """
  return {
    "pearson": common.pearson(predictions, labels),
    "spearman": common.spearman(predictions, labels),
    "mean_squared_error": common.mean_squared_error(predictions, labels),
  }
