"""Tests of which metrics a task has, and of what they add up to."""

from __future__ import annotations

import numpy as np
import pytest

from tasks.classification.glue import benchmark, metrics

_TASKS = benchmark.GLUE_TASKS
_LABELS = np.array([1, 1, 1, 0, 0, 0, 0])
_PREDICTIONS = np.array([1, 1, 0, 1, 0, 0, 0])


def test_metrics_in_the_official_order():
  result = metrics.evaluate_glue(_TASKS["mrpc"], _PREDICTIONS, _LABELS)
  assert list(result) == ["accuracy", "f1"]
  assert result == pytest.approx({"accuracy": 5 / 7, "f1": 2 / 3})
  result = metrics.evaluate_glue(
    _TASKS["stsb"], [1.5, 2.0, 9.0], [0.0, 1.0, 1.5]
  )
  assert list(result) == ["pearson", "spearman"]
  assert result["spearman"] == pytest.approx(1.0)
  # By hand, from the centred values.
  assert result["pearson"] == pytest.approx(
    (8 / 3 * 5 / 6 + 13 / 6 * -1 / 6 + 29 / 6 * 2 / 3)
    / np.sqrt(
      ((8 / 3) ** 2 + (13 / 6) ** 2 + (29 / 6) ** 2)
      * ((5 / 6) ** 2 + (1 / 6) ** 2 + (2 / 3) ** 2)
    )
  )


def test_classes_that_a_task_does_not_have():
  with pytest.raises(ValueError, match="rte has 2 classes, got class 2"):
    metrics.evaluate_glue(_TASKS["rte"], [0, 2], [0, 1])
  with pytest.raises(ValueError, match="of no examples"):
    metrics.evaluate_glue(_TASKS["rte"], [], [])


def test_a_score_is_the_mean_of_metrics():
  assert metrics.task_score(
    _TASKS["qqp"], {"dev": {"accuracy": 0.9, "f1": 0.8, "loss": 7.0}}
  ) == pytest.approx(0.85)


def test_the_score_of_mnli_is_the_mean_of_its_two_sets():
  results = {
    "dev_matched": {"accuracy": 0.8},
    "dev_mismatched": {"accuracy": 0.7},
  }
  assert metrics.task_score(_TASKS["mnli"], results) == pytest.approx(0.75)
  del results["dev_mismatched"]
  with pytest.raises(ValueError, match="dev_matched, dev_mismatched; got dev_"):
    metrics.task_score(_TASKS["mnli"], results)


def test_a_score_without_its_metrics():
  with pytest.raises(ValueError, match="mrpc, dev: no f1"):
    metrics.task_score(_TASKS["mrpc"], {"dev": {"accuracy": 0.9}})


def test_the_average_is_over_all_nine():
  scores = {name: 0.1 * n for n, name in enumerate(_TASKS)}
  assert metrics.glue_average({**scores, "ax": 9.0}) == pytest.approx(0.4)
  del scores["wnli"]
  with pytest.raises(ValueError, match="no score of wnli"):
    metrics.glue_average(scores)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
