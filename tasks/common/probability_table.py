"""What a model thinks of each example, as a table that people can read.

    id      prediction      entailment      not_entailment
    0       entailment      0.734375        0.265625

Tab-separated, one row an example: its id, the most probable label, and the
probability of each label. A regression's table ends with the prediction, which
is its number. Nine digits, so that a float32 is read as it was written.
`average` makes one table of several models'.
"""

from __future__ import annotations

import dataclasses
from typing import Mapping, Sequence

import numpy as np

from official_albert import files

PROBABILITIES_SUFFIX = ".probabilities.tsv"
_COLUMNS = ("id", "prediction")
# Rows of a float32 softmax miss 1 by 1e-6; this lets rounded ones pass too.
_SUM_TOLERANCE = 1e-3
# Labels that are as probable as each other to nine digits may change places.
_TIE_TOLERANCE = 1e-8


@dataclasses.dataclass(frozen=True, eq=False)
class ProbabilityTable:
  """Probabilities of labels, or the numbers of a regression.

  Attributes:
    ids: N, each of them once.
    labels: L, in the order of the columns; none for a regression.
    values: <float64>[N, L], rows sum up to 1; <float64>[N] for a regression.

  Raises (when made):
    ValueError: the parts do not fit together, or a text or number cannot
      stand in a table; the message names it.
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
    _check_values(self.ids, self.labels, self.values)

  @property
  def predictions(self) -> list[str]:
    """The most probable labels, the first one of equals; or the numbers."""
    if not self.labels:
      return [_number(value) for value in self.values]
    return [self.labels[i] for i in np.argmax(self.values, axis=1)]


def _check_names(kind: str, names: Sequence[str]) -> None:
  seen = set()
  for name in names:
    if not isinstance(name, str) or not name:
      raise ValueError(f"the {kind} {name!r} is no text.")
    if any(char in name for char in "\t\n\r"):
      raise ValueError(
        f"the {kind} {name!r} has a tab or a line break in it, which a table "
        "cannot hold: rename it."
      )
    if name in seen:
      raise ValueError(f"the {kind} {name!r} is there twice.")
    seen.add(name)


def _check_values(
  ids: Sequence[str], labels: Sequence[str], values: np.ndarray
) -> None:
  if not labels:
    is_bad = ~np.isfinite(values)
    reason = "is no finite number"
  else:
    is_probable = (values >= 0) & (values <= 1 + _SUM_TOLERANCE)
    sums = values.sum(axis=1)
    is_bad = ~is_probable.all(axis=1) | ~(np.abs(sums - 1) <= _SUM_TOLERANCE)
    reason = "are no probabilities that sum up to 1"
  if is_bad.any():
    row = int(np.argmax(is_bad))
    numbers = ", ".join(map(_number, np.atleast_1d(values[row])))
    raise ValueError(f"row {row + 1} (id {ids[row]!r}): {numbers} {reason}.")


def _number(value: float) -> str:
  return f"{value:.9g}"


def write_probabilities(path: str, table: ProbabilityTable) -> None:
  """Writes the table to a file.

  Raises:
    ValueError: the table has no rows.
    OSError: it cannot be written.
  """
  if not table.ids:
    raise ValueError(f"{path}: a table without rows says nothing.")
  lines = ["\t".join((*_COLUMNS, *table.labels))]
  for name, prediction, row in zip(table.ids, table.predictions, table.values):
    numbers = map(_number, row) if table.labels else ()
    lines.append("\t".join((name, prediction, *numbers)))
  files.write_text(path, "\n".join(lines) + "\n")


def read_probabilities(path: str) -> ProbabilityTable:
  """Reads what `write` wrote.

  Raises:
    OSError: there is no such file.
    ValueError: it is not such a table; the message says in which row, the
      header not counted.
  """
  with open(path, "rb") as file:
    data = file.read()
  try:
    lines = data.decode("utf-8").split("\n")
  except UnicodeDecodeError as error:
    raise ValueError(f"{path}: byte {error.start} is not UTF-8.") from error
  if lines.pop():
    raise ValueError(f"{path}: the last line is cut: write the table again.")
  header = lines[0].split("\t") if lines else []
  if tuple(header[:2]) != _COLUMNS:
    raise ValueError(
      f"{path} is no table of probabilities: its first line has to begin with "
      f"{' and '.join(_COLUMNS)}, separated by a tab."
    )
  if len(lines) == 1:
    raise ValueError(f"{path}: there are no rows below the header.")
  labels = header[2:]
  ids, predictions, values = [], [], []
  for number, line in enumerate(lines[1:], 1):
    fields = line.split("\t")
    if len(fields) != len(header):
      raise ValueError(
        f"{path} row {number}: {len(fields)} columns instead of {len(header)}."
      )
    try:
      numbers = [float(field) for field in fields[2 if labels else 1 :]]
    except ValueError as error:
      raise ValueError(f"{path} row {number}: {error}.") from error
    ids.append(fields[0])
    predictions.append(fields[1])
    values.append(numbers if labels else numbers[0])
  try:
    table = ProbabilityTable(tuple(ids), tuple(labels), np.array(values))
  except ValueError as error:
    raise ValueError(f"{path}: {error}") from error
  if labels:
    _check_predictions(path, table, predictions)
  return table


def _check_predictions(
  path: str, table: ProbabilityTable, predictions: Sequence[str]
) -> None:
  columns = {label: column for column, label in enumerate(table.labels)}
  for number, prediction in enumerate(predictions):
    row = table.values[number]
    if prediction not in columns:
      raise ValueError(
        f"{path} row {number + 1}: the prediction {prediction!r} is no label "
        "of the header."
      )
    if row[columns[prediction]] < row.max() - _TIE_TOLERANCE:
      raise ValueError(
        f"{path} row {number + 1}: the prediction {prediction!r} is not the "
        "most probable label."
      )


def average_probabilities(
  tables: Mapping[str, ProbabilityTable],
) -> ProbabilityTable:
  """The mean over models, each counting as much as any other.

  Averages the models' predictions as the paper does for GLUE and RACE (arXiv
  1909.11942, section on the state of the art; 6 to 17 checkpoints a task).

  Args:
    tables: by name, which messages use; of the same examples and labels.

  Raises:
    ValueError: no tables, or two of them differ in labels or ids; the message
      names the first difference.
  """
  if not tables:
    raise ValueError("no tables to average.")
  (first_name, first), *others = tables.items()
  for name, table in others:
    for kind, mine, theirs in (
      ("label", first.labels, table.labels),
      ("row", first.ids, table.ids),
    ):
      if mine != theirs:
        raise ValueError(
          f"{name} and {first_name} cannot be averaged: "
          f"{_first_difference(kind, theirs, mine)}."
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
