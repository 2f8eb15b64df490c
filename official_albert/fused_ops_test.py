"""Tests of the chains against TensorFlow's own operations and gradients."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from official_albert import fused_ops

B, S, N, H, V = 3, 7, 2, 10, 97

compiled_or_not = pytest.mark.parametrize("compiled", [False, True])
dtypes = pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])


def normal(*shape, seed=0, dtype=tf.float32):
  values = np.random.default_rng(seed).normal(size=shape)
  return tf.cast(values, dtype)


def compare(ours, theirs, inputs, dtype=tf.float32):
  """Values and gradients; theirs are computed in float32.

  bfloat16 has 8 bits: a rounding is 0.4% of values up to about 5.
  """
  atol = 2e-6 if dtype == tf.float32 else 0.04
  exact = [tf.cast(x, tf.float32) for x in inputs]
  with tf.GradientTape() as tape, tf.GradientTape() as other:
    tape.watch(inputs)
    other.watch(exact)
    y, expected = ours(*inputs), theirs(*exact)
    weights = normal(*y.shape, seed=9)
    total = tf.reduce_sum(tf.cast(y, tf.float32) * weights)
    expected_total = tf.reduce_sum(expected * weights)
  assert y.dtype == inputs[0].dtype
  np.testing.assert_allclose(tf.cast(y, tf.float32), expected, atol=atol)
  pairs = zip(
    tape.gradient(total, inputs), other.gradient(expected_total, exact), inputs
  )
  for gradient, expected_gradient, x in pairs:
    assert gradient.dtype == x.dtype and gradient.shape == x.shape
    np.testing.assert_allclose(
      tf.cast(gradient, tf.float32), expected_gradient, atol=4 * atol
    )


@dtypes
@compiled_or_not
def test_gelu(compiled, dtype):
  compare(
    lambda x: fused_ops.gelu(x, compiled),
    lambda x: tf.nn.gelu(x, approximate=True),
    [tf.cast(tf.linspace(-6.0, 6.0, 1001), dtype)],
    dtype,
  )


@dtypes
@compiled_or_not
@pytest.mark.parametrize("residual", [False, True])
def test_layer_norm(compiled, dtype, residual):
  def theirs(x, gamma, beta, *residuals):
    x = tf.add_n([x, *residuals])
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    return tf.nn.batch_normalization(x, mean, variance, beta, gamma, 1e-12)

  def ours(x, gamma, beta, *residuals):
    other = residuals[0] if residuals else None
    return fused_ops.add_layer_norm(x, other, gamma, beta, 1e-12, compiled)

  inputs = [
    normal(B, S, H, dtype=dtype),
    normal(H, seed=1),
    normal(H, seed=2),
  ]
  if residual:
    inputs.append(normal(B, S, H, seed=3, dtype=dtype))
  compare(ours, theirs, inputs, dtype)


@dtypes
@compiled_or_not
def test_attention_probs(compiled, dtype):
  lengths = np.array([[S], [4], [1]])
  mask = tf.constant((np.arange(S) < lengths).astype(np.int32))

  def theirs(scores):
    real = tf.cast(mask, tf.bool)[:, None, None, :]
    return tf.nn.softmax(tf.where(real, scores, -np.inf))

  scores = normal(B, N, S, S, dtype=dtype)
  probs = fused_ops.attention_probs(scores, mask, compiled)
  padding = np.broadcast_to(mask[:, None, None, :] == 0, probs.shape)
  assert not np.any(tf.cast(probs, tf.float32).numpy()[padding])
  compare(
    lambda x: fused_ops.attention_probs(x, mask, compiled),
    theirs,
    [scores],
    dtype,
  )


@compiled_or_not
def test_cross_entropy(compiled):
  labels = tf.constant(np.arange(B * S).reshape(B, S) * 4, tf.int32)
  compare(
    lambda x: fused_ops.cross_entropy(x, labels, compiled),
    lambda x: tf.nn.sparse_softmax_cross_entropy_with_logits(labels, x),
    [30 * normal(B, S, V)],
  )


@compiled_or_not
@pytest.mark.parametrize("label", [-1, V])
def test_a_label_that_does_not_exist_has_no_loss(compiled, label):
  logits, labels = normal(2, V), tf.constant([label, 3])
  loss = fused_ops.cross_entropy(logits, labels, compiled).numpy()
  assert np.isnan(loss).tolist() == [True, False]


def test_plain_chains_hold_no_compiled_function():
  """A server without XLA must be able to load an export."""

  @tf.function
  def chain(x):
    return fused_ops.gelu(x)

  graph = chain.get_concrete_function(tf.TensorSpec([None, H])).graph
  assert not any(
    op.type.endswith("PartitionedCall") for op in graph.get_operations()
  )


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
