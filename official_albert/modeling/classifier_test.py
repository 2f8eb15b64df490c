"""Tests of AlbertForSequenceClassification against the original's numbers."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest
import tensorflow as tf

from official_albert import checkpoints
from official_albert.modeling.config import AlbertConfig
from official_albert.modeling.inputs import INPUTS
from official_albert.modeling.model import AlbertForSequenceClassification

GOLDEN = pathlib.Path(__file__).parents[1] / "testdata"
GROUPS = ("one_group", "two_groups")


def load(group, kind, num_classes):
  folder = GOLDEN / group
  config = AlbertConfig.from_json_file(str(folder / "albert_config.json"))
  model = AlbertForSequenceClassification(config, num_classes)
  report = checkpoints.load_tf1_checkpoint(model, str(folder / f"{kind}.ckpt"))
  assert not report.missing and not report.unexpected
  stored = np.load(folder / "pretraining_batch.npz")
  golden = np.load(folder / f"{kind}_outputs.npz")
  batch = {name: tf.constant(stored[name]) for name in INPUTS}
  return model, batch, golden


@pytest.mark.parametrize("logits_only", [False, True])
@pytest.mark.parametrize("group", GROUPS)
def test_classes_equal_the_original(group, logits_only):
  golden = np.load(GOLDEN / group / "classifier_outputs.npz")
  model, batch, golden = load(group, "classifier", golden["logits"].shape[1])
  outputs = model(batch, logits_only=logits_only)
  assert ("sequence_output" in outputs) != logits_only
  logits = outputs["logits"]
  np.testing.assert_allclose(logits, golden["logits"], atol=1e-5)
  np.testing.assert_allclose(
    tf.nn.softmax(logits), golden["probabilities"], atol=1e-5
  )


@pytest.mark.parametrize("group", GROUPS)
def test_regression_equals_the_original(group):
  model, batch, golden = load(group, "regression", 1)
  logits = model(batch)["logits"][:, 0]
  np.testing.assert_allclose(logits, golden["logits"], atol=1e-5)
  np.testing.assert_allclose(
    (logits - golden["labels"]) ** 2, golden["per_example_loss"], atol=1e-5
  )


def test_classifier_dropout_follows_the_seed():
  model, batch, _ = load("one_group", "regression", 1)
  model.classifier.dropout_prob = 0.5
  assert model.config.hidden_dropout_prob == 0

  def logits(seed, training=True):
    return model(batch, training, tf.constant(seed))["logits"].numpy()

  np.testing.assert_array_equal(logits([1, 2]), logits([1, 2]))
  assert np.any(logits([1, 2]) != logits([1, 3]))
  np.testing.assert_allclose(
    logits([1, 2], False), model(batch)["logits"], atol=0
  )


def test_configuration_round_trip():
  config = AlbertConfig.from_preset("albert_tiny")
  model = AlbertForSequenceClassification(config, 3, 0.25)
  again = AlbertForSequenceClassification.from_config(model.get_config())
  assert again.get_config() == model.get_config()
  assert again.classifier.output_weights.shape == [3, config.hidden_size]


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
