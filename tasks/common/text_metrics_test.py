"""Tests of metrics: values computed by hand, and degenerate input."""

from __future__ import annotations

import numpy as np
import pytest

from official_albert.tasks.common import text_metrics


def test_classes():
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


# A correlation does not depend on the scale, and must not overflow.
@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e150])
def test_numbers(scale):
  predictions = np.array([1.0, 2.0, 4.0]) * scale
  labels = np.array([1.0, 3.0, 2.0])
  # Deviations -4/3, -1/3, 5/3 and -1, 1, 0.
  value = text_metrics.pearson(predictions, labels)
  assert value == pytest.approx(1 / np.sqrt(42 / 9 * 2), rel=1e-12)
  assert text_metrics.spearman(predictions, labels) == pytest.approx(0.5)
  # Equal numbers share the mean of their ranks: 1.5, 1.5, 3 and 1, 2, 3.
  ties = text_metrics.spearman([7.0, 7.0, 9.0], [1.0, 2.0, 6.0])
  assert ties == pytest.approx(1.5 / np.sqrt(1.5 * 2))
  values = np.array([1.0, 2.0, 4.0])
  error = text_metrics.mean_squared_error(values, values[::-1])
  assert error == pytest.approx((9 + 0 + 9) / 3)


@pytest.mark.filterwarnings("error")
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


@pytest.mark.parametrize(
  "name",
  ["accuracy", "f1", "macro_f1", "matthews", "pearson", "spearman"]
  + ["mean_squared_error"],
)
def test_no_examples_have_no_metric(name):
  with pytest.raises(ValueError, match="no examples"):
    getattr(text_metrics, name)(np.zeros([0]), np.zeros([0]))


@pytest.mark.parametrize("name", ["pearson", "spearman", "mean_squared_error"])
def test_numbers_must_be_finite(name):
  with pytest.raises(ValueError, match="predictions must be finite"):
    getattr(text_metrics, name)([0.5, np.nan, 2.0], [1.0, 2.0, 3.0])
  with pytest.raises(ValueError, match="labels must be finite"):
    getattr(text_metrics, name)([1.0, 2.0], [-np.inf, 2.0])
