"""Tests of opened models and their layers, against loops by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf

from official_albert import modeling
from official_albert.tools.inspection import layers as layers_lib

_HEADS, _WIDTH, _SEP = 2, 5, 3
_ROWS = [[2, 5, 6, 7, 8, 9, 3], [2, 10, 3, 11, 3]]


class _Numbers:
  """A tokenizer of numbers, which are the ids."""

  cls_id, sep_id, pad_id, vocab_size = 2, _SEP, 0, 97

  def encode(self, text):
    return [int(word) for word in text.split()]


@pytest.fixture(scope="module", params=["all", "none", "inner"])
def model(request):
  tf.keras.utils.set_random_seed(3)
  config = modeling.AlbertConfig(
    vocab_size=97,
    embedding_size=6,
    hidden_size=_HEADS * _WIDTH,
    num_hidden_layers=3,
    num_attention_heads=_HEADS,
    intermediate_size=14,
    max_position_embeddings=11,
    initializer_range=0.7,
    sharing="none" if request.param == "none" else "all",
    inner_group_num=2 if request.param == "inner" else 1,
  )
  made = modeling.AlbertModel(config)
  rng = np.random.default_rng(5)
  for variable in made.variables:  # Biases of 0 and gammas of 1 prove little.
    noise = rng.normal(size=variable.shape) * 0.3
    variable.assign_add(noise.astype(np.float32))
  return made


def _states(model):
  """Returns the mask of `_ROWS`, and what goes through the layers."""
  ids = tf.ragged.constant(_ROWS, tf.int32)
  mask = tf.ones_like(ids).to_tensor()
  return mask, layers_lib.run(model, ids.to_tensor(0), mask)


def test_states_are_those_of_the_blocks(model):
  mask, states = _states(model)
  blocks = list(model.encoder.blocks())
  assert len(states) - 1 == len(blocks) == 3 * model.config.inner_group_num
  for before, after, (attention, ffn) in zip(states, states[1:], blocks):
    np.testing.assert_allclose(
      ffn(attention(tf.constant(before), mask)), after, atol=1e-5
    )


def test_means_are_over_tokens_without_padding(model):
  layers = []
  for before, after in itertools.pairwise(_states(model)[1]):
    pairs = [
      (before[row, s], after[row, s])
      for row, ids in enumerate(_ROWS)
      for s in range(len(ids))
    ]
    layers.append(np.mean([layers_lib.compare(*pair) for pair in pairs], 0))
  texts = [" ".join(map(str, row[1:-1])) for row in _ROWS]
  found = layers_lib.measure(model, _Numbers(), texts, 11)
  np.testing.assert_allclose(
    [list(layer.values())[1:] for layer in found["layers"]], layers, rtol=1e-4
  )


def test_distances_and_angles_by_hand():
  before = np.float32([[3, 0], [1, 1], [2, 0], [0, 5], [1, 0]])
  after = np.float32([[0, 4], [2, 2], [-2, 0], [0, 5], [1, 1]])
  distances, angles = layers_lib.compare(before, after).T
  np.testing.assert_allclose(distances, [5, 2**0.5, 4, 0, 1], rtol=1e-12)
  np.testing.assert_allclose(angles, [90, 0, 180, 0, 45], atol=1e-6)
  tiny = 1e-9  # Its cosine is 1 in float64.
  _, angle = layers_lib.compare(np.array([1.0, 0]), np.array([1.0, tiny]))
  np.testing.assert_allclose(np.radians(angle), tiny, rtol=1e-9)
  for pair in ((0.0, 1.0), (1.0, np.nan), (np.inf, 1.0)):
    with pytest.raises(ValueError, match="0 or not finite"):
      layers_lib.compare(*(np.full([1, 3], x) for x in pair))


def test_long_sentences_are_truncated(model):
  # More sentences than a batch.
  texts = ["5 6 7", "8", *["9 10"] * 16]
  found = layers_lib.measure(model, _Numbers(), texts, 9)
  sizes = {"count": 18, "tokens": 5 + 3 + 16 * 4, "cut": 0}
  assert found["sentences"] == sizes
  found = layers_lib.measure(model, _Numbers(), ["5 6 7 8", "9 10"], 4)
  assert found["sentences"]["cut"] == 1
  with pytest.raises(ValueError, match="max_seq_length is 2"):
    layers_lib.measure(model, _Numbers(), ["5"], 2)
  other = _Numbers()
  other.vocab_size = 41
  with pytest.raises(ValueError, match="41 pieces, but .* vocab_size 97"):
    layers_lib.measure(model, other, ["5"], 9)
