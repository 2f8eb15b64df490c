"""Tests of LayerNorm's dtypes, weights and serialization."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from official_albert.modeling import layer_norm

B, S, H = 3, 7, 10


def test_equals_numpy_with_a_residual():
  rng = np.random.default_rng(0)
  x, residual = rng.normal(size=[2, B, S, H]).astype(np.float32)
  layer = layer_norm.LayerNorm()
  layer.build([B, S, H])
  gamma, beta = rng.normal(size=[2, H])
  layer.set_weights([gamma, beta])
  y = x + residual
  expected = (y - y.mean(-1, keepdims=True)) / y.std(-1, keepdims=True)
  np.testing.assert_allclose(
    layer(x, residual=residual), expected * gamma + beta, atol=1e-5
  )
  assert [v.name for v in layer.weights] == ["gamma:0", "beta:0"]


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "bfloat16", "float16"])
def test_weights_stay_float32_and_the_result_keeps_its_dtype(policy):
  layer = layer_norm.LayerNorm(dtype=policy)
  dtype = tf.dtypes.as_dtype(layer.compute_dtype)
  y = layer(tf.ones([B, H], dtype))
  assert y.dtype == dtype
  assert {v.dtype for v in layer.weights} == {tf.float32}


def test_other_residuals_are_refused():
  layer = layer_norm.LayerNorm()
  with pytest.raises(ValueError, match="residual"):
    layer(tf.ones([B, S, H]), residual=tf.ones([1, S, H]))
  with pytest.raises(ValueError, match="residual is"):
    layer(tf.ones([B, H]), residual=tf.ones([B, H], tf.bfloat16))


def test_serialization():
  layer = layer_norm.LayerNorm(epsilon=1e-6, name="LayerNorm")
  clone = layer_norm.LayerNorm.from_config(layer.get_config())
  assert (clone.epsilon, clone.name) == (1e-6, "LayerNorm")


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
