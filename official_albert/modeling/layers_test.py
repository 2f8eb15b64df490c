"""Tests of initial weights, dtypes, Keras configurations and dropout.

model_test.py and the tests of tasks/ compare the layers with the original.
"""

from __future__ import annotations

import dataclasses
import inspect

import numpy as np
import pytest
import tensorflow as tf

from official_albert.modeling import (
  classifier,
  factorized_embedding,
  heads,
  layers,
  shared_transformer_encoder,
  transformer_block,
)
from official_albert.testing import toy_models

CONFIG = toy_models.config(23, 11, num_hidden_layers=3, initializer_range=0.02)
SEED = tf.constant([1, 2])


def make(layer_class, **changes):
  return layer_class(dataclasses.replace(CONFIG, **changes))


def test_initializer_is_a_truncated_normal():
  layer = make(
    factorized_embedding.FactorizedEmbedding, vocab_size=3000, embedding_size=40
  )
  table = layer.word_embeddings.numpy()
  assert np.abs(table).max() <= 0.04  # two standard deviations
  # A normal distribution truncated at two standard deviations has 0.88 of
  # its deviation. Keras' parameter is the deviation before truncation.
  np.testing.assert_allclose(table.std(), 0.02 * 0.8796, rtol=0.02)


_EMBEDDING = make(factorized_embedding.FactorizedEmbedding)
_IDS, _HIDDEN = tf.ones([2, 5], tf.int32), tf.ones([2, 5, 10])


@pytest.mark.parametrize(
  "layer, inputs",
  [
    (_EMBEDDING, [_IDS]),
    (
      make(shared_transformer_encoder.SharedTransformerEncoder),
      [_HIDDEN, _IDS],
    ),
    (make(heads.MaskedLMHead), [_HIDDEN, None, _EMBEDDING]),
    (
      classifier.AlbertForSequenceClassification(CONFIG, 2),
      [{"input_ids": _IDS}],
    ),
  ],
)
def test_autograph_rewrites_no_layer(layer, inputs, monkeypatch):
  run, callers = layers.fused_ops.add_layer_norm, []

  def watched(*args, **kwargs):
    callers.extend(frame.function for frame in inspect.stack(0))
    return run(*args, **kwargs)

  monkeypatch.setattr(layers.fused_ops, "add_layer_norm", watched)
  tf.function(lambda: layer(*inputs)).get_concrete_function()
  assert "call" in callers
  assert "tf__call" not in callers  # AutoGraph's name for what it rewrote.


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "bfloat16", "float16"])
def test_layer_norm_has_the_dtype_of_its_input(policy):
  layer = layers.LayerNorm(dtype=policy)
  y = layer(tf.ones([3, 10], layer.compute_dtype))
  assert y.dtype == layer.compute_dtype
  assert {v.dtype.name for v in layer.weights} == {layer.variable_dtype}


@pytest.mark.parametrize(
  "layer",
  [
    make(factorized_embedding.FactorizedEmbedding, hidden_dropout_prob=0.25),
    make(transformer_block.SelfAttention, hidden_dropout_prob=0.25),
    make(transformer_block.FeedForward, hidden_dropout_prob=0.25),
    layers.LayerNorm(name="LayerNorm"),
    make(heads.MaskedLMHead, hidden_act="relu"),
    heads.ClassificationHead(CONFIG, 3, 0.25),
    shared_transformer_encoder.SharedTransformerEncoder(CONFIG, True),
  ],
)
def test_config_round_trip(layer):
  clone = type(layer).from_config(layer.get_config())
  assert clone.get_config() == layer.get_config()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("rate", [0.01, 0.1, 0.25, 0.5])
@pytest.mark.parametrize("seed", [SEED, None])
def test_dropout_has_its_rate_in_each_dtype(rate, dtype, seed):
  tf.random.set_seed(1)
  x = tf.ones([1000, 1000], dtype)
  y = layers.seeded_dropout(x, rate, True, seed)
  assert y.dtype == x.dtype
  y = tf.cast(y, tf.float32).numpy()
  # Four standard errors.
  error = 4 * np.sqrt(rate * (1 - rate) / y.size)
  assert abs(np.mean(y == 0) - rate) < error
  # The rest is scaled exactly, up to the rounding of the result.
  kept = np.float32(1 / (1 - rate)).astype(tf.as_dtype(dtype).as_numpy_dtype)
  assert {*np.unique(y)} == {0.0, np.float32(kept)}


def test_dropout_follows_its_seed():
  x = tf.ones([300, 400])
  y = layers.seeded_dropout(x, 0.3, True, SEED).numpy()
  np.testing.assert_array_equal(y, layers.seeded_dropout(x, 0.3, True, SEED))
  other = layers.seeded_dropout(x, 0.3, True, layers.fold_in(SEED, 1))
  assert np.any(y != other.numpy())
  unseeded = [layers.seeded_dropout(x, 0.5, True).numpy() for _ in range(2)]
  assert np.any(unseeded[0] != unseeded[1])
  assert layers.fold_in(None, 3) is None
  for rate, training in ((0.5, False), (0.5, None), (0, True)):
    assert layers.seeded_dropout(x, rate, training, SEED) is x


def test_a_regression_answers_in_the_scale_of_its_targets():
  head = heads.ClassificationHead(CONFIG, 1, has_target_scale=True)
  x = tf.random.stateless_normal([3, 10], SEED)
  plain = head(x)
  head.output_bias.assign([0.5])
  scale = 50.0, np.log(3.0)
  head.set_target_scale(scale, keep_outputs=False)
  expected = 3 * (plain + 0.5) + 50
  np.testing.assert_allclose(head(x), expected, rtol=1e-6)
  weights, bias = heads.fold_target_scale(
    head.output_weights.numpy(), head.output_bias.numpy(), scale
  )
  np.testing.assert_allclose(x @ weights.T + bias, expected, rtol=1e-6)


@pytest.mark.parametrize(
  "kind", [transformer_block.SelfAttention, transformer_block.FeedForward]
)
def test_dropout_of_nearly_nothing_changes_nothing(kind):
  rates = {"hidden_dropout_prob": 1e-7, "attention_probs_dropout_prob": 1e-7}
  layer = make(kind, initializer_range=0.5, **rates)
  inputs = [tf.random.stateless_normal([2, 5, 10], SEED)]
  if kind is transformer_block.SelfAttention:
    inputs.append(_IDS)
  plain = layer(*inputs, False)
  biases = [w for w in layer.trainable_weights if w.shape.rank == 1]
  for bias in biases:  # They are 0 at first.
    bias.assign_add(tf.random.stateless_normal(bias.shape, SEED))
  moved = layer(*inputs, False)
  assert np.abs(plain - moved).max() > 0.1
  trained = layer(*inputs, True, tf.constant(SEED))
  np.testing.assert_allclose(trained, moved, rtol=1e-5, atol=1e-5)
