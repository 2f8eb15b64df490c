"""Tables of predicted probabilities.

    id      prediction      entailment      not_entailment
    0       entailment      0.734375        0.265625

A table is tab-separated, with one row for each example: its id, the most
probable label, and the probability of each label. The table of a regression has
only the id and the predicted number. Nine digits represent a float32 exactly.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Mapping, Sequence

import numpy as np

from official_albert import files
from tasks.common import rows

PROBABILITIES_SUFFIX = ".probabilities.tsv"
_COLUMNS = ["id", "prediction"]
# Rows of a float32 softmax sum to 1 within 1e-6; rounded values are accepted.
_SUM_TOLERANCE = 1e-3


@dataclasses.dataclass(frozen=True, eq=False)
class ProbabilityTable:
  """Probabilities of labels, or the numbers of a regression.

  Attributes:
    ids: N unique ids.
    labels: L labels, in the order of the columns; none for a regression.
    values: <float64>[N, L], whose rows sum to 1; <float64>[N] for a regression.

  Raises (in the constructor):
    ValueError: a name is empty, not unique, or contains a tab or a line break;
      or values are not probabilities or not finite.
  """

  ids: tuple[str, ...]
  labels: tuple[str, ...]
  values: np.ndarray

  def __post_init__(self):
    object.__setattr__(self, "ids", tuple(self.ids))
    object.__setattr__(self, "labels", tuple(self.labels))
    object.__setattr__(self, "values", np.array(self.values, np.float64))
    self.values.setflags(write=False)
    for kind, names in (("id", self.ids), ("label", self.labels)):
      seen = set()
      for name in names:
        if not name or name in seen or set(name) & set("\t\n\r"):
          raise ValueError(
            f"the {kind} {name!r} is empty, occurs twice, or contains a tab or "
            "a line break: rename it."
          )
        seen.add(name)
    if self.labels:
      fits = (self.values >= 0).all(axis=1)
      fits &= np.abs(self.values.sum(axis=1) - 1) <= _SUM_TOLERANCE
    else:
      fits = np.isfinite(self.values)
    if not fits.all():
      row = int(np.argmin(fits))
      numbers = ", ".join(map(_number, np.atleast_1d(self.values[row])))
      raise ValueError(
        f"row {row + 1} (id {self.ids[row]!r}): {numbers} "
        + (
          "are not probabilities with the sum 1."
          if self.labels
          else "is not finite."
        )
      )

  @property
  def predictions(self) -> list[str]:
    """The most probable labels (the first of equal ones), or the numbers."""
    if not self.labels:
      return [_number(value) for value in self.values]
    return [self.labels[i] for i in np.argmax(self.values, axis=1)]


def _number(value: float) -> str:
  return f"{value:.9g}"


def write_probabilities(path: str, table: ProbabilityTable) -> None:
  """Writes a table."""
  lines = ["\t".join((*_COLUMNS, *table.labels))]
  for name, prediction, row in zip(table.ids, table.predictions, table.values):
    numbers = map(_number, row) if table.labels else ()
    lines.append("\t".join((name, prediction, *numbers)))
  files.write_text(path, "\n".join(lines) + "\n")


def write_table(
  folder: str,
  split: str,
  ids: Sequence[str],
  labels: Sequence[str],
  values: np.ndarray,
) -> list[str]:
  """Writes `SPLIT.probabilities.tsv` of a task; returns its path in a list."""
  path = os.path.join(folder, split + PROBABILITIES_SUFFIX)
  write_probabilities(path, ProbabilityTable(ids, labels, values))
  return [path]


def read_probabilities(path: str) -> ProbabilityTable:
  """Reads a table that `write_probabilities` wrote.

  Raises:
    ValueError: the file is not such a table.
  """
  lines = rows.read_tsv(path)
  _, header = next(lines, (1, []))
  if header[:2] != _COLUMNS:
    raise ValueError(
      f"{path} is not a table of probabilities: its first line must begin with "
      f"{' and '.join(_COLUMNS)}, separated by a tab."
    )
  ids, values = [], []
  for number, cells in lines:
    where = f"{path}, line {number}"
    if len(cells) != len(header):
      raise ValueError(
        f"{where}: {len(cells)} columns instead of {len(header)}."
      )
    try:
      row = [float(cell) for cell in cells[2:] or cells[1:]]
    except ValueError as error:
      raise ValueError(f"{where}: {error}.") from error
    ids.append(cells[0])
    values.append(row if header[2:] else row[0])
  if not ids:
    raise ValueError(f"{path}: there are no rows below the header.")
  try:
    return ProbabilityTable(tuple(ids), tuple(header[2:]), np.array(values))
  except ValueError as error:
    raise ValueError(f"{path}: {error}") from error


def average_probabilities(
  tables: Mapping[str, ProbabilityTable],
) -> ProbabilityTable:
  """Returns the mean of the tables of several models.

  The keys of `tables` are names for messages. arXiv 1909.11942 averages
  predictions like this for GLUE and RACE.

  Raises:
    ValueError: labels or ids differ.
  """
  (first_name, first), *others = tables.items()
  for name, table in others:
    for kind, left, right in (
      ("label", table.labels, first.labels),
      ("row", table.ids, first.ids),
    ):
      if left != right:
        raise ValueError(
          f"{name} and {first_name} cannot be averaged: "
          f"{_first_difference(kind, left, right)}."
        )
  values = [table.values for table in tables.values()]
  return ProbabilityTable(first.ids, first.labels, np.mean(values, axis=0))


def _first_difference(
  kind: str, left: Sequence[str], right: Sequence[str]
) -> str:
  for number, (one, other) in enumerate(zip(left, right), 1):
    if one != other:
      return f"{kind} {number} is {one!r} in one and {other!r} in the other"
  return f"one has {len(left)} {kind}s and the other {len(right)}"
