"""What is measured on the user's own texts, as fractions."""

from __future__ import annotations

import numpy as np

from tasks import common

# Of these, the one that chooses the best checkpoint.
MAIN_CLASSIFICATION = "accuracy"
MAIN_REGRESSION = "pearson"


def of_classes(
  predictions: np.ndarray, labels: np.ndarray, num_classes: int
) -> dict[str, float]:
  """Accuracy and macro F1; of two classes Matthews' correlation too.

  Args:
    predictions: classes <int>[N].
    labels: the right ones <int>[N].
    num_classes: how many there are.
  """
  values = {
    "accuracy": common.accuracy(predictions, labels),
    "macro_f1": common.macro_f1(predictions, labels),
  }
  if num_classes == 2:
    values["matthews"] = common.matthews(predictions, labels)
  return values


def of_numbers(predictions: np.ndarray, labels: np.ndarray) -> dict[str, float]:
  """Pearson and Spearman correlation, and the mean squared error.

  Args:
    predictions: <float>[N].
    labels: the right ones <float>[N].
  """
  return {
    "pearson": common.pearson(predictions, labels),
    "spearman": common.spearman(predictions, labels),
    "mean_squared_error": common.mean_squared_error(predictions, labels),
  }
