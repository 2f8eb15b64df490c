"""Compares the multiple-choice head with the original's numbers."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest
import tensorflow as tf

from official_albert import checkpoints, modeling
from tasks.race import model as model_lib

TASK = pathlib.Path(__file__).parent / "testdata"
ALBERT = pathlib.Path(__file__).parents[2] / "official_albert" / "testdata"
FEATURES = ("input_ids", "input_mask", "segment_ids")


def load(group):
  config = modeling.AlbertConfig.from_json_file(
    str(ALBERT / group / "albert_config.json")
  )
  model = model_lib.AlbertForMultipleChoice(config)
  report = checkpoints.load_tf1_checkpoint(
    model, str(TASK / group / "multiple_choice.ckpt")
  )
  assert not report.missing and not report.unexpected
  return model


@pytest.mark.parametrize("group", ["one_group", "two_groups"])
def test_scores_equal_the_original(group):
  model = load(group)
  batch = dict(np.load(ALBERT / group / "pretraining_batch.npz"))
  # Rows 0 and 1 are the two options of one question.
  options = {name: tf.constant(batch[name][None, :2]) for name in FEATURES}
  golden = np.load(TASK / group / "multiple_choice_outputs.npz")
  logits = model(options)["logits"]
  np.testing.assert_allclose(logits, golden["logits"], atol=1e-5)
  np.testing.assert_allclose(
    tf.nn.softmax(logits), golden["probabilities"], atol=1e-5
  )


def test_options_are_scored_independently():
  # The golden weights are large, so that wrong scores differ clearly.
  model = load("one_group")
  ids = tf.reshape(tf.range(2 * 3 * 5), [2, 3, 5])
  logits = model({"input_ids": ids})["logits"]
  alone = [
    model({"input_ids": ids[b : b + 1, o : o + 1]})["logits"]
    for b in range(2)
    for o in range(3)
  ]
  np.testing.assert_allclose(logits, np.reshape(alone, [2, 3]), atol=1e-5)
  assert np.min(np.diff(np.sort(logits, axis=None))) > 1e-3


def test_configuration_round_trip():
  model = model_lib.AlbertForMultipleChoice(
    modeling.AlbertConfig.from_preset("albert_tiny"), 0.25
  )
  again = model_lib.AlbertForMultipleChoice.from_config(model.get_config())
  assert again.get_config() == model.get_config()
  assert again.classifier.dropout_prob == 0.25


def test_training_settings_reach_the_encoder():
  config = modeling.AlbertConfig.from_json_file(
    str(ALBERT / "one_group" / "albert_config.json")
  )
  model = model_lib.AlbertForMultipleChoice(
    config, recompute_activations=True, layerwise_lr_decay=0.5
  )
  for made in (model, type(model).from_config(model.get_config())):
    assert made.albert.encoder.recompute_activations
    assert made.albert.encoder.layerwise_lr_decay == 0.5


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
