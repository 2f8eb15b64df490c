"""Tests of the metrics of the user's own texts, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tasks.classification import metrics


def test_two_classes():
  values = metrics.of_classes(
    np.array([1, 1, 0, 0, 1]), np.array([1, 0, 0, 0, 1]), 2
  )
  # Two hits, one false alarm, no miss, two right rejections.
  assert values == {
    "accuracy": pytest.approx(4 / 5),
    # 2 * 2 / (4 + 1) of class 1, as much of class 0.
    "macro_f1": pytest.approx(4 / 5),
    "matthews": pytest.approx(2 * 2 / math.sqrt(3 * 2 * 3 * 2)),
  }


def test_three_classes_have_no_matthews():
  values = metrics.of_classes(np.array([0, 2, 1]), np.array([0, 1, 1]), 3)
  assert values.keys() == {"accuracy", "macro_f1"}
  assert values["accuracy"] == pytest.approx(2 / 3)
  assert metrics.MAIN_CLASSIFICATION in values


def test_numbers():
  values = metrics.of_numbers(
    np.float32([1, 2, 4]), np.float32([10, 30, 20]) / 10
  )
  assert values == {
    # Deviations -4/3, -1/3, 5/3 and -1, 1, 0.
    "pearson": pytest.approx(1 / math.sqrt(42 / 9 * 2)),
    "spearman": pytest.approx(0.5),
    "mean_squared_error": pytest.approx(5 / 3),
  }
  assert metrics.MAIN_REGRESSION in values


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
