"""How well classes and numbers are predicted, as fractions.

Each function takes all predictions and labels of a data set at once, NumPy
arrays [N], and returns a float: what is not a mean over examples (F1, Matthews,
the correlations) can't be added up from batches.

Early in training predictions often are all the same, and no run should die of
it: F1, Matthews and the correlations are 0.0 where their quotient is 0 / 0, "no
relation seen". scikit-learn has the same 0 for F1 and Matthews; for the
correlations SciPy has nan, which would end up in logs and lose every
comparison. What can't be computed for any predictions raises: no examples,
arrays of two lengths, values that are not finite.
"""

from __future__ import annotations

import warnings

import numpy as np


def accuracy(predictions: np.ndarray, labels: np.ndarray) -> float:
  """Share of right classes, both <int>[N].

  Raises:
    ValueError: see `f1`.
  """
  predictions, labels = _classes(predictions, labels)
  return float(np.mean(predictions == labels))


def f1(predictions: np.ndarray, labels: np.ndarray) -> float:
  """F1 of class 1 among classes 0 and 1, as in MRPC and QQP; both <int>[N].

  0.0 if class 1 is neither predicted nor there.

  Raises:
    ValueError: N is 0, the arrays differ in length or have another rank, are
      no integers, or hold other classes than 0 and 1.
  """
  predictions, labels = _classes(predictions, labels)
  top = max(predictions.max(), labels.max())
  if top > 1:
    raise ValueError(f"F1 is about the classes 0 and 1, got class {top}.")
  return _f1_of(1, predictions, labels)


def macro_f1(predictions: np.ndarray, labels: np.ndarray) -> float:
  """Mean of the F1 of each class in predictions or labels, both <int>[N].

  A class that is in neither has no part in the mean, as in scikit-learn.

  Raises:
    ValueError: see `f1`.
  """
  predictions, labels = _classes(predictions, labels)
  classes = np.union1d(predictions, labels)
  return float(np.mean([_f1_of(c, predictions, labels) for c in classes]))


def matthews(predictions: np.ndarray, labels: np.ndarray) -> float:
  """Matthews' correlation of classes, both <int>[N], with two or more classes.

  0.0 if all predictions or all labels are one class. Computed by
  tensorflow-addons, in float64: its products of counts are over 2^24, where
  float32 begins to skip integers, from 4,097 examples on.

  Raises:
    ValueError: see `f1`.
  """
  predictions, labels = _classes(predictions, labels)
  with warnings.catch_warnings():
    # See official_albert/training/optimization.py, the other place that imports
    # it; here in the function, so that those who read data need no TensorFlow.
    warnings.simplefilter("ignore")
    import tensorflow_addons as tfa
  count = max(2, int(max(predictions.max(), labels.max())) + 1)
  metric = tfa.metrics.MatthewsCorrelationCoefficient(
    num_classes=count, dtype="float64"
  )
  rows = np.eye(count)
  metric.update_state(rows[labels], rows[predictions])
  return float(metric.result())


def pearson(predictions: np.ndarray, labels: np.ndarray) -> float:
  """Pearson's correlation of two <float>[N]; 0.0 if one of them is constant.

  Raises:
    ValueError: N is 0, the arrays differ in length or have another rank, or
      hold a value that is not finite.
  """
  predictions, labels = _numbers(predictions, labels)
  # A mean of equal numbers may miss them by a rounding, which would then be
  # taken for variation.
  if np.ptp(predictions) == 0 or np.ptp(labels) == 0:
    return 0.0
  unit = []
  for values in (predictions, labels):
    centred = values - values.mean()
    # To at most 1 first, for the squares of tiny or huge values are 0 or inf.
    centred /= np.max(np.abs(centred))
    unit.append(centred / np.linalg.norm(centred))
  return float(np.clip(unit[0] @ unit[1], -1.0, 1.0))


def spearman(predictions: np.ndarray, labels: np.ndarray) -> float:
  """Pearson's correlation of the ranks of two <float>[N]; ties share a rank.

  0.0 if one of them is constant.

  Raises:
    ValueError: see `pearson`.
  """
  predictions, labels = _numbers(predictions, labels)
  return pearson(_average_ranks(predictions), _average_ranks(labels))


def mean_squared_error(predictions: np.ndarray, labels: np.ndarray) -> float:
  """Mean of squared differences of two <float>[N], in the labels' unit squared.

  Raises:
    ValueError: see `pearson`.
  """
  predictions, labels = _numbers(predictions, labels)
  return float(np.mean(np.square(predictions - labels)))


def _f1_of(positive: int, predictions: np.ndarray, labels: np.ndarray) -> float:
  """F1 = 2 TP / (2 TP + FP + FN) of one class."""
  predicted, there = predictions == positive, labels == positive
  total = predicted.sum() + there.sum()
  return float(2 * (predicted & there).sum() / total) if total else 0.0


def _average_ranks(values: np.ndarray) -> np.ndarray:
  """Ranks <float64>[N] from 1; equal values get the mean of their ranks."""
  _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
  last = np.cumsum(counts)
  return (last - (counts - 1) / 2)[which]


def _check_pair(predictions: np.ndarray, labels: np.ndarray) -> None:
  if predictions.shape != labels.shape or predictions.ndim != 1:
    raise ValueError(
      f"a metric takes as many predictions as labels, both of rank 1; got "
      f"shapes {list(predictions.shape)} and {list(labels.shape)}."
    )
  if not len(labels):
    raise ValueError("a metric of no examples can't be computed.")


def _classes(
  predictions: np.ndarray, labels: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  predictions, labels = np.asarray(predictions), np.asarray(labels)
  _check_pair(predictions, labels)
  for name, values in (("predictions", predictions), ("labels", labels)):
    if values.dtype.kind not in "iu":
      raise ValueError(
        f"{name} must be classes (integers), got {values.dtype}."
      )
    if values.min() < 0:
      raise ValueError(f"{name} hold class {values.min()}, which is negative.")
  return predictions, labels


def _numbers(
  predictions: np.ndarray, labels: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  predictions = np.asarray(predictions, np.float64)
  labels = np.asarray(labels, np.float64)
  _check_pair(predictions, labels)
  for name, values in (("predictions", predictions), ("labels", labels)):
    if not np.isfinite(values).all():
      bad = int(np.argmin(np.isfinite(values)))
      raise ValueError(
        f"{name} hold {values[bad]} at position {bad}, which is not finite."
      )
  return predictions, labels
