"""Accuracy of answers: middle school, high school, and all together.

The paper's RACE numbers are over all questions, with the two levels beside
them (arXiv 1704.04683; google-research/albert reports `eval_accuracy` only).
"""

from __future__ import annotations

from typing import Sequence

import numpy as np

LEVELS = ("middle", "high")


def accuracy_by_level(
  predictions: np.ndarray, labels: np.ndarray, levels: Sequence[str]
) -> dict[str, float]:
  """Shares of right answers, as fractions.

  Args:
    predictions: <int>[N], the option chosen, from 0.
    labels: <int>[N], the option that is right.
    levels: N times "middle" or "high".

  Returns:
    `accuracy`, and `accuracy_middle` and `accuracy_high` as far as there are
    such questions. The first counts questions, not levels.

  Raises:
    ValueError: no questions, another number of them in one of the arguments,
      or an unknown level.
  """
  predictions, labels = np.asarray(predictions), np.asarray(labels)
  levels = np.asarray(levels, dtype=str)
  if predictions.ndim != 1 or not (
    predictions.shape == labels.shape == levels.shape
  ):
    raise ValueError(
      f"predictions {predictions.shape}, labels {labels.shape} and levels "
      f"{levels.shape} have to be equally many, in one dimension."
    )
  if not len(labels):
    raise ValueError("no questions: there is no accuracy of nothing.")
  unknown = sorted(set(levels.tolist()) - set(LEVELS))
  if unknown:
    raise ValueError(f"the level {unknown[0]!r} is none of {LEVELS}.")
  is_right = predictions == labels
  result = {"accuracy": float(np.mean(is_right))}
  for level in LEVELS:
    chosen = is_right[levels == level]
    if len(chosen):
      result[f"accuracy_{level}"] = float(np.mean(chosen))
  return result
