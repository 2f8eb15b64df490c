"""Metrics of classification and regression, as fractions.

They take the predictions and labels of a whole data set, arrays [N]: F1,
Matthews' coefficient and the correlations are not means over examples, so they
cannot be summed over batches. Where a quotient is 0 / 0, as for constant
predictions early in training, the value is 0.0.
"""

from __future__ import annotations

import warnings
from typing import Any, Callable, Iterable, Mapping

import numpy as np

# scikit-learn and SciPy are imported when needed, because that takes long.


def _of_classes(name: str, **options: Any) -> Callable[..., float]:
  """Returns a metric of scikit-learn of predicted and correct classes."""

  def metric(predictions: np.ndarray, labels: np.ndarray) -> float:
    import sklearn.metrics

    with warnings.catch_warnings():
      warnings.simplefilter("ignore")  # About a single class.
      return getattr(sklearn.metrics, name)(labels, predictions, **options)

  return metric


def _pearson(predictions: np.ndarray, labels: np.ndarray) -> float:
  """Returns Pearson's correlation; 0.0 for a constant, where SciPy's is nan."""
  import scipy.stats

  arrays = np.float64(predictions), np.float64(labels)
  if any(np.ptp(values) == 0 for values in arrays):
    return 0.0
  return scipy.stats.pearsonr(*arrays).statistic


def _spearman(predictions: np.ndarray, labels: np.ndarray) -> float:
  import scipy.stats

  return _pearson(*map(scipy.stats.rankdata, (predictions, labels)))


METRICS: Mapping[str, Callable[[np.ndarray, np.ndarray], float]] = {
  # Of predicted and correct classes, both <int>[N]. F1 is that of class 1 of
  # the classes 0 and 1, `macro_f1` the mean of the classes that occur.
  "accuracy": lambda predictions, labels: np.mean(predictions == labels),
  "f1": _of_classes("f1_score", zero_division=0.0),
  "macro_f1": _of_classes("f1_score", average="macro", zero_division=0.0),
  "matthews": _of_classes("matthews_corrcoef"),
  # Of predicted and correct numbers, both <float>[N].
  "pearson": _pearson,
  "spearman": _spearman,
  "mean_squared_error": lambda predictions, labels: np.mean(
    (np.float64(predictions) - labels) ** 2
  ),
}


def scores(
  names: Iterable[str], predictions: np.ndarray, labels: np.ndarray
) -> dict[str, float]:
  """Returns the metrics of these names."""
  return {name: float(METRICS[name](predictions, labels)) for name in names}
