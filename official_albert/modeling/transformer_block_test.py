"""Tests of self-attention and the feed-forward network against NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf

from official_albert.modeling import transformer_block
from official_albert.modeling.config import AlbertConfig

B, S, N, D, INTERMEDIATE = 3, 7, 2, 5, 13
H = N * D


def make(layer_class, **changes):
  return layer_class(
    AlbertConfig(
      hidden_size=H,
      num_attention_heads=N,
      intermediate_size=INTERMEDIATE,
      **changes,
    )
  )


def randomize(layer, seed=0):
  rng = np.random.default_rng(seed)
  for variable in layer.weights:
    variable.assign(rng.normal(size=variable.shape) * 0.5)


def norm(x, layer):
  x = (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)
  return x * layer.gamma.numpy() + layer.beta.numpy()


def hidden(seed=1):
  return np.random.default_rng(seed).normal(size=[B, S, H]).astype(np.float32)


def mask():
  lengths = np.array([[S], [4], [1]])
  return (np.arange(S) < lengths).astype(np.int32)


def test_self_attention_equals_numpy():
  layer = make(transformer_block.SelfAttention)
  x, m = hidden(), mask()
  layer(x, tf.constant(m))
  randomize(layer)

  def project(part):
    y = x @ part.kernel.numpy() + part.bias.numpy()
    return y.reshape(B, S, N, D)

  q, k, v = map(project, (layer.query, layer.key, layer.value))
  context = np.zeros([B, S, N, D])
  for b in range(B):
    length = m[b].sum()
    for n in range(N):
      scores = q[b, :, n] @ k[b, :length, n].T / math.sqrt(D)
      weights = np.exp(scores - scores.max(-1, keepdims=True))
      weights /= weights.sum(-1, keepdims=True)
      context[b, :, n] = weights @ v[b, :length, n]
  out = layer.output_dense
  y = context.reshape(B, S, H) @ out.kernel.numpy() + out.bias.numpy()
  expected = norm(x + y, layer.layer_norm)
  np.testing.assert_allclose(layer(x, tf.constant(m)), expected, atol=2e-5)


@pytest.mark.parametrize("act", ["gelu", "relu"])
def test_feed_forward_equals_numpy(act):
  layer = make(transformer_block.FeedForward, hidden_act=act)
  x = hidden()
  layer(x)
  randomize(layer)
  y = x @ layer.intermediate.kernel.numpy() + layer.intermediate.bias.numpy()
  if act == "gelu":
    inner = math.sqrt(2 / math.pi) * (y + 0.044715 * y**3)
    y = 0.5 * y * (1 + np.tanh(inner))
  else:
    y = np.maximum(y, 0)
  y = y @ layer.output_dense.kernel.numpy() + layer.output_dense.bias.numpy()
  expected = norm(x + y, layer.layer_norm)
  np.testing.assert_allclose(layer(x), expected, atol=2e-5)


def test_padding_does_not_change_real_tokens():
  layer = make(transformer_block.SelfAttention)
  x, m = hidden(), mask()
  layer(x, tf.constant(m))
  randomize(layer)
  other = np.where(m[..., None] == 1, x, 100.0 * hidden(seed=2))
  before = layer(x, tf.constant(m)).numpy()
  after = layer(other.astype(np.float32), tf.constant(m)).numpy()
  np.testing.assert_array_equal(before[m == 1], after[m == 1])


def test_dropout_follows_the_seed():
  layer = make(
    transformer_block.SelfAttention,
    attention_probs_dropout_prob=0.4,
    hidden_dropout_prob=0.3,
  )
  x, m = hidden(), tf.constant(mask())
  seed = tf.constant([1, 2])
  first = layer(x, m, True, seed).numpy()
  np.testing.assert_array_equal(first, layer(x, m, True, seed))
  assert np.any(first != layer(x, m, True, tf.constant([1, 3])).numpy())
  assert np.any(first != layer(x, m, False, seed).numpy())


@pytest.mark.parametrize(
  "layer_class",
  [transformer_block.SelfAttention, transformer_block.FeedForward],
)
def test_config_round_trip(layer_class):
  layer = make(layer_class, hidden_dropout_prob=0.25)
  clone = layer_class.from_config(layer.get_config())
  assert clone.config == layer.config and clone.name == layer.name


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
