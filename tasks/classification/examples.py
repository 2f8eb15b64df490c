"""The rows, records and metrics for classifying the user's own texts.

Each split is a separate table (see `tasks/common/rows.py`). The classes are
those of the training data. GLUE uses the same records.

Reference: google-research/albert classifier_utils.py (convert_single_example).
"""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any, Callable, Iterator, Mapping, Optional, Sequence

import numpy as np

import tfrecords
from official_albert import tokenization
from tasks import common

# This package also exports the readers of rows.
from tasks.common import (
  MissingColumnError,  # noqa: F401
  Record,
  TextExample,
  plain_cell,
  read_table,
  text_cell,
)

# Examples that are tokenized together.
_BLOCK = 512


@dataclasses.dataclass(frozen=True)
class Recipe:
  """The settings of fine-tuning on the user's own texts; see `common.Recipe`.

  Rate, batch and dropouts are the most frequent ones for sentences and pairs in
  arXiv 1909.11942, Table 14. 128 tokens are enough for most classified texts,
  and need a quarter of the attention of 512.

  Attributes:
    num_train_epochs: passes over the training data. The rate rises during the
      first tenth.
  """

  learning_rate: float = 2e-5
  train_batch_size: int = 32
  num_train_epochs: float = 3.0
  albert_dropout: float = 0.0
  classifier_dropout: float = 0.1
  max_seq_length: int = 128


RECIPES: Mapping[str, Recipe] = dict.fromkeys(
  (
    "text_classification",
    "text_regression",
    "text_pair_classification",
    "text_pair_regression",
  ),
  Recipe(),
)
# The metrics that choose the best checkpoint.
MAIN_CLASSIFICATION = "accuracy"
MAIN_REGRESSION = "pearson"


@dataclasses.dataclass(frozen=True)
class Columns:
  """The columns of a table.

  Attributes:
    text: the text.
    text_b: the second text of a pair; None for single texts.
    label: the class or the number; None if unknown.
    guid: the ids for predictions; None numbers the rows from 0.

  Raises (in the constructor):
    ValueError: a name is empty or used twice.
  """

  text: str = "text"
  text_b: Optional[str] = None
  label: Optional[str] = "label"
  guid: Optional[str] = None

  def __post_init__(self):
    if not all(self.names):
      raise ValueError("the name of a column is empty.")
    for name in self.names:
      if self.names.count(name) > 1:
        raise ValueError(
          f"column {name!r} has two roles: text, second text, label and id "
          "must be different columns."
        )

  @property
  def names(self) -> tuple[str, ...]:
    """The names of all columns to read."""
    return tuple(n for n in dataclasses.astuple(self) if n is not None)


def read_examples(
  path: str,
  columns: Columns,
  labels: Optional[Sequence[str]] = None,
  regression: bool = False,
) -> list[TextExample]:
  """Reads the examples of a file of TSV, CSV or JSON lines.

  Args:
    path: the file.
    columns: the columns; without `label`, labels are neither read nor needed.
    labels: the known classes; None accepts all.
    regression: whether labels must be finite numbers.

  Raises:
    ValueError: see `read_table`; or a text is empty or not a string, or a label
      is missing, unknown or not a finite number. The message names file and
      line.
  """
  examples = []
  for number, record in enumerate(read_table(path, columns.names)):
    label = guid = text_b = None
    if columns.label is not None:
      label = plain_cell(record, columns.label).strip()
      if regression:
        _check_number(record, columns.label, label)
      elif labels is not None and label not in labels:
        raise ValueError(
          f"{record.where}: unknown label {label!r}; the known ones are "
          f"{', '.join(labels)}."
        )
    if columns.text_b is not None:
      text_b = text_cell(record, columns.text_b)
    if columns.guid is not None:
      guid = plain_cell(record, columns.guid)
    text_a = text_cell(record, columns.text)
    examples.append(TextExample(guid or str(number), text_a, text_b, label))
  return examples


