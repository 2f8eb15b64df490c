"""Tables of predicted probabilities.

    id      prediction      entailment      not_entailment
    0       entailment      0.734375        0.265625

A table is tab-separated, with one row for each example: its id, the most
probable label, and the probability of each label. The table of a regression has
only the id and the predicted number. Nine digits represent a float32 exactly.
"""

from __future__ import annotations

import dataclasses
from typing import Sequence

import numpy as np

from official_albert import files
from official_albert import labels as labels_lib
from official_albert.tasks.common import rows

PROBABILITIES_SUFFIX = ".probabilities.tsv"
_COLUMNS = ["id", "prediction"]
# The columns of texts in a table of tools.predict, after those of the labels.
INPUT_PREFIX = "input_"
_INPUTS = tuple(
  INPUT_PREFIX + role
  for role in ("text", "text_a", "text_b", "question", "options")
)
# Rows of a float32 softmax sum to 1 within 1e-6; rounded values are accepted.
_SUM_TOLERANCE = 1e-3


@dataclasses.dataclass(frozen=True, eq=False)
class ProbabilityTable:
  """Probabilities of labels, or the numbers of a regression.

  Attributes:
    ids: N unique ids.
    labels: L labels, in the order of the columns; none for a regression.
    values: <float64>[N, L], whose rows sum to 1; <float64>[N] for a regression.
  """

  ids: tuple[str, ...]
  labels: tuple[str, ...]
  values: np.ndarray

  def __post_init__(self):
    object.__setattr__(self, "ids", tuple(self.ids))
    object.__setattr__(self, "labels", tuple(self.labels))
    object.__setattr__(self, "values", np.array(self.values, np.float64))
    self.values.setflags(write=False)
    check_names("id", self.ids)
    check_names("label", self.labels)
    fits = np.isfinite(self.values)
    if self.labels:
      sums = self.values.sum(axis=1)
      fits = (self.values >= 0).all(axis=1)
      fits &= np.abs(sums - 1) <= _SUM_TOLERANCE
    if not fits.all():
      row = int(np.argmin(fits))
      wanted = "probabilities with the sum 1" if self.labels else "finite"
      raise ValueError(
        f"row {row + 1} (id {self.ids[row]!r}): {self.values[row]} is not "
        f"{wanted}."
      )

  @property
  def predictions(self) -> list[str]:
    """The most probable labels (the first of equal ones), or the numbers."""
    if not self.labels:
      return [_number(value) for value in self.values]
    return [self.labels[i] for i in np.argmax(self.values, axis=1)]


def check_names(kind: str, names: Sequence[str]) -> None:
  """Refuses names that are not unique or do not fit into a table."""
  seen = set()
  for name in names:
    if not name or name in seen or not labels_lib.fits_cell(name):
      raise ValueError(
        f"the {kind} {name!r} is empty, occurs twice, or contains a tab or a "
        "line break: rename it."
      )
    if kind == "label" and name in _INPUTS:
      raise ValueError(
        f"the label {name!r} is the name of a column of predictions: rename it."
      )
    seen.add(name)


def _number(value: float) -> str:
  return f"{value:.9g}"


def write_probabilities(path: str, table: ProbabilityTable) -> None:
  """Writes a table."""
  lines = ["\t".join((*_COLUMNS, *table.labels))]
  for name, prediction, row in zip(table.ids, table.predictions, table.values):
    numbers = map(_number, row) if table.labels else ()
    lines.append("\t".join((name, prediction, *numbers)))
  files.write_text(path, "\n".join(lines) + "\n")


def read_probabilities(path: str) -> ProbabilityTable:
  """Reads a table that `write_probabilities` or tools.predict wrote.

  The texts in a table of tools.predict are skipped.
  """
  lines = rows.read_tsv(path)
  _, header = next(lines, (1, []))
  if header[:2] != _COLUMNS:
    raise ValueError(
      f"{path} is not a table of probabilities: its first line must begin with "
      f"{' and '.join(_COLUMNS)}, separated by a tab."
    )
  end = len(header)
  while header[end - 1] in _INPUTS:
    end -= 1
  labels, ids, values = header[2:end], [], []
  for number, cells in lines:
    try:
      row = [float(cell) for cell in cells[2:end] or cells[1:2]]
      if len(cells) != len(header):
        raise ValueError(f"{len(cells)} columns instead of {len(header)}")
    except ValueError as error:
      raise ValueError(f"{path}, line {number}: {str(error)[:100]}.") from error
    ids.append(cells[0])
    values.append(row if labels else row[0])
  if not ids:
    raise ValueError(f"{path}: there are no rows below the header.")
  try:
    return ProbabilityTable(tuple(ids), tuple(labels), np.array(values))
  except ValueError as error:
    raise ValueError(f"{path}: {error}") from error
