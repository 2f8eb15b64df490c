"""Tests of plain operations: the same numbers, and no trace of ours in them."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tensorflow as tf

from official_albert.modeling import fused_ops, plain_operations

B, S, N, D, H = 2, 5, 3, 4, 12


def _normal(*shape):
  values = np.random.default_rng(sum(shape)).normal(size=shape)
  return tf.constant(values, tf.float32)


_MASK = tf.constant([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
_CHAINS = {
  "gelu": (fused_ops.gelu, [_normal(B, S, H), _normal(H)]),
  "exact gelu": (
    functools.partial(fused_ops.gelu, approximate=False),
    [_normal(B, S, H), _normal(H)],
  ),
  "gelu without bias": (fused_ops.gelu, [_normal(B, S, H)]),
  "add_layer_norm": (
    lambda *a, compiled: fused_ops.add_layer_norm(*a, 1e-12, compiled),
    [_normal(B, S, H), _normal(H), _normal(B, S, H), _normal(H), _normal(H)],
  ),
  "split_heads": (
    lambda x, bias, compiled: tf.stack(
      fused_ops.split_heads(x, bias, 3, N, compiled)
    ),
    [_normal(B, S, 3 * H), _normal(3 * H)],
  ),
  "attention_probs": (
    lambda q, k, compiled: fused_ops.attention_probs(q, k, _MASK, compiled),
    [_normal(B, N, S, D), _normal(B, N, S, D)],
  ),
  "shared_kernel": (
    lambda x, compiled: sum(
      fused_ops.shared_kernel(x, 2, tf.float32, compiled)
    ),
    [_normal(H, S)],
  ),
}


def _function(chain):
  def compute(*inputs):
    return _CHAINS[chain][0](*inputs, compiled=True)

  return tf.function(compute, autograph=False)


def _with_gradients(function, inputs):
  with tf.GradientTape() as tape:
    tape.watch(inputs)
    y = function(*inputs)
    weighted = tf.reduce_sum(y * _normal(*y.shape))
  return [y, *tape.gradient(weighted, inputs)]


@pytest.mark.parametrize("chain", _CHAINS)
def test_values_and_gradients_stay(chain):
  inputs = _CHAINS[chain][1]
  expected = _with_gradients(_function(chain), inputs)
  plain = _function(chain)
  with plain_operations.plain_operations_only():
    graph = plain.get_concrete_function(*inputs).graph
  got = _with_gradients(plain, inputs)
  for a, b in zip(expected, got):
    # The same sums in another order; the largest values are about 10.
    np.testing.assert_allclose(a, b, atol=2e-5)
  text = str(graph.as_graph_def())
  assert "_gradient_op_type" not in text and "XlaMustCompile" not in text
  # What the test would see otherwise.
  usual = _function(chain).get_concrete_function(*inputs).graph
  usual = str(usual.as_graph_def())
  assert "gradient_op_type" in usual or chain == "shared_kernel"


def test_nothing_stays_switched_on():
  with pytest.raises(KeyError), plain_operations.plain_operations_only():
    assert plain_operations.plain_operations_wanted()
    raise KeyError
  assert not plain_operations.plain_operations_wanted()


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
