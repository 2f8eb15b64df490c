"""A frozen encoder computes what the model does."""

from __future__ import annotations

import os

import numpy as np
import pytest
import tensorflow as tf

from official_albert import AlbertConfig, AlbertModel, distribution, modeling
from official_albert.serving import frozen_encoder

_SIZES = dict(
  vocab_size=97,
  embedding_size=10,
  hidden_size=24,
  num_hidden_layers=3,
  num_attention_heads=4,
  intermediate_size=36,
  max_position_embeddings=14,
)


def _model(**changes) -> AlbertModel:
  """With random weights everywhere: zeros would hide a bias left out."""
  model = AlbertModel(AlbertConfig(**{**_SIZES, **changes}))
  generator = np.random.default_rng(5)
  for variable in model.variables:
    noise = generator.normal(0, 0.3, variable.shape)
    variable.assign_add(noise.astype(np.float32))
  return model


def _features(batch=3, length=7) -> dict[str, tf.Tensor]:
  generator = np.random.default_rng(batch)
  ids = generator.integers(0, 97, [batch, length])
  mask = np.arange(length) < generator.integers(2, length, [batch, 1])
  segments = generator.integers(0, 2, [batch, length])
  return {
    "input_ids": tf.constant(ids, tf.int32),
    "input_mask": tf.constant(mask, tf.int32),
    "segment_ids": tf.constant(segments, tf.int32),
  }


@pytest.mark.parametrize(
  "changes",
  [
    {},
    {"num_hidden_groups": 3},
    {"num_hidden_layers": 4, "num_hidden_groups": 2, "inner_group_num": 2},
    {"sharing": "attention"},
    {"sharing": "none"},
    {"embedding_size": 24},
    {"embedding_size": 24, "always_project_embedding": True},
    {"hidden_act": "relu"},
    {"hidden_act": "gelu_erf"},
  ],
  ids=lambda changes: ",".join(f"{k}={v}" for k, v in changes.items()),
)
def test_it_equals_the_model(changes):
  model = _model(**changes)
  frozen = tf.function(frozen_encoder.FrozenEncoder(model, tf.float32))
  features = _features()
  expected, got = model(features), frozen(features)
  for name in ("sequence_output", "pooled_output", "embedding_output"):
    # Sums of at most 36 numbers of size 1, in another order.
    np.testing.assert_allclose(got[name], expected[name], rtol=0, atol=2e-5)


def test_what_may_be_left_out():
  model = _model()
  frozen = tf.function(frozen_encoder.FrozenEncoder(model, tf.float32))
  only_ids = {"input_ids": _features()["input_ids"]}
  np.testing.assert_allclose(
    frozen(only_ids)["pooled_output"],
    model(only_ids)["pooled_output"],
    rtol=0,
    atol=2e-5,
  )


def test_chosen_positions_follow_the_first():
  model = _model()
  frozen = tf.function(frozen_encoder.FrozenEncoder(model, tf.float32))
  positions = tf.constant([[5, 2], [0, 6], [1, 1]])
  arguments = dict(output_positions=positions)
  expected = model(_features(), **arguments)["sequence_output"]
  got = frozen(_features(), **arguments)["sequence_output"]
  assert got.shape == (3, 3, 24)
  np.testing.assert_allclose(got, expected, rtol=0, atol=2e-5)


def test_bfloat16_is_near():
  model = _model()
  frozen = tf.function(frozen_encoder.FrozenEncoder(model, tf.bfloat16))
  expected = model(_features())["sequence_output"].numpy()
  got = frozen(_features())["sequence_output"]
  assert got.dtype == tf.bfloat16
  # LayerNorm's outputs are of size 1; bfloat16 keeps 8 bits of each number on
  # the way through three layers.
  difference = np.abs(tf.cast(got, tf.float32).numpy() - expected)
  assert 0 < difference.mean() < 0.02 and difference.max() < 0.15


@pytest.mark.parametrize(
  "changes, functions", [({}, 1), ({"num_hidden_groups": 3}, 3)]
)
def test_the_graph_has_each_block_once(changes, functions):
  frozen = frozen_encoder.FrozenEncoder(_model(**changes), tf.float32)
  concrete = tf.function(frozen).get_concrete_function(
    {"input_ids": tf.TensorSpec([None, None], tf.int32)}
  )
  graph = concrete.graph.as_graph_def()
  assert len(graph.library.function) == functions
  calls = [n.attr["f"].func.name for n in graph.node if "Call" in n.op]
  assert len(calls) == 3 and len(set(calls)) == functions
  # Neither variables nor a compiler that a server may not have.
  nodes = [n for f in graph.library.function for n in f.node_def]
  for node in [*graph.node, *nodes]:
    assert "Variable" not in node.op and "_XlaMustCompile" not in node.attr


def test_it_cannot_be_trained():
  frozen = frozen_encoder.FrozenEncoder(_model(), tf.float32)
  with pytest.raises(ValueError, match="cannot be trained"):
    frozen(_features(), training=True)


def test_it_has_the_depth_that_was_frozen():
  frozen = frozen_encoder.FrozenEncoder(_model(), tf.float32)
  features = _features()
  np.testing.assert_array_equal(
    frozen(features, num_layers=3)["pooled_output"],
    frozen(features)["pooled_output"],
  )
  with pytest.raises(ValueError, match="has its 3 layers and no others"):
    frozen(features, num_layers=2)


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
  run = frozen_encoder.freeze(
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
  frozen_encoder.freeze_encoder(model, "float32")
  run = frozen_encoder.freeze(
    lambda features: model(features, training=False, logits_only=True), [_IDS]
  )
  np.testing.assert_allclose(
    run(features)["logits"], expected, rtol=0, atol=1e-6
  )


def test_what_is_frozen_stays_as_it_is():
  model = modeling.AlbertForSequenceClassification(_CONFIG, 3)
  assert frozen_encoder.freeze_encoder(model, "float32") is model
  frozen = model.albert
  assert frozen_encoder.freeze_encoder(frozen, "float32") is frozen
  assert frozen_encoder.freeze_encoder(model, "float32").albert is frozen
  for again in (model, frozen):
    with pytest.raises(
      ValueError, match="frozen in float32 already: .* bfloat"
    ):
      frozen_encoder.freeze_encoder(again, "bfloat16")


def test_signatures_share_one_copy(tmp_path):
  model = AlbertModel(_CONFIG)
  weights = sum(v.numpy().nbytes for v in model.variables)
  frozen = frozen_encoder.freeze_encoder(model, "float32")
  run = frozen_encoder.freeze(
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
    frozen = frozen_encoder.freeze_encoder(model, "bfloat16")
    run = frozen_encoder.freeze(
      lambda features: {"pooled": frozen(features)["pooled_output"]}, [_IDS]
    )
    size = run.concrete.graph.as_graph_def().ByteSize()
    assert 0.5 * weights < size < 0.75 * weights
  finally:
    distribution.set_precision("float32")


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
