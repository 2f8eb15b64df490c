"""Tests of the embedding against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from official_albert.modeling import factorized_embedding
from official_albert.modeling.config import AlbertConfig

B, S, V, E, H, POSITIONS = 3, 7, 23, 6, 10, 11


def make(**changes):
  values = dict(
    vocab_size=V,
    embedding_size=E,
    hidden_size=H,
    num_attention_heads=1,
    max_position_embeddings=POSITIONS,
  )
  return factorized_embedding.FactorizedEmbedding(
    AlbertConfig(**{**values, **changes})
  )


def random_weights(layer, seed=0):
  rng = np.random.default_rng(seed)
  for variable in layer.weights:
    variable.assign(rng.normal(size=variable.shape))


def ids(seed=1):
  rng = np.random.default_rng(seed)
  return (
    tf.constant(rng.integers(0, V, [B, S]), tf.int32),
    tf.constant(rng.integers(0, 2, [B, S]), tf.int32),
  )


def test_equals_numpy():
  layer = make()
  input_ids, segment_ids = ids()
  layer(input_ids, segment_ids)
  random_weights(layer)
  hidden, embedded = layer(input_ids, segment_ids)
  x = (
    layer.word_embeddings.numpy()[input_ids.numpy()]
    + layer.token_type_embeddings.numpy()[segment_ids.numpy()]
    + layer.position_embeddings.numpy()[:S]
  )
  x = (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)
  x = x * layer.layer_norm.gamma.numpy() + layer.layer_norm.beta.numpy()
  np.testing.assert_allclose(embedded, x, atol=1e-5)
  expected = x @ layer.projection.kernel.numpy() + layer.projection.bias.numpy()
  np.testing.assert_allclose(hidden, expected, atol=1e-5)


def test_no_projection_when_the_widths_agree():
  layer = make(hidden_size=E)
  hidden, embedded = layer(*ids())
  assert layer.projection is None
  np.testing.assert_array_equal(hidden, embedded)


def test_vocabulary_scores_use_the_word_table():
  layer = make()
  x = tf.random.normal([5, E])
  expected = x.numpy() @ layer.word_embeddings.numpy().T
  np.testing.assert_allclose(layer.vocabulary_scores(x), expected, atol=1e-6)


def test_config_round_trip():
  layer = make(hidden_dropout_prob=0.25)
  clone = factorized_embedding.FactorizedEmbedding.from_config(
    layer.get_config()
  )
  assert clone.config == layer.config


def test_initializer_is_a_truncated_normal():
  layer = make(vocab_size=3000, embedding_size=40)
  table = layer.word_embeddings.numpy()
  assert np.abs(table).max() <= 0.04  # two standard deviations
  # A normal distribution truncated at two standard deviations has 0.88 of
  # its deviation. Keras' parameter is the deviation before truncation.
  np.testing.assert_allclose(table.std(), 0.02 * 0.8796, rtol=0.02)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
