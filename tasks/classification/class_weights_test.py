"""Weights of classes in the loss, by hand."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from official_albert.tasks import registry
from official_albert.tasks.classification import examples, task_test

_LABELS = ("cold", "wet", "windy")
_ROWS = ["w5\tcold", "w6\twet", "w7\tcold", "w8\twindy", "w9\tcold", "w5\twet"]
_CLASSES = [0, 1, 0, 2, 0, 1]
_LOGITS = np.array(
  [[2, -1, 0.5], [0, 3, -2], [1, 1, 1], [-4, 0, 2], [0, 0, 3], [1, -1, 0]],
  "float32",
)
_MASK = np.array([1, 1, 1, 1, 0, 1], "float32")


def make(folder, weights, name="text_classification", rows=_ROWS):
  path = folder / "rows.tsv"
  path.write_text("\n".join(["text\tlabel", *rows]) + "\n")
  files = {f"{split}_file": str(path) for split in ("train", "dev")}
  options = task_test.options(folder, class_weights=weights, **files)
  return registry.make_task(name, options)


def loss(task, labels, logits=_LOGITS, mask=_MASK):
  """Returns the mean of the loss, and the accuracy."""
  batch = {
    "label_ids": tf.constant(labels),
    "example_weight": tf.constant(mask),
  }
  outputs = {"logits": tf.constant(logits)}
  sums, metrics = task.losses(None, outputs, batch, True)
  weights = task.loss_weights(batch)
  return float(sums[task.name] / weights[task.name]), metrics


def test_weights_of_classes(tmp_path):
  task = make(tmp_path, "balanced")
  # 6 / (3 * 3), 6 / (3 * 2), 6 / (3 * 1).
  np.testing.assert_allclose(task.class_weights, [2 / 3, 1, 2])
  log_probs = np.log(np.exp(_LOGITS) / np.exp(_LOGITS).sum(1, keepdims=True))
  entropies = -log_probs[np.arange(6), _CLASSES]
  weights = np.array([2 / 3, 1, 2 / 3, 2, 0, 1])
  value, metrics = loss(task, _CLASSES)
  assert value == pytest.approx(np.sum(entropies * weights) / weights.sum())
  # The accuracy counts examples.
  (accuracy,) = metrics.values()
  assert tuple(map(float, accuracy)) == (4, 5)
  value, _ = loss(make(tmp_path, ""), _CLASSES)
  assert value == pytest.approx(np.sum(entropies * _MASK) / 5)
  given = make(tmp_path, "windy=4,cold=0.5")
  np.testing.assert_array_equal(given.class_weights, [0.5, 1, 4])


_TAGS = ["w5\tcold,wet", "w6\tcold", "w7\t", "w8\twindy,cold"]
_GOLD = [[1.0, 1, 0], [1, 0, 0], [0, 0, 0], [1, 0, 1]]


def test_weights_of_several_labels(tmp_path):
  task = make(tmp_path, "balanced", "text_multi_label", _TAGS)
  np.testing.assert_allclose(task.class_weights, [1 / 3, 3, 3])
  logits, gold = _LOGITS[:4], np.float32(_GOLD)
  share = 1 / (1 + np.exp(-logits))
  losses = np.log(share) * gold * [1 / 3, 3, 3] + np.log(1 - share) * (1 - gold)
  value, _ = loss(task, gold, logits, np.ones(4, "float32"))
  assert value == pytest.approx(-losses.mean(), rel=1e-5)


@pytest.mark.parametrize(
  "text",
  "cold cold= cold=0 cold=-1 cold=nan hot=2 cold=1e-50 cold=1e39 "
  "wet=2,cold=3,wet=4".split(),
)
def test_weights_that_are_refused(text):
  last = text.rpartition(",")[2]
  with pytest.raises(ValueError, match=f"class_weights has '{last}'.*'cold'"):
    examples.read_weights(text, _LABELS)


def test_a_label_with_an_equals_sign():
  weights = examples.read_weights("a=b=2", ["a=b", "c"])
  np.testing.assert_array_equal(weights, [2, 1])


def test_the_run_records_them(tmp_path):
  task = make(tmp_path, "wet=2").with_records(["train"], task_test._CONFIG)
  assert task.model_settings()["class_weights"] == [1, 2, 1]
  task = make(tmp_path, "").with_records(["train"], task_test._CONFIG)
  assert "class_weights" not in task.model_settings()
