"""Compares the metrics with scikit-learn and SciPy; tests degenerate input."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics

from tasks.common import text_metrics

# Both compute in float64; sums over 5,000 examples lose a few digits.
_EXACT = dict(rel=0, abs=1e-12)


def random_classes(seed, count, size):
  """Returns predictions that are often right, and labels."""
  generator = np.random.default_rng(seed)
  labels = generator.integers(0, count, size)
  guesses = generator.integers(0, count, size)
  return np.where(generator.random(size) < 0.3, labels, guesses), labels


# With as many examples as QQP has, products of counts reach 1.6e11.
@pytest.mark.parametrize("size", [1, 7, 390_965])
@pytest.mark.parametrize("count", [2, 5])
def test_class_metrics_equal_scikit_learn(count, size):
  predictions, labels = random_classes(size, count, size)
  with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # About classes without an example.
    expected = {
      "accuracy": sklearn.metrics.accuracy_score(labels, predictions),
      "matthews": sklearn.metrics.matthews_corrcoef(labels, predictions),
    }
  for name, value in expected.items():
    result = getattr(text_metrics, name)(predictions, labels)
    assert isinstance(result, float)
    assert result == pytest.approx(value, **_EXACT), name


def test_values_by_hand():
  labels = np.array([1, 1, 1, 0, 0, 0, 0], np.uint8)
  predictions = np.array([1, 1, 0, 1, 0, 0, 0], np.int32)
  # TP 2, FP 1, FN 1, TN 3; of class 0 TP 3, FP 1, FN 1.
  assert text_metrics.accuracy(predictions, labels) == pytest.approx(5 / 7)
  assert text_metrics.f1(predictions, labels) == pytest.approx(2 / 3)
  macro = text_metrics.macro_f1(predictions, labels)
  assert macro == pytest.approx((2 / 3 + 3 / 4) / 2)
  matthews = text_metrics.matthews(predictions, labels)
  assert matthews == pytest.approx((2 * 3 - 1 * 1) / 12)
  # F1 is that of class 1.
  assert text_metrics.f1(1 - predictions, 1 - labels) == pytest.approx(3 / 4)
  values = np.array([1.0, 2.0, 4.0])
  error = text_metrics.mean_squared_error(values, values[::-1])
  assert error == pytest.approx((9 + 0 + 9) / 3)


@pytest.mark.parametrize("size", [3, 11, 5003])
@pytest.mark.parametrize("step", [None, 0.5], ids=["no_ties", "ties"])
@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e150])
def test_correlations_equal_scipy(size, step, scale):
  generator = np.random.default_rng(size)
  labels = generator.uniform(0, 5, size)
  predictions = labels + generator.normal(0, 2, size)
  if step:
    labels = np.round(labels / step) * step
    predictions = np.round(predictions / step) * step
  expected = {
    "pearson": scipy.stats.pearsonr(predictions, labels)[0],
    "spearman": scipy.stats.spearmanr(predictions, labels)[0],
  }
  for name, value in expected.items():
    # A correlation does not depend on the scale, and must not overflow.
    result = getattr(text_metrics, name)(predictions * scale, labels)
    assert isinstance(result, float)
    assert result == pytest.approx(value, **_EXACT), name


@pytest.mark.parametrize("size", [1, 3, 10])
def test_constants_have_no_correlation(size):
  # The computed mean of ten values of 0.1 is not 0.1.
  constant = np.full(size, 0.1)
  varied = np.arange(size, dtype=np.float32)
  for metric in (text_metrics.pearson, text_metrics.spearman):
    for a, b in ((constant, varied), (varied, constant), (constant, constant)):
      assert metric(a, b) == 0.0
  ones, classes = np.ones(size, int), np.arange(size) % 2
  for a, b in ((ones, classes), (1 - ones, classes), (classes, ones)):
    assert text_metrics.matthews(a, b) == 0.0
  assert text_metrics.f1(ones, ones) == 1.0
  assert text_metrics.f1(1 - ones, ones) == 0.0
  assert text_metrics.f1(1 - ones, 1 - ones) == 0.0


@pytest.mark.parametrize("name", ["pearson", "spearman", "mean_squared_error"])
def test_numbers_must_be_finite(name):
  with pytest.raises(ValueError, match="predictions must be finite"):
    getattr(text_metrics, name)([0.5, np.nan, 2.0], [1.0, 2.0, 3.0])
  with pytest.raises(ValueError, match="labels must be finite"):
    getattr(text_metrics, name)([1.0, 2.0], [-np.inf, 2.0])


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
