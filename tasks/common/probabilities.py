"""Tables of predicted probabilities, which are TSV files."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from typing import Optional, Sequence

import numpy as np

from official_albert import files
from official_albert import labels as labels_lib
from official_albert.tasks.common import rows

PROBABILITIES_SUFFIX = ".probabilities.tsv"
_COLUMNS = ["id", "prediction"]


@dataclasses.dataclass(frozen=True, eq=False)
class ProbabilityTable:
  """Probabilities of labels, or the numbers of a regression.

      id      prediction      entailment      not_entailment
      0       entailment      0.734375        0.265625

  A file has a row for each example: its id, the most probable label, and the
  probability of each label; of a regression, only the id and the number. Nine
  digits represent a float32 exactly.

  Attributes:
    ids: N unique ids.
    labels: L labels, in the order of the columns; none for a regression.
    values: <float>[N, L], whose rows sum to 1, unless a text may have several
      labels; <float>[N] for a regression.
    thresholds: for several labels, the least probability of each; else None.
  """

  ids: tuple[str, ...]
  labels: tuple[str, ...]
  values: np.ndarray
  thresholds: Optional[np.ndarray] = None

  @property
  def predictions(self) -> list[str]:
    """The most probable labels (the first of equal ones), or the numbers.

    Several labels are joined by commas.
    """
    if self.thresholds is not None:
      chosen = self.values >= self.thresholds
      return [",".join(itertools.compress(self.labels, row)) for row in chosen]
    if not self.labels:
      return [f"{value:.9g}" for value in self.values]
    return [self.labels[i] for i in np.argmax(self.values, axis=1)]


def check_ids(split: str, names: Sequence[str]) -> None:
  """Refuses ids that are not unique or do not fit into a table."""
  for name, count in collections.Counter(names).items():
    if not name or count > 1 or not labels_lib.fits_cell(name):
      raise ValueError(
        f"the {split} id {name!r} is empty, occurs twice, or contains a tab or "
        "a line break: rename it."
      )


def write_probabilities(path: str, table: ProbabilityTable) -> None:
  """Writes a table."""
  lines = ["\t".join((*_COLUMNS, *table.labels))]
  for name, prediction, row in zip(table.ids, table.predictions, table.values):
    numbers = [f"{value:.9g}" for value in row] if table.labels else []
    lines.append("\t".join((name, prediction, *numbers)))
  files.write_text(path, "\n".join(lines) + "\n")


def read_probabilities(path: str) -> ProbabilityTable:
  """Reads a table that `write_probabilities` or tools.predict wrote."""
  (_, header), *lines = rows.read_tsv(path)
  labels = tuple(header[2:])
  numbers = slice(2, 2 + len(labels)) if labels else slice(1, 2)
  try:
    values = np.array([cells[numbers] for _, cells in lines], np.float64)
    values = values.reshape(len(lines), *([len(labels)] if labels else []))
  except ValueError:
    values = np.zeros(0)
  is_valid = len(values) > 0 and np.isfinite(values).all()
  if header[:2] != _COLUMNS or not is_valid:
    raise ValueError(
      f"{path} is not a table of probabilities: it must have the columns "
      f"{', '.join(_COLUMNS)} and one for each label, and rows of numbers."
    )
  return ProbabilityTable(tuple(x[0] for _, x in lines), labels, values)