def _check_number(record: Record, column: str, label: str) -> None:
  try:
    value = float(label)
  except ValueError:
    value = math.nan
  if not math.isfinite(value):
    raise ValueError(
      f"{record.where}: {column!r} must be a finite number, got {label!r}."
    )


def find_labels(examples: Sequence[TextExample]) -> tuple[str, ...]:
  """Returns the classes of training examples in the order of the outputs.

  They are sorted alphabetically, or by value if all are integers.

  Raises:
    ValueError: there are fewer than two classes.
  """
  labels = sorted({e.label for e in examples if e.label is not None})
  if len(labels) < 2:
    raise ValueError(
      "the training data must have at least two labels, it has "
      f"{', '.join(labels) or 'none'}."
    )
  if all(re.fullmatch("[+-]?[0-9]+", label) for label in labels):
    labels.sort(key=int)
  return tuple(labels)


def make_features(
  examples: Sequence[TextExample],
  tokenizer: tokenization.Tokenizer,
  max_seq_length: int,
  labels: Optional[Sequence[str]],
) -> Iterator[dict[str, Any]]:
  """Yields the features of `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`.

  A sequence that is too long loses tokens at the end of the longer text. An
  example without a label gets label 0.
  """
  class_of = {label: i for i, label in enumerate(labels or ())}
  for begin in range(0, len(examples), _BLOCK):
    block = examples[begin : begin + _BLOCK]
    firsts = tokenizer.encode_batch([e.text_a for e in block])
    seconds = iter(
      tokenizer.encode_batch([e.text_b for e in block if e.text_b is not None])
    )
    for number, (example, ids_a) in enumerate(zip(block, firsts), begin):
      ids, segments = tokenization.pack_pair(
        ids_a,
        next(seconds) if example.text_b is not None else None,
        max_seq_length,
        tokenizer.cls_id,
        tokenizer.sep_id,
      )
      label = 0
      if example.label is not None:
        label = class_of[example.label] if labels else float(example.label)
      yield {
        "input_ids": ids,
        "segment_ids": segments,
        "example_id": number,
        "label_ids": label,
      }


def build_records(
  cache_dir: str,
  task: str,
  split: str,
  examples: Sequence[TextExample],
  sources: Sequence[str],
  tokenizer: tokenization.Tokenizer,
  max_seq_length: int,
  labels: Optional[Sequence[str]],
  note: Callable[[str], None] = lambda text: None,
  **settings: Any,
) -> str:
  """Writes the records of a split unless they exist; returns their folder.

  Without `labels`, the task is a regression. `settings` lists everything else
  that the examples depend on, such as names of columns; see also
  `common.build_records`.
  """
  if labels is None:
    schema = tfrecords.regression_schema(max_seq_length)
  else:
    labels = list(labels)
    schema = tfrecords.classification_schema(max_seq_length)
  return common.build_records(
    cache_dir,
    task,
    tokenizer,
    max_seq_length,
    schema,
    {"labels": labels, **settings},
    split,
    sources,
    lambda: make_features(examples, tokenizer, max_seq_length, labels),
    note,
  )


def of_classes(
  predictions: np.ndarray, labels: np.ndarray, num_classes: int
) -> dict[str, float]:
  """Returns accuracy and macro F1 of predictions and labels, <int>[N] each.

  For two classes, they include Matthews' coefficient.
  """
  values = {
    "accuracy": common.accuracy(predictions, labels),
    "macro_f1": common.macro_f1(predictions, labels),
  }
  if num_classes == 2:
    values["matthews"] = common.matthews(predictions, labels)
  return values


def of_numbers(predictions: np.ndarray, labels: np.ndarray) -> dict[str, float]:
  """Returns both correlations and the mean squared error of two <float>[N]."""
  return {
    "pearson": common.pearson(predictions, labels),
    "spearman": common.spearman(predictions, labels),
    "mean_squared_error": common.mean_squared_error(predictions, labels),
  }
