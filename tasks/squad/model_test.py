"""Compares both heads with the original's numbers."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest
import tensorflow as tf

from official_albert import checkpoints, modeling
from tasks.squad import model as model_lib

TASK = pathlib.Path(__file__).parent / "testdata"
ALBERT = pathlib.Path(__file__).parents[2] / "official_albert" / "testdata"
GROUPS = ("one_group", "two_groups")


def golden(group, name):
  return np.load(TASK / group / f"{name}_outputs.npz")


def load_v2(group):
  config = modeling.AlbertConfig.from_json_file(
    str(ALBERT / group / "albert_config.json")
  )
  model = model_lib.AlbertForSpansOrNone(config, 3, 2)
  path = str(TASK / group / "squad_v2.ckpt")
  report = checkpoints.load_tf1_checkpoint(model, path)
  assert not report.missing and not report.unexpected
  stored = np.load(ALBERT / group / "pretraining_batch.npz")
  batch = {name: tf.constant(stored[name]) for name in modeling.INPUTS}
  p_mask = golden(group, "squad_v2_inference")["p_mask"]
  return model, {**batch, "p_mask": tf.constant(p_mask)}


def test_squad_v2_has_the_same_outputs_in_training():
  """A functional Keras model identifies outputs by their order."""
  model, batch = load_v2(GROUPS[0])
  outputs = [model(batch, training=training) for training in (False, True)]
  assert list(outputs[0]) == list(outputs[1])
  assert outputs[1]["end_top_index"].shape == [len(batch["p_mask"]), 3 * 2]


@pytest.mark.parametrize("group", GROUPS)
def test_squad_v2_training_equals_the_original(group):
  model, batch = load_v2(group)
  expected = golden(group, "squad_v2_training")
  starts = tf.constant(expected["start_positions"])
  outputs = model({**batch, "start_positions": starts})
  for name in ("start_log_probs", "end_log_probs", "cls_logits"):
    # Impossible positions have log-probabilities of -1e30.
    np.testing.assert_allclose(
      outputs[name], expected[name], rtol=1e-6, atol=1e-5
    )


@pytest.mark.parametrize("group", GROUPS)
def test_squad_v2_beam_equals_the_original(group):
  model, batch = load_v2(group)
  expected = golden(group, "squad_v2_inference")
  outputs = model(batch)
  for name in ("start_top_index", "end_top_index"):
    np.testing.assert_array_equal(outputs[name], expected[name])
  for name in ("start_top_log_probs", "end_top_log_probs", "cls_logits"):
    np.testing.assert_allclose(outputs[name], expected[name], atol=1e-5)


def test_beam_wider_than_the_sequence():
  config = modeling.AlbertConfig.from_preset("albert_tiny")
  model = model_lib.AlbertForSpansOrNone(config, 5, 7)
  ids = tf.ones([2, 3], tf.int32)
  outputs = model({"input_ids": ids, "p_mask": tf.zeros([2, 3])})
  assert outputs["start_top_index"].shape == [2, 3]
  assert outputs["end_top_index"].shape == [2, 9]


@pytest.mark.parametrize(
  "build", [model_lib.AlbertForSpans, model_lib.AlbertForSpansOrNone]
)
def test_configuration_round_trip(build):
  config = modeling.AlbertConfig.from_preset("albert_tiny")
  model = build(config, recompute_activations=True, layerwise_lr_decay=0.5)
  again = build.from_config(model.get_config())
  assert again.get_config() == model.get_config()
  assert again.count_params() == model.count_params()
  for made in (model, again):
    assert made.albert.encoder.recompute_activations
    assert made.albert.encoder.layerwise_lr_decay == 0.5


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
