"""A frozen encoder computes what the model does."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from official_albert import AlbertConfig, AlbertModel
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


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
