"""Tests of LayerNorm's dtypes, weights and serialization."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from official_albert.modeling import layer_norm

B, S, H = 3, 7, 10


def test_equals_numpy():
  rng = np.random.default_rng(0)
  x = rng.normal(size=[B, S, H]).astype(np.float32)
  layer = layer_norm.LayerNorm()
  layer.build([B, S, H])
  gamma, beta = rng.normal(size=[2, H])
  layer.set_weights([gamma, beta])
  expected = (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)
  np.testing.assert_allclose(layer(x), expected * gamma + beta, atol=1e-5)
  assert [v.name for v in layer.weights] == ["gamma:0", "beta:0"]


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "bfloat16", "float16"])
def test_dtypes(policy):
  layer = layer_norm.LayerNorm(dtype=policy)
  dtype = tf.dtypes.as_dtype(layer.compute_dtype)
  y = layer(tf.ones([B, H], dtype))
  assert y.dtype == dtype
  assert {v.dtype for v in layer.weights} == {tf.float32}


def test_serialization():
  layer = layer_norm.LayerNorm(epsilon=1e-6, name="LayerNorm")
  clone = layer_norm.LayerNorm.from_config(layer.get_config())
  assert (clone.epsilon, clone.name) == (1e-6, "LayerNorm")


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
