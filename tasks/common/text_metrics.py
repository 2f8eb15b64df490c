"""Metrics of classification and regression, as fractions.

Each function takes the predictions and labels of a whole data set, arrays [N],
and returns a float. F1, Matthews' coefficient and the correlations are not
means over examples, so they cannot be summed over batches. Numbers must be
finite, and no examples have no metrics (ValueError).

If a quotient is 0 / 0 for other reasons, as for constant predictions early in
training, the value is 0.0, as that of scikit-learn's F1 and Matthews'
coefficient. SciPy's correlations are NaN then, which is neither better nor
worse than the value of another checkpoint.
"""

from __future__ import annotations

import warnings

import numpy as np

# scikit-learn and SciPy are imported when needed, because that takes long.


def accuracy(predictions: np.ndarray, labels: np.ndarray) -> float:
  """Returns the share of correct classes, both <int>[N]."""
  _check_any(labels)
  return float(np.mean(np.asarray(predictions) == np.asarray(labels)))


def f1(
  predictions: np.ndarray, labels: np.ndarray, average: str = "binary"
) -> float:
  """Returns the F1 of class 1 of the classes 0 and 1, both <int>[N]."""
  import sklearn.metrics

  _check_any(labels)
  score = sklearn.metrics.f1_score(
    labels, predictions, average=average, zero_division=0.0
  )
  return float(score)


def macro_f1(predictions: np.ndarray, labels: np.ndarray) -> float:
  """Returns the mean F1 of the classes that occur, both <int>[N]."""
  return f1(predictions, labels, "macro")


def matthews(predictions: np.ndarray, labels: np.ndarray) -> float:
  """Returns Matthews' correlation coefficient of classes, both <int>[N]."""
  import sklearn.metrics

  _check_any(labels)
  with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # About a single class.
    return float(sklearn.metrics.matthews_corrcoef(labels, predictions))


def pearson(predictions: np.ndarray, labels: np.ndarray) -> float:
  """Returns Pearson's correlation of two <float>[N]; 0.0 for a constant."""
  import scipy.stats

  arrays = _finite(predictions, labels)
  if any(np.ptp(values) == 0 for values in arrays):
    return 0.0
  return float(scipy.stats.pearsonr(*arrays).statistic)


def spearman(predictions: np.ndarray, labels: np.ndarray) -> float:
  """Returns Spearman's correlation of two <float>[N]; 0.0 for a constant."""
  import scipy.stats

  return pearson(*map(scipy.stats.rankdata, _finite(predictions, labels)))


def mean_squared_error(predictions: np.ndarray, labels: np.ndarray) -> float:
  """Returns the mean squared difference of two <float>[N]."""
  predictions, labels = _finite(predictions, labels)
  return float(np.mean(np.square(predictions - labels)))


def _check_any(labels: np.ndarray) -> None:
  if not len(labels):
    raise ValueError("there are no examples, so there is no metric of them.")


def _finite(*arrays: np.ndarray) -> list[np.ndarray]:
  _check_any(arrays[-1])
  checked = [np.asarray(values, np.float64) for values in arrays]
  for name, values in zip(("predictions", "labels"), checked):
    if not np.isfinite(values).all():
      raise ValueError(f"{name} must be finite, got nan or inf.")
  return checked
