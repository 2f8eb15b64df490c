"""Metrics of classification and regression, as fractions.

Each function takes the predictions and labels of a whole data set, arrays [N],
and returns a float. F1, Matthews' coefficient and the correlations are not
means over examples, so they cannot be summed over batches. Numbers must be
finite.

If a quotient is 0 / 0, as for constant predictions early in training, the value
is 0.0. SciPy's correlations are NaN then, which is neither better nor worse
than the value of another checkpoint.
"""

from __future__ import annotations

import warnings

import numpy as np


def accuracy(predictions: np.ndarray, labels: np.ndarray) -> float:
  """Returns the share of correct classes, both <int>[N]."""
  return float(np.mean(np.asarray(predictions) == np.asarray(labels)))


def f1(predictions: np.ndarray, labels: np.ndarray) -> float:
  """Returns the F1 of class 1 of the classes 0 and 1, both <int>[N]."""
  return _f1_score(predictions, labels, "binary")


def macro_f1(predictions: np.ndarray, labels: np.ndarray) -> float:
  """Returns the mean F1 of the classes that occur, both <int>[N]."""
  return _f1_score(predictions, labels, "macro")


def _f1_score(
  predictions: np.ndarray, labels: np.ndarray, average: str
) -> float:
  import sklearn.metrics  # Slow to import.

  return float(
    sklearn.metrics.f1_score(
      labels, predictions, average=average, zero_division=0.0
    )
  )


def matthews(predictions: np.ndarray, labels: np.ndarray) -> float:
  """Returns Matthews' correlation coefficient of classes, both <int>[N].

  It is computed in float64, because with 4,097 examples or more, the products
  of counts exceed 2^24, and float32 cannot represent every integer above that.
  """
  with warnings.catch_warnings():
    # tensorflow-addons warns at import, see training/optimization.py. It is
    # imported here so that reading data does not load TensorFlow.
    warnings.simplefilter("ignore")
    import tensorflow_addons as tfa
  count = max(2, int(max(np.max(predictions), np.max(labels))) + 1)
  metric = tfa.metrics.MatthewsCorrelationCoefficient(
    num_classes=count, dtype="float64"
  )
  one_hot = np.eye(count)
  metric.update_state(
    one_hot[np.asarray(labels)], one_hot[np.asarray(predictions)]
  )
  return float(metric.result())


def pearson(predictions: np.ndarray, labels: np.ndarray) -> float:
  """Returns Pearson's correlation of two <float>[N]; 0.0 for a constant.

  `scipy.stats.pearsonr` differs from it by at most 6e-16. This order of
  operations is kept so that results of earlier runs stay comparable to the bit.
  """
  unit = []
  for values in _finite(predictions, labels):
    # For a constant, the computed mean may have a rounding error.
    if np.ptp(values) == 0:
      return 0.0
    centered = values - values.mean()
    # Scaled first: the squares of tiny or huge values are 0 or inf.
    centered /= np.max(np.abs(centered))
    unit.append(centered / np.linalg.norm(centered))
  return float(np.clip(unit[0] @ unit[1], -1.0, 1.0))


def spearman(predictions: np.ndarray, labels: np.ndarray) -> float:
  """Returns Spearman's correlation of two <float>[N]; 0.0 for a constant."""
  import scipy.stats  # Slow to import.

  return pearson(*map(scipy.stats.rankdata, _finite(predictions, labels)))


def mean_squared_error(predictions: np.ndarray, labels: np.ndarray) -> float:
  """Returns the mean squared difference of two <float>[N]."""
  predictions, labels = _finite(predictions, labels)
  return float(np.mean(np.square(predictions - labels)))


def _finite(*arrays: np.ndarray) -> list[np.ndarray]:
  arrays = [np.asarray(values, np.float64) for values in arrays]
  for name, values in zip(("predictions", "labels"), arrays):
    if not np.isfinite(values).all():
      raise ValueError(f"{name} must be finite, got nan or inf.")
  return arrays
