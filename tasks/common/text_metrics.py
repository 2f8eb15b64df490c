"""Metrics of classification and regression, as fractions.

Each function takes the predictions and labels of a whole data set, arrays [N],
and returns a float. F1, Matthews' coefficient and the correlations are no means
over examples, so they cannot be summed over batches.

Where a quotient is 0 / 0, as for constant predictions early in training, the
value is 0.0. SciPy's correlations are nan there, which would compare as neither
better nor worse than any other checkpoint's.

All functions raise a ValueError if N is 0, the arrays differ in shape, classes
are not non-negative integers, or numbers are not finite.
"""

from __future__ import annotations

import warnings

import numpy as np


def accuracy(predictions: np.ndarray, labels: np.ndarray) -> float:
  """Returns the share of correct classes, both <int>[N]."""
  predictions, labels = _classes(predictions, labels)
  return float(np.mean(predictions == labels))


def f1(predictions: np.ndarray, labels: np.ndarray) -> float:
  """Returns the F1 of class 1 of the classes 0 and 1, both <int>[N]."""
  predictions, labels = _classes(predictions, labels)
  top = max(predictions.max(), labels.max())
  if top > 1:
    raise ValueError(f"F1 is defined for the classes 0 and 1, got class {top}.")
  return _f1_score(labels, predictions, average="binary")


def macro_f1(predictions: np.ndarray, labels: np.ndarray) -> float:
  """Returns the mean F1 of the classes that occur, both <int>[N]."""
  predictions, labels = _classes(predictions, labels)
  return _f1_score(labels, predictions, average="macro")


def matthews(predictions: np.ndarray, labels: np.ndarray) -> float:
  """Returns Matthews' correlation coefficient of classes, both <int>[N].

  Computed in float64: from 4,097 examples on, the products of counts exceed
  2^24, above which float32 does not represent every integer.
  """
  predictions, labels = _classes(predictions, labels)
  with warnings.catch_warnings():
    # tensorflow-addons warns at import, see training/optimization.py. It is
    # imported here so that reading data does not load TensorFlow.
    warnings.simplefilter("ignore")
    import tensorflow_addons as tfa
  count = max(2, int(max(predictions.max(), labels.max())) + 1)
  metric = tfa.metrics.MatthewsCorrelationCoefficient(
    num_classes=count, dtype="float64"
  )
  one_hot = np.eye(count)
  metric.update_state(one_hot[labels], one_hot[predictions])
  return float(metric.result())


def pearson(predictions: np.ndarray, labels: np.ndarray) -> float:
  """Returns Pearson's correlation of two <float>[N]; 0.0 for a constant.

  `scipy.stats.pearsonr` differs from it by at most 6e-16. This order of
  operations is kept so that results of earlier runs stay comparable to the bit.
  """
  predictions, labels = _numbers(predictions, labels)
  # Of a constant, the computed mean may be off by a rounding error.
  if np.ptp(predictions) == 0 or np.ptp(labels) == 0:
    return 0.0
  unit = []
  for values in (predictions, labels):
    centered = values - values.mean()
    # Scaled first: the squares of tiny or huge values are 0 or inf.
    centered /= np.max(np.abs(centered))
    unit.append(centered / np.linalg.norm(centered))
  return float(np.clip(unit[0] @ unit[1], -1.0, 1.0))


def spearman(predictions: np.ndarray, labels: np.ndarray) -> float:
  """Returns Spearman's correlation of two <float>[N]; 0.0 for a constant."""
  import scipy.stats  # Slow to import.

  predictions, labels = _numbers(predictions, labels)
  return pearson(
    scipy.stats.rankdata(predictions), scipy.stats.rankdata(labels)
  )


def mean_squared_error(predictions: np.ndarray, labels: np.ndarray) -> float:
  """Returns the mean squared difference of two <float>[N]."""
  predictions, labels = _numbers(predictions, labels)
  return float(np.mean(np.square(predictions - labels)))


def _f1_score(
  labels: np.ndarray, predictions: np.ndarray, average: str
) -> float:
  import sklearn.metrics  # Slow to import.

  return float(
    sklearn.metrics.f1_score(
      labels, predictions, average=average, zero_division=0.0
    )
  )


def _classes(
  predictions: np.ndarray, labels: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  predictions, labels = np.asarray(predictions), np.asarray(labels)
  _check_shapes(predictions, labels)
  for name, values in (("predictions", predictions), ("labels", labels)):
    if values.dtype.kind not in "iu" or values.min() < 0:
      raise ValueError(
        f"{name} must be classes, integers from 0, got {values.dtype} with a "
        f"minimum of {values.min()}."
      )
  return predictions, labels


def _numbers(
  predictions: np.ndarray, labels: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  predictions = np.asarray(predictions, np.float64)
  labels = np.asarray(labels, np.float64)
  _check_shapes(predictions, labels)
  for name, values in (("predictions", predictions), ("labels", labels)):
    if not np.isfinite(values).all():
      raise ValueError(f"{name} must be finite, got nan or inf.")
  return predictions, labels


def _check_shapes(predictions: np.ndarray, labels: np.ndarray) -> None:
  if predictions.shape != labels.shape or predictions.ndim != 1:
    raise ValueError(
      "predictions and labels must be equally many, got shapes "
      f"{list(predictions.shape)} and {list(labels.shape)}."
    )
  if not len(labels):
    raise ValueError("predictions and labels are empty.")
