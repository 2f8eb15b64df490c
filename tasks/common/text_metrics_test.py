"""Tests of metrics: values computed by hand, and constants."""

from __future__ import annotations

import numpy as np
import pytest

from official_albert.tasks import common


def test_classes():
  labels = np.array([1, 1, 1, 0, 0, 0, 0], np.uint8)
  predictions = np.array([1, 1, 0, 1, 0, 0, 0], np.int32)
  names = ("accuracy", "f1", "macro_f1", "matthews")
  # TP 2, FP 1, FN 1, TN 3; of class 0 TP 3, FP 1, FN 1.
  expected = [5 / 7, 2 / 3, (2 / 3 + 3 / 4) / 2, (2 * 3 - 1 * 1) / 12]
  found = common.scores(names, predictions, labels)
  assert found == pytest.approx(dict(zip(names, expected)))


def test_numbers():
  predictions = np.array([1.0, 2.0, 4.0])
  found = common.scores(
    ("pearson", "mean_squared_error"), predictions, np.array([1.0, 3.0, 2.0])
  )
  # Deviations -4/3, -1/3, 5/3 and -1, 1, 0.
  assert found["pearson"] == pytest.approx(1 / np.sqrt(42 / 9 * 2), rel=1e-12)
  assert found["mean_squared_error"] == pytest.approx(5 / 3)
  # Equal numbers share the mean of their ranks: 1.5, 1.5, 3 and 1, 2, 3.
  found = common.scores(("spearman",), [7.0, 7.0, 9.0], [1.0, 2.0, 6.0])
  assert found["spearman"] == pytest.approx(1.5 / np.sqrt(1.5 * 2))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("size", [1, 10])
def test_constants_have_no_correlation(size):
  # The computed mean of ten values of 0.1 is not 0.1.
  constant = np.full(size, 0.1)
  varied = np.arange(size, dtype=np.float32)
  for a, b in ((constant, varied), (varied, constant), (constant, constant)):
    found = common.scores(("pearson", "spearman"), a, b)
    assert found == {"pearson": 0.0, "spearman": 0.0}
  ones, classes = np.ones(size, int), np.arange(size) % 2
  for a, b in ((ones, classes), (1 - ones, classes), (classes, ones)):
    assert common.scores(("matthews",), a, b) == {"matthews": 0.0}
  assert common.scores(("f1",), 1 - ones, 1 - ones) == {"f1": 0.0}
