"""Tables of predicted probabilities.

    id      prediction      entailment      not_entailment
    0       entailment      0.734375        0.265625

A table is tab-separated with one row for each example: its id, the most
probable label, and the probability of each label. The table of a regression has
the predicted number in place of the label, and no other columns. Nine digits
represent a float32 exactly.
"""

from __future__ import annotations

import dataclasses
from typing import Mapping, Sequence

import numpy as np

from official_albert import files

PROBABILITIES_SUFFIX = ".probabilities.tsv"
_COLUMNS = ("id", "prediction")
# Rows of a float32 softmax sum to 1 within 1e-6; rounded ones are accepted too.
_SUM_TOLERANCE = 1e-3
# Labels whose probabilities agree to nine digits may swap.
_TIE_TOLERANCE = 1e-8


@dataclasses.dataclass(frozen=True, eq=False)
class ProbabilityTable:
  """Probabilities of labels, or the numbers of a regression.

  Attributes:
    ids: N unique ids.
    labels: L labels, in the order of the columns; none for a regression.
    values: <float64>[N, L], whose rows sum to 1; <float64>[N] for a regression.

  Raises (when made):
    ValueError: shapes differ, a name is not unique or contains a tab or a line
      break, or values are not probabilities or not finite.
  """

  ids: tuple[str, ...]
  labels: tuple[str, ...]
  values: np.ndarray

  def __post_init__(self):
    object.__setattr__(self, "ids", tuple(self.ids))
    object.__setattr__(self, "labels", tuple(self.labels))
    object.__setattr__(self, "values", np.array(self.values, np.float64))
    self.values.setflags(write=False)
    _check_names("id", self.ids)
    _check_names("label", self.labels)
    shape = (len(self.ids), len(self.labels))
    if self.values.shape != (shape if self.labels else shape[:1]):
      raise ValueError(
        f"a table of {shape[0]} ids and {shape[1]} labels cannot have values "
        f"of shape {self.values.shape}."
      )
    if not self.labels:
      is_bad = ~np.isfinite(self.values)
      problem = "is not finite"
    else:
      in_range = (self.values >= 0) & (self.values <= 1 + _SUM_TOLERANCE)
      sums = self.values.sum(axis=1)
      is_bad = ~in_range.all(axis=1) | ~(np.abs(sums - 1) <= _SUM_TOLERANCE)
      problem = "are not probabilities with the sum 1"
    if is_bad.any():
      row = int(np.argmax(is_bad))
      numbers = ", ".join(map(_number, np.atleast_1d(self.values[row])))
      raise ValueError(
        f"row {row + 1} (id {self.ids[row]!r}): {numbers} {problem}."
      )

  @property
  def predictions(self) -> list[str]:
    """The most probable labels, the first of equal ones; or the numbers."""
    if not self.labels:
      return [_number(value) for value in self.values]
    return [self.labels[i] for i in np.argmax(self.values, axis=1)]


def _check_names(kind: str, names: Sequence[str]) -> None:
  seen = set()
  for name in names:
    if not isinstance(name, str) or not name:
      raise ValueError(f"the {kind} {name!r} is not a non-empty text.")
    if any(char in name for char in "\t\n\r"):
      raise ValueError(
        f"the {kind} {name!r} contains a tab or a line break: rename it."
      )
    if name in seen:
      raise ValueError(f"the {kind} {name!r} occurs twice.")
    seen.add(name)


def _number(value: float) -> str:
  return f"{value:.9g}"


def write_probabilities(path: str, table: ProbabilityTable) -> None:
  """Writes a table.

  Raises:
    ValueError: the table has no rows.
    OSError: the file cannot be written.
  """
  if not table.ids:
    raise ValueError(f"{path}: the table has no rows.")
  lines = ["\t".join((*_COLUMNS, *table.labels))]
  for name, prediction, row in zip(table.ids, table.predictions, table.values):
    numbers = map(_number, row) if table.labels else ()
    lines.append("\t".join((name, prediction, *numbers)))
  files.write_text(path, "\n".join(lines) + "\n")


def read_probabilities(path: str) -> ProbabilityTable:
  """Reads a table that `write_probabilities` wrote.

  Raises:
    OSError: the file cannot be read.
    ValueError: it is not such a table. Messages count rows from 1, without the
      header.
  """
  with open(path, "rb") as file:
    data = file.read()
  try:
    lines = data.decode("utf-8").split("\n")
  except UnicodeDecodeError as error:
    raise ValueError(f"{path}: byte {error.start} is not UTF-8.") from error
  if lines.pop():
    raise ValueError(
      f"{path}: the last line has no end: write the table again."
    )
  header = lines[0].split("\t") if lines else []
  if tuple(header[:2]) != _COLUMNS:
    raise ValueError(
      f"{path} is not a table of probabilities: its first line must begin with "
      f"{' and '.join(_COLUMNS)}, separated by a tab."
    )
  if len(lines) == 1:
    raise ValueError(f"{path}: there are no rows below the header.")
  labels = header[2:]
  ids, values = [], []
  for number, line in enumerate(lines[1:], 1):
    where = f"{path} row {number}"
    cells = line.split("\t")
    if len(cells) != len(header):
      raise ValueError(
        f"{where}: {len(cells)} columns instead of {len(header)}."
      )
    try:
      numbers = [float(cell) for cell in cells[2 if labels else 1 :]]
    except ValueError as error:
      raise ValueError(f"{where}: {error}.") from error
    if labels:
      _check_prediction(where, cells[1], dict(zip(labels, numbers)))
    ids.append(cells[0])
    values.append(numbers if labels else numbers[0])
  try:
    return ProbabilityTable(tuple(ids), tuple(labels), np.array(values))
  except ValueError as error:
    raise ValueError(f"{path}: {error}") from error


def _check_prediction(
  where: str, prediction: str, probabilities: Mapping[str, float]
) -> None:
  if prediction not in probabilities:
    raise ValueError(
      f"{where}: the prediction {prediction!r} is not a label of the header."
    )
  best = max(probabilities.values())
  if probabilities[prediction] < best - _TIE_TOLERANCE:
    raise ValueError(
      f"{where}: the prediction {prediction!r} is not the most probable label."
    )


def average_probabilities(
  tables: Mapping[str, ProbabilityTable],
) -> ProbabilityTable:
  """Returns the mean over models.

  arXiv 1909.11942 averages predictions like this for GLUE and RACE.

  Args:
    tables: of the same examples and labels, by a name for messages.

  Raises:
    ValueError: there are no tables, or their labels or ids differ.
  """
  if not tables:
    raise ValueError("there are no tables to average.")
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
