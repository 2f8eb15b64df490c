"""Tests of the accuracies on counts made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tasks.race import metrics

MIDDLE, HIGH = ["middle"], ["high"]


def test_levels_are_counted_apart_and_together():
  result = metrics.accuracy_by_level(
    np.array([0, 1, 2, 3, 3, 3, 0]),
    np.array([0, 1, 0, 3, 0, 0, 1]),
    MIDDLE * 2 + HIGH * 5,
  )
  # 2 of 2, 1 of 5, 3 of 7: not the mean of the levels.
  assert result == {
    "accuracy": pytest.approx(3 / 7, abs=1e-15),
    "accuracy_middle": 1.0,
    "accuracy_high": pytest.approx(1 / 5, abs=1e-15),
  }


def test_a_level_without_questions_has_no_accuracy():
  result = metrics.accuracy_by_level([0, 1], [0, 2], HIGH * 2)
  assert result == {"accuracy": 0.5, "accuracy_high": 0.5}


@pytest.mark.parametrize(
  "predictions, labels, levels, message",
  [
    pytest.param([], [], [], "no questions", id="nothing"),
    pytest.param([0, 1], [0], MIDDLE * 2, "equally many", id="labels"),
    pytest.param([0, 1], [0, 1], MIDDLE, "equally many", id="levels"),
    pytest.param([[0.5, 0.5]], [[0, 1]], ["high"], "one dimension", id="rank"),
    pytest.param([0], [0], ["low"], "'low' is none of", id="unknown"),
  ],
)
def test_what_cannot_be_counted_is_refused(
  predictions, labels, levels, message
):
  with pytest.raises(ValueError, match=message):
    metrics.accuracy_by_level(predictions, labels, levels)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
