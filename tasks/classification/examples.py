"""The labels of the user's own texts, and their weights."""

from __future__ import annotations

import math
import re
from typing import Iterable, Optional, Sequence, Union

import numpy as np

from official_albert import files
from official_albert import labels as labels_lib
from official_albert.tasks import common

# Of a row: one, several, or None if it is not known.
Label = Union[str, tuple[str, ...], None]
# What programs write for a missing label.
_MISSING = ("NaN", "<NA>", "#N/A", "NaT")
# Beside words, these may be words, too, in small letters ("nan" is Min Nan).
_PERHAPS_MISSING = ("nan", "na", "n/a", "none", "null", "undefined", "?", ".")


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


def _is_number(label: str) -> bool:
  try:
    return math.isfinite(float(label))
  except ValueError:
    return False


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
  missing = [x for x in labels if x in _MISSING]
  perhaps = [x for x in labels if x.lower() in _PERHAPS_MISSING]
  if all(map(_is_number, {*labels} - {*missing, *perhaps})):
    missing += perhaps
  # SNLI and MNLI have "-" for no label, and `datasets` -1 beside 0, 1, 2.
  if "-" in labels and "+" not in labels:
    missing.append("-")
  if {"-1", "0", "1", "2"} <= {*labels} and "-2" not in labels:
    missing.append("-1")
  if missing and {*labels} > {*missing}:
    problem = (
      f"the label {files.quote(missing[0])} beside the others means that none "
      "is known: leave out its rows, or rename it"
    )
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
