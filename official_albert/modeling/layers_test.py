"""Tests of the layers against NumPy, of dropout and of Keras configurations."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf

from official_albert.modeling import (
  factorized_embedding,
  heads,
  layers,
  shared_transformer_encoder,
  transformer_block,
)
from official_albert.modeling.config import AlbertConfig

B, S, P, V, E, N, D, I = 3, 7, 2, 23, 6, 2, 5, 13  # noqa: E741
H = N * D
CONFIG = dict(
  vocab_size=V,
  embedding_size=E,
  hidden_size=H,
  num_hidden_layers=3,
  num_attention_heads=N,
  intermediate_size=I,
  max_position_embeddings=11,
)
ATTENTION_MASK = (np.arange(S) < [[S], [4], [1]]).astype(np.int32)
SEED = tf.constant([1, 2])


def make(layer_class, **changes):
  return layer_class(AlbertConfig(**{**CONFIG, **changes}))


def normal(*shape, seed=1):
  values = np.random.default_rng(seed).normal(size=shape)
  return values.astype(np.float32)


def randomize(*parts):
  rng = np.random.default_rng(0)
  for variable in (v for part in parts for v in part.weights):
    variable.assign(rng.normal(size=variable.shape) * 0.5)


def norm(x, layer):
  x = (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)
  return x * layer.gamma.numpy() + layer.beta.numpy()


def linear(x, layer):
  return x @ layer.kernel.numpy() + layer.bias.numpy()


def ids():
  rng = np.random.default_rng(1)
  return rng.integers(0, V, [B, S]), rng.integers(0, 2, [B, S])


def test_embedding_equals_numpy():
  layer = make(factorized_embedding.FactorizedEmbedding)
  input_ids, segment_ids = ids()
  layer(input_ids, segment_ids)
  randomize(layer)
  hidden, embedded = layer(input_ids, segment_ids)
  x = (
    layer.word_embeddings.numpy()[input_ids]
    + layer.token_type_embeddings.numpy()[segment_ids]
    + layer.position_embeddings.numpy()[:S]
  )
  x = norm(x, layer.layer_norm)
  np.testing.assert_allclose(embedded, x, atol=1e-5)
  np.testing.assert_allclose(hidden, linear(x, layer.projection), atol=1e-5)
  zeros = np.zeros_like(segment_ids)
  np.testing.assert_array_equal(layer(input_ids)[0], layer(input_ids, zeros)[0])


def test_no_projection_when_the_widths_agree():
  layer = make(factorized_embedding.FactorizedEmbedding, hidden_size=E)
  hidden, embedded = layer(*ids())
  assert layer.projection is None
  np.testing.assert_array_equal(hidden, embedded)


def test_initializer_is_a_truncated_normal():
  layer = make(
    factorized_embedding.FactorizedEmbedding, vocab_size=3000, embedding_size=40
  )
  table = layer.word_embeddings.numpy()
  assert np.abs(table).max() <= 0.04  # two standard deviations
  # A normal distribution truncated at two standard deviations has 0.88 of
  # its deviation. Keras' parameter is the deviation before truncation.
  np.testing.assert_allclose(table.std(), 0.02 * 0.8796, rtol=0.02)


def test_self_attention_equals_numpy():
  layer = make(transformer_block.SelfAttention)
  x = normal(B, S, H)
  layer(x, ATTENTION_MASK)
  randomize(layer)
  q, k, v = (
    linear(x, part).reshape(B, S, N, D)
    for part in (layer.query, layer.key, layer.value)
  )
  context = np.zeros([B, S, N, D])
  for b, length in enumerate(ATTENTION_MASK.sum(axis=1)):
    for n in range(N):
      scores = q[b, :, n] @ k[b, :length, n].T / math.sqrt(D)
      weights = np.exp(scores - scores.max(-1, keepdims=True))
      weights /= weights.sum(-1, keepdims=True)
      context[b, :, n] = weights @ v[b, :length, n]
  y = linear(context.reshape(B, S, H), layer.output_dense)
  output = layer(x, ATTENTION_MASK).numpy()
  np.testing.assert_allclose(output, norm(x + y, layer.layer_norm), atol=2e-5)
  padding = ATTENTION_MASK[..., None] == 0
  other = np.where(padding, 100.0 * normal(B, S, H, seed=2), x)
  changed = layer(other.astype(np.float32), ATTENTION_MASK).numpy()
  real = ATTENTION_MASK == 1
  np.testing.assert_array_equal(output[real], changed[real])


@pytest.mark.parametrize("act", ["gelu", "relu"])
def test_feed_forward_equals_numpy(act):
  layer = make(transformer_block.FeedForward, hidden_act=act)
  x = normal(B, S, H)
  layer(x)
  randomize(layer)
  y = linear(x, layer.intermediate)
  if act == "gelu":
    inner = math.sqrt(2 / math.pi) * (y + 0.044715 * y**3)
    y = 0.5 * y * (1 + np.tanh(inner))
  else:
    y = np.maximum(y, 0)
  expected = norm(x + linear(y, layer.output_dense), layer.layer_norm)
  np.testing.assert_allclose(layer(x), expected, atol=2e-5)


def test_masked_lm_head_equals_numpy_and_is_tied_to_the_word_table():
  embedding = make(factorized_embedding.FactorizedEmbedding)
  head = make(heads.MaskedLMHead, hidden_act="relu")
  x = normal(B, S, H)
  positions = np.array([[0, 6], [3, 3], [5, 1]], np.int32)
  head(x, positions, embedding)
  randomize(head, embedding)
  with tf.GradientTape() as tape:
    logits = head(x, positions, embedding)
  gathered = np.stack([x[b, positions[b]] for b in range(B)])
  y = norm(np.maximum(linear(gathered, head.transform), 0), head.layer_norm)
  expected = y @ embedding.word_embeddings.numpy().T + head.output_bias.numpy()
  assert logits.shape == [B, P, V] and logits.dtype == tf.float32
  np.testing.assert_allclose(logits, expected, atol=1e-4)
  assert tape.gradient(logits, embedding.word_embeddings) is not None
  assert not any("word" in variable.name for variable in head.weights)


def test_sentence_order_head_equals_numpy():
  head = make(heads.SentenceOrderHead)
  pooled = normal(B, H)
  head.output_bias.assign([0.25, -0.5])
  assert head.output_weights.shape == [2, H]
  expected = pooled @ head.output_weights.numpy().T + [0.25, -0.5]
  np.testing.assert_allclose(head(pooled), expected, atol=1e-6)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "bfloat16", "float16"])
def test_layer_norm_has_float32_weights_and_the_dtype_of_its_input(policy):
  layer = layers.LayerNorm(dtype=policy)
  y = layer(tf.ones([B, H], layer.compute_dtype))
  assert y.dtype == layer.compute_dtype
  assert {v.dtype for v in layer.weights} == {tf.float32}


@pytest.mark.parametrize(
  "layer",
  [
    make(factorized_embedding.FactorizedEmbedding, hidden_dropout_prob=0.25),
    make(transformer_block.SelfAttention, hidden_dropout_prob=0.25),
    make(transformer_block.FeedForward, hidden_dropout_prob=0.25),
    layers.LayerNorm(epsilon=1e-6, name="LayerNorm"),
    make(heads.MaskedLMHead, hidden_act="relu"),
    make(heads.SentenceOrderHead),
    heads.ClassificationHead(AlbertConfig(**CONFIG), 3, 0.25),
    shared_transformer_encoder.SharedTransformerEncoder(
      AlbertConfig(**CONFIG), True, 0.9
    ),
  ],
)
def test_config_round_trip(layer):
  clone = type(layer).from_config(layer.get_config())
  assert clone.get_config() == layer.get_config()


def test_dropout_fraction_scale_and_seed():
  x = tf.ones([300, 400])
  y = layers.seeded_dropout(x, 0.3, True, SEED).numpy()
  # Four standard errors of the fraction of 120,000 draws.
  assert abs((y == 0).mean() - 0.3) < 4 * np.sqrt(0.3 * 0.7 / y.size)
  np.testing.assert_allclose(y[y != 0], 1 / 0.7, rtol=1e-6)
  np.testing.assert_array_equal(y, layers.seeded_dropout(x, 0.3, True, SEED))
  other = layers.seeded_dropout(x, 0.3, True, layers.fold_in(SEED, 1))
  assert np.any(y != other.numpy())
  unseeded = [layers.seeded_dropout(x, 0.5, True).numpy() for _ in range(2)]
  assert np.any(unseeded[0] != unseeded[1])
  assert layers.fold_in(None, 3) is None


@pytest.mark.parametrize(
  "training, rate", [(False, 0.5), (None, 0.5), (True, 0)]
)
def test_no_dropout_returns_the_input(training, rate):
  x = tf.range(7.0)
  assert layers.seeded_dropout(x, rate, training, SEED) is x


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
