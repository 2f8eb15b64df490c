"""Frozen functions: constants, once in a SavedModel, and no variables."""

from __future__ import annotations

import os

import numpy as np
import pytest
import tensorflow as tf

from official_albert import AlbertConfig, AlbertModel, distribution, modeling
from official_albert.serving import freezing

_CONFIG = AlbertConfig(
  vocab_size=997,
  embedding_size=30,
  hidden_size=48,
  num_hidden_layers=5,
  num_attention_heads=4,
  intermediate_size=76,
  max_position_embeddings=14,
)
_IDS = tf.TensorSpec([None, None], tf.int32, "input_ids")


def test_variables_become_their_present_values():
  variable = tf.Variable([2.0, 3.0])
  run = freezing.freeze(
    lambda features: {
      "b": features["x"] * variable,
      "a": features["x"] + features["y"],
    },
    [tf.TensorSpec([None, 2], name="x"), tf.TensorSpec([], name="y")],
  )
  variable.assign([0.0, 0.0])
  got = run({"y": 7.0, "x": [[1.0, 5.0]], "other": 1})
  np.testing.assert_array_equal(got["b"], [[2.0, 15.0]])
  np.testing.assert_array_equal(got["a"], [[8.0, 12.0]])


def test_a_head_on_a_frozen_encoder():
  model = modeling.AlbertForSequenceClassification(_CONFIG, 3)
  features = {"input_ids": tf.constant([[5, 9, 33], [2, 3, 996]])}
  expected = model(features, logits_only=True)["logits"]
  freezing.freeze_encoder(model, "float32")
  run = freezing.freeze(
    lambda features: model(features, training=False, logits_only=True), [_IDS]
  )
  np.testing.assert_allclose(
    run(features)["logits"], expected, rtol=0, atol=1e-6
  )


def test_what_is_frozen_stays_as_it_is():
  model = modeling.AlbertForSequenceClassification(_CONFIG, 3)
  assert freezing.freeze_encoder(model, "float32") is model
  frozen = model.albert
  assert freezing.freeze_encoder(frozen, "float32") is frozen
  assert freezing.freeze_encoder(model, "float32").albert is frozen
  for again in (model, frozen):
    with pytest.raises(
      ValueError, match="frozen in float32 already: .* bfloat"
    ):
      freezing.freeze_encoder(again, "bfloat16")


def test_signatures_share_one_copy(tmp_path):
  model = AlbertModel(_CONFIG)
  weights = sum(v.numpy().nbytes for v in model.variables)
  frozen = freezing.freeze_encoder(model, "float32")
  run = freezing.freeze(
    lambda features: {"pooled": frozen(features)["pooled_output"]}, [_IDS]
  )

  @tf.function(input_signature=[tf.TensorSpec([None], tf.int32, "id")])
  def other(id):
    return run({"input_ids": id[:, None]})

  signatures = {
    "one": tf.function(
      lambda input_ids: run({"input_ids": input_ids}), input_signature=[_IDS]
    ),
    "other": other,
  }
  tf.saved_model.save(tf.Module(), str(tmp_path), signatures=signatures)
  size = os.path.getsize(tmp_path / "saved_model.pb")
  assert weights < size < 1.5 * weights
  assert os.path.getsize(tmp_path / "variables" / "variables.index") < 200
  loaded = tf.saved_model.load(str(tmp_path)).signatures
  ids = tf.constant([[5], [9], [33]])
  expected = model({"input_ids": ids})["pooled_output"]
  for got in (loaded["one"](input_ids=ids), loaded["other"](id=ids[:, 0])):
    np.testing.assert_allclose(got["pooled"], expected, rtol=0, atol=1e-6)


def test_bfloat16_halves_the_file():
  distribution.set_precision("mixed_bfloat16")
  try:
    model = AlbertModel(_CONFIG)
    weights = sum(v.numpy().nbytes for v in model.variables)
    frozen = freezing.freeze_encoder(model, "bfloat16")
    run = freezing.freeze(
      lambda features: {"pooled": frozen(features)["pooled_output"]}, [_IDS]
    )
    size = run.concrete.graph.as_graph_def().ByteSize()
    assert 0.5 * weights < size < 0.75 * weights
  finally:
    distribution.set_precision("float32")


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
