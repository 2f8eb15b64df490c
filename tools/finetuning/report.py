"""A report of each class, and which classes are confused, as files."""

from __future__ import annotations

import os
import warnings
from typing import Any, Sequence

import numpy as np

from official_albert import files
from official_albert.tools.cli import printing

_COLUMNS = ("precision", "recall", "f1", "support")
_MOST_NUMBERS = 30  # Classes of a figure with numbers.


def write(
  folder: str,
  split: str,
  labels: Sequence[str],
  gold: np.ndarray,
  predicted: np.ndarray,
) -> None:
  """Writes the report of a split.

  `classification_report.SPLIT.txt` is a table of precision, recall, F1 and the
  number of examples, by class; 0 / 0 is 0. The `.json` has also the confusion
  matrix, with a row for each correct class, and `confusion_matrix.SPLIT.png`
  draws it. Where each class is decided on its own, there is a row for all
  decisions, and a matrix for each class, without and with it, and no figure.

  Args:
    folder: of the files.
    split: the name of the split.
    labels: the names of the classes.
    gold: the correct classes <int>[N], or 0 and 1 of each class [N, L].
    predicted: the same of the predictions.
  """
  several, classes = gold.ndim > 1, np.arange(len(labels))
  right, found = (
    x > 0 if several else x[:, None] == classes for x in (gold, predicted)
  )
  hits, found, right = (x.sum(0) for x in (right & found, found, right))
  if several:
    misses, errors = right - hits, found - hits
    others = len(gold) - hits - misses - errors
    counts = [others, errors, misses, hits]
    matrix: np.ndarray = np.stack(counts, 1).reshape(-1, 2, 2)
    hits, found, right = (np.append(x, x.sum()) for x in (hits, found, right))
  else:
    matrix = np.zeros([len(labels)] * 2, np.int64)
    np.add.at(matrix, (gold, predicted), 1)
  shares = (
    hits / np.maximum(found, 1),
    hits / np.maximum(right, 1),
    2 * hits / np.maximum(found + right, 1),
  )
  table = [*zip(*(x.tolist() for x in (*shares, right)))]
  rows = [
    [name, *(f"{x:.4f}" for x in shares), f"{support:,}"]
    for name, (*shares, support) in zip((*labels, "all"), table)
  ]
  path = os.path.join(folder, f"classification_report.{split}")
  files.write_text(f"{path}.txt", printing.table(["", *_COLUMNS], rows) + "\n")
  by_name = [dict(zip(_COLUMNS, row)) for row in table]
  report: dict[str, Any] = {"classes": dict(zip(labels, by_name))}
  if several:
    report["all"] = by_name[-1]
  report["confusion_matrix"] = matrix.tolist()
  files.write_json(f"{path}.json", report)
  if not several:
    _draw(os.path.join(folder, f"confusion_matrix.{split}.png"), labels, matrix)


def _draw(path: str, labels: Sequence[str], matrix: np.ndarray) -> None:
  """Draws the counts [L, L]; colors are shares of the correct class."""
  shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
  size = 3 + 0.4 * min(len(labels), _MOST_NUMBERS)
  with warnings.catch_warnings(), printing.figure(path, size, size) as figure:
    warnings.simplefilter("ignore")  # Of letters that the font lacks.
    axis = figure.subplots()
    axis.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    axis.set_xticks(range(len(labels)), labels, rotation=90, parse_math=False)
    axis.set_yticks(range(len(labels)), labels, parse_math=False)
    axis.set_xlabel("predicted")
    axis.set_ylabel("correct")
    for (row, column), count in np.ndenumerate(matrix):
      if len(labels) <= _MOST_NUMBERS:
        color = "white" if shares[row, column] > 0.5 else "black"
        axis.text(column, row, count, ha="center", va="center", color=color)
