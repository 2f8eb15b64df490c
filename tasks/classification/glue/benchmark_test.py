"""Tests of the tables of tasks and recipes."""

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
  assert benchmark.GLUE_TASKS["rte"].splits == ("train", "dev", "test")
  assert benchmark.GLUE_TASKS["mnli"].splits == (
    "train",
    "dev_matched",
    "dev_mismatched",
    "test_matched",
    "test_mismatched",
    "ax",
  )


# Official training examples, and the epochs that Table 14 implies.
_EXAMPLES_AND_EPOCHS = {
  "cola": (8_551, 10.0),
  "sst2": (67_349, 9.9),
  "mrpc": (3_668, 7.0),
  "stsb": (5_749, 10.0),
  "qqp": (363_846, 4.9),
  "mnli": (392_702, 3.3),
  "qnli": (104_743, 10.1),
  "rte": (2_490, 10.3),
  "wnli": (635, 50.4),
}


@pytest.mark.parametrize("name", list(_EXAMPLES_AND_EPOCHS))
def test_steps_and_batch_make_sensible_epochs(name):
  recipe = benchmark.GLUE_RECIPES[name]
  examples, epochs = _EXAMPLES_AND_EPOCHS[name]
  seen = recipe.train_batch_size * recipe.num_train_steps
  assert seen / examples == pytest.approx(epochs, abs=0.06)


def test_table_14():
  table = {
    name: (r.learning_rate, r.num_warmup_steps, r.albert_dropout)
    for name, r in benchmark.GLUE_RECIPES.items()
  }
  assert table == {
    "cola": (1e-5, 320, 0.0),
    "stsb": (2e-5, 214, 0.0),
    "sst2": (1e-5, 1256, 0.0),
    "mnli": (3e-5, 1000, 0.0),
    "qnli": (1e-5, 1986, 0.0),
    "qqp": (5e-5, 1000, 0.1),
    "rte": (3e-5, 200, 0.1),
    "mrpc": (2e-5, 200, 0.0),
    "wnli": (2e-5, 250, 0.1),
  }
  for recipe in benchmark.GLUE_RECIPES.values():
    assert recipe.classifier_dropout == 0.1
    assert recipe.max_seq_length == 512


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
