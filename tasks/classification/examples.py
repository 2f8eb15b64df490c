"""The rows of the user's own texts, and the classes in them.

Each split is a separate table (see `tasks/common/rows.py`).
"""

from __future__ import annotations

import json
import math
import re
from typing import Callable, Iterable, Mapping, Optional, Sequence, Union

import numpy as np

from official_albert import files
from official_albert import labels as labels_lib
from official_albert.tasks import common
from official_albert.tasks.common import TextExample


class ExampleList(common.DiskList):
  """Examples, on the disk if they are many."""

  def encode(self, value: TextExample) -> bytes:
    return json.dumps([*vars(value).values()]).encode()

  def decode(self, content: bytes) -> TextExample:
    guid, text_a, text_b, label, where = json.loads(content)
    label = tuple(label) if isinstance(label, list) else label
    return TextExample(guid, text_a, text_b, label, where)


# Of a row: one, several, or None if it is not known.
Label = Union[str, tuple[str, ...], None]


def read_label(
  record: common.Record,
  column: str,
  labels: Optional[Sequence[str]] = None,
  is_regression: bool = False,
) -> str:
  """Returns the label of a row, which must be among `labels` if given.

  Of a regression, it must be a finite number.
  """
  if isinstance(record.cells[column], list):
    raise common.InvalidRow(
      record.where,
      f": {column!r} is a list",
      f", but {labels_lib.NO_MULTI_LABEL}.",
    )
  label = common.plain_cell(record, column).strip()
  if is_regression or labels is not None:
    common.check_label(record.where, label, labels)
  return label


def read_examples(
  path: str,
  columns: Mapping[str, str],
  label_columns: Sequence[str] = (),
  label_of: Callable[[common.Record], Label] = lambda record: None,
  may_lack_labels: bool = False,
  invalid: Optional[common.InvalidRows] = None,
) -> ExampleList:
  """Reads the examples of tables, see `common.read_table`.

  `columns` maps the roles `text`, and optionally `text_b` and `id`, to names of
  columns. Without `id`, rows are numbered from 0. `label_of` returns the label
  of a row that has `label_columns`. With `may_lack_labels`, none of the labels
  may be valid; then all are None. Other invalid rows are left to `invalid`.
  """
  examples = ExampleList()
  invalid = invalid or common.InvalidRows()
  unlabeled = common.InvalidRows(may_lack_labels)
  names = [*columns.values(), *label_columns]
  for number, record in enumerate(common.read_table(path, names, invalid)):
    guid, label, text_b = str(number), None, None
    with invalid:
      if "text_b" in columns:
        text_b = common.text_cell(record, columns["text_b"])
      if "id" in columns:
        guid = common.plain_cell(record, columns["id"])
      text_a = common.text_cell(record, columns["text"])
      with unlabeled:
        label = label_of(record) if label_columns else None
      found = common.TextExample(guid, text_a, text_b, label, record.where)
      examples.append(found)
  if not examples:
    raise ValueError(f"{path} has no valid row; the first: {invalid.first}")
  if 0 < unlabeled.count < len(examples):
    if not invalid.may_skip:
      raise ValueError(
        f"{unlabeled.first} Correct the {unlabeled.count:,} rows of this kind, "
        "or leave out the column of the labels to predict without metrics."
      )
    invalid.found |= unlabeled.found
    examples = ExampleList(x for x in examples if x.label is not None)
  return examples


def read_weights(text: str, labels: Sequence[str]) -> np.ndarray:
  """Returns the weights <float32>[L] of `LABEL=WEIGHT,...`; 1 is not named."""
  weights: dict[str, float] = {}
  for part in text.split(","):
    label, _, number = part.rpartition("=")
    try:
      weight = float(number)
    except ValueError:
      weight = math.nan
    is_new = label in labels and label not in weights
    if not is_new or not 1e-9 <= weight <= 1e9:
      raise ValueError(
        f"--class_weights has {part!r}, but takes balanced or LABEL=WEIGHT,... "
        f"of {files.quote(*labels)}, each once, with weights from 1e-9 to 1e9."
      )
    weights[label] = weight
  return np.array([weights.get(x, 1.0) for x in labels], np.float32)


def find_labels(
  found: Iterable[str], path: str, but: str = labels_lib.NO_MULTI_LABEL
) -> tuple[str, ...]:
  """Returns the classes of training examples in the order of the outputs.

  `found` are their labels.
  They are sorted alphabetically, or by value if all are integers. There must be
  at least two, with names that fit into a cell of a table. `path` is the file
  of the examples, and `but` says why no label is a list, for messages.
  """
  labels = sorted({*found})
  problem = ""
  if len(labels) < 2:
    problem = (
      "the training data must have at least two labels, it has "
      f"{files.quote(*labels)}"
    )
  for label in labels:
    number = re.sub(r"^([+-]?[0-9]+)\.0+$", r"\1", label)
    if number != label and number in labels:
      problem = (
        f"the labels {files.quote(number, label)} are the same number: write "
        "it in one way"
      )
    if not labels_lib.fits_cell(label):
      problem = f"the label {label!r} has a tab or a line break: rename it"
    elif labels_lib.are_several(label, labels):
      problem = f"the label {files.quote(label)} is a list of labels, but {but}"
  if problem:
    raise ValueError(f"{path}: {problem}.")
  if all(re.fullmatch("[+-]?[0-9]+", label) for label in labels):
    labels.sort(key=int)
  return tuple(labels)
