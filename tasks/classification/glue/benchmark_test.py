"""Tests of the table of tasks."""

from __future__ import annotations

import pytest

from tasks import common
from tasks.classification.glue import benchmark


def test_nine_tasks():
  assert list(benchmark.GLUE_TASKS) == (
    "cola sst2 mrpc stsb qqp mnli qnli rte wnli".split()
  )
  for name, task in benchmark.GLUE_TASKS.items():
    assert task.name == name
    assert task.main_metric in task.metrics
    assert all(hasattr(common, metric) for metric in task.metrics)
    assert task.is_regression == (name == "stsb")
  assert {t.name: t.main_metric for t in benchmark.GLUE_TASKS.values()} == {
    **dict.fromkeys(benchmark.GLUE_TASKS, "accuracy"),
    "cola": "matthews",
    "stsb": "pearson",
  }


def test_labels_are_in_the_order_of_the_original_head():
  labels = {task.folder: task.labels for task in benchmark.GLUE_TASKS.values()}
  assert labels == {
    **dict.fromkeys(["CoLA", "SST-2", "MRPC", "QQP", "WNLI"], ("0", "1")),
    **dict.fromkeys(["QNLI", "RTE"], ("entailment", "not_entailment")),
    "MNLI": ("contradiction", "entailment", "neutral"),
    "STS-B": None,
  }


def test_splits():
  assert benchmark.GLUE_TASKS["rte"].splits == ("train", "dev", "test")
  assert benchmark.GLUE_TASKS["mnli"].splits == (
    "train",
    "dev_matched",
    "dev_mismatched",
    "test_matched",
    "test_mismatched",
    "ax",
  )


def test_unknown_names():
  with pytest.raises(ValueError, match="'sst-2'; choose one of cola, sst2, mr"):
    benchmark.get_glue_task("sst-2")
  mnli = benchmark.get_glue_task("mnli")
  with pytest.raises(ValueError, match="no split 'dev'; choose one of train, "):
    benchmark.check_split(mnli, "dev")
  benchmark.check_split(mnli, "ax")


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
