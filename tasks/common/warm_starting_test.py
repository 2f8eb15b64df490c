"""Models start from the weights that fit, and the report names the others."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
import tensorflow as tf

from official_albert import AlbertModel, checkpoints, modeling, runs, training
from official_albert.testing import toy_models

SMALL = toy_models.config(29, 11)
HEAD = ("output_bias", "output_weights")


def save(folder, model, **trackables):
  manager = training.CheckpointManager(
    str(folder), 2, model=model, **trackables
  )
  return manager.save(5)


def save_best(folder, model):
  best = training.BestCheckpoint(training.TrainConfig(str(folder)), model)
  best.offer(5, 1, {"loss": 1.0})


def assert_same_weights(a, b):
  np.testing.assert_equal(a.get_weights(), b.get_weights())


def classifier(classes=3, config=SMALL):
  return modeling.AlbertForSequenceClassification(config, classes)


def test_fine_tuning_starts_with_a_new_head(tmp_path):
  source, model, path = tf.Module(), classifier(), str(tmp_path)
  # The attributes of `AlbertForPretraining`, which belongs to a task.
  source.albert = AlbertModel(SMALL)
  source.sentence_order = modeling.ClassificationHead(SMALL, 2)
  optimizer = training.LAMB(0.1)
  optimizer._create_all_weights(source.trainable_variables)
  save(tmp_path, source, optimizer=optimizer, examples_seen=tf.Variable(7))
  head = model.classifier.output_weights.numpy()
  report = checkpoints.warm_start(model, path)
  assert len(report.matched) == len(model.albert.weights)
  assert report.missing == HEAD
  assert_same_weights(source.albert, model.albert)
  np.testing.assert_array_equal(model.classifier.output_weights, head)
  assert report.unexpected == (
    "cls/seq_relationship/output_bias",
    "cls/seq_relationship/output_weights",
  )
  # A new head needs no note if there was none before.
  runs.write_run(str(tmp_path), SMALL, {}, {"max_seq_length": 11})
  report = checkpoints.warm_start(classifier(), path, _classes("a", "b", "c"))
  assert report.notes == () and report.missing == HEAD


def _classes(*labels):
  return checkpoints.Head("classification", labels)


_NUMBER = checkpoints.Head("regression")
_CHOICE = checkpoints.Head("multiple_choice")


def _task(*labels, head="classification"):
  settings = {"labels": list(labels) or None}
  return {"task": "own", "head": head, "settings": settings}


@pytest.mark.parametrize(
  "where, data, head, rows, noted",
  [
    ("", _task(*"abc"), _classes(*"cab"), [2, 0, 1], "kept.*c, a, b.*a, b, c"),
    # Without the labels of the task.
    (
      "model.ckpt-5",
      _task(),
      _classes(*"abc"),
      [0, 1, 2],
      "warning: .*a, b, c",
    ),
    (
      "best",
      _task(*"abc"),
      _classes(*"abd"),
      None,
      "new head.*a, b, d.*a, b, c",
    ),
    ("best", _task(head="regression"), _NUMBER, [0], "kept, for a number"),
    (
      "",
      _task(head="multiple_choice"),
      _NUMBER,
      None,
      "new head.*options of a",
    ),
    ("", _task(head="multiple_choice"), _CHOICE, [0], "kept, for the options"),
  ],
)
def test_heads_are_matched_by_their_meaning(
  tmp_path, where, data, head, rows, noted
):
  size = 3 if head.kind == "classification" else 1
  source, model = classifier(size), classifier(size)
  source.classifier.output_bias.assign(tf.range(1.0, 1.0 + size))
  before = model.classifier.output_weights.numpy()
  if head == _NUMBER:  # In other scales, it computes the same.
    source.classifier.set_target_scale([3.0, 0.5], keep_outputs=False)
    model.classifier.set_target_scale([-7.0, 0.25], keep_outputs=False)
  runs.write_run(str(tmp_path), SMALL, {}, data)
  save(tmp_path, source)
  save_best(tmp_path, source)
  report = checkpoints.warm_start(model, str(tmp_path / where), head)
  (note,) = report.notes
  assert re.search(noted, note) and f"\n  {note}" in str(report)
  if rows is None:
    assert report.missing == HEAD
    np.testing.assert_array_equal(model.classifier.output_weights, before)
    assert not model.classifier.output_bias.numpy().any()
  elif head == _NUMBER:
    assert not report.missing
    x = tf.random.normal([3, SMALL.hidden_size])
    np.testing.assert_allclose(
      model.classifier(x), source.classifier(x), rtol=1e-5
    )
    assert model.classifier.target_scale.numpy().tolist() == [-7.0, 0.25]
    checkpoints.warm_start(model, str(tmp_path / where))  # To predict.
    assert model.classifier.target_scale.numpy().tolist() == [3.0, 0.5]
    assert_same_weights(source, model)
  else:
    assert not report.missing
    weights = source.classifier.output_weights.numpy()[rows]
    np.testing.assert_array_equal(model.classifier.output_weights, weights)
    bias = np.array([1.0, 2.0, 3.0])[rows]
    np.testing.assert_array_equal(model.classifier.output_bias, bias)
  assert_same_weights(source.albert, model.albert)


@pytest.mark.golden
def test_checkpoints_of_the_original(tmp_path):
  folder = toy_models.GOLDEN / "one_group"
  config = toy_models.golden_config("one_group")
  model, path = classifier(4, config), str(folder / "model.ckpt")
  report = checkpoints.warm_start(model, path)
  assert len(report.matched) == len(model.albert.weights) == 25
  np.testing.assert_array_equal(
    model.albert.pooler.bias,
    tf.train.load_checkpoint(path).get_tensor("bert/pooler/dense/bias"),
  )
  assert report.missing == ("output_bias", "output_weights")
  assert len(report.unexpected) == 7
  assert {n.split("/")[1] for n in report.unexpected} == {
    "predictions",
    "seq_relationship",
  }
  # From a classifier with another number of classes, and with the same.
  path = str(folder / "classifier.ckpt")
  report = checkpoints.warm_start(model, path)
  assert report.missing == ("output_bias", "output_weights")
  assert not report.notes
  report = checkpoints.warm_start(classifier(3, config), path, _classes(*"abc"))
  assert "does not name the classes of its head" in report.notes[0]
  wide = classifier(4, dataclasses.replace(config, intermediate_size=9))
  with pytest.raises(ValueError, match="checkpoint is of another size"):
    checkpoints.warm_start(wide, path)


@pytest.mark.golden
def test_a_run_resumes_with_optimizer_state(tmp_path):
  # The encoder alone, as models with heads belong to tasks/.
  source = checkpoints.read_checkpoint(
    str(toy_models.GOLDEN / "one_group" / "trained_lamb.ckpt-10"),
    head="none",
    include_optimizer=True,
  )
  folder = str(tmp_path)
  checkpoints.WRITERS["official_albert"](source, folder)
  model = tf.Module()
  model.albert = AlbertModel(source.config)
  optimizer = training.LAMB(
    training.WarmupPolynomialDecay(0.00176, 12, 4), name="lamb"
  )
  optimizer._create_all_weights(model.trainable_variables)
  examples_seen = tf.Variable(np.int64(3))
  manager = training.CheckpointManager(
    folder, 1, model=model, optimizer=optimizer, examples_seen=examples_seen
  )
  assert manager.restore_latest().startswith("resumed from")
  assert int(optimizer.iterations) == 10 and int(examples_seen) == 0
  for name, variable in checkpoints.tf1_variables(model).items():
    for slot in ("m", "v"):
      np.testing.assert_array_equal(
        optimizer.get_slot(variable, slot),
        source.tensors[f"{name}/adam_{slot}"],
      )
