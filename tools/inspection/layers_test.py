"""Tests of layers and attention, against loops and hand-made vectors."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf

from official_albert import modeling
from tools.inspection import layers as layers_lib

_HEADS, _WIDTH = 2, 5
_SEP = 3
_IDS = np.int32([[2, 5, 6, 7, 8, 9, 3], [2, 10, 3, 11, 3, 0, 0]])
_MASK = np.int32([[1] * 7, [1] * 5 + [0] * 2])
_BATCH = {"input_ids": _IDS, "input_mask": _MASK}


@pytest.fixture(scope="module", params=["all", "none"])
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
    sharing=request.param,
  )
  made = modeling.AlbertModel(config)
  rng = np.random.default_rng(5)
  for variable in made.variables:  # Biases too, and no gamma of 1.
    noise = rng.normal(size=variable.shape) * 0.3
    variable.assign_add(noise.astype(np.float32))
  return made


def test_maps_equal_the_formula_as_loops(model):
  states = layers_lib.hidden_states(model, _BATCH)
  found = list(layers_lib.attention_maps(model, _BATCH))
  assert len(found) == 3
  for layer, (attention, _) in enumerate(model.encoder.blocks()):
    for row, head in ((0, 1), (1, 0)):
      columns = slice(head * _WIDTH, (head + 1) * _WIDTH)
      x = states[layer][row].astype(np.float64)
      q, k = (
        (x @ part.kernel.numpy() + part.bias.numpy())[:, columns]
        for part in (attention.query, attention.key)
      )
      for s in range(7):
        terms = [
          math.exp(q[s] @ k[t] / math.sqrt(_WIDTH)) * _MASK[row, t]
          for t in range(7)
        ]
        np.testing.assert_allclose(
          found[layer][row, head, s], np.array(terms) / sum(terms), atol=1e-5
        )


def test_probabilities_give_the_output_of_the_attention(model):
  attention, _ = next(model.encoder.blocks())
  x = layers_lib.hidden_states(model, _BATCH)[0]
  probs = next(layers_lib.attention_maps(model, _BATCH))
  v = x @ attention.value.kernel.numpy() + attention.value.bias.numpy()
  v = v.reshape(2, 7, _HEADS, _WIDTH)
  context = np.einsum("bnst,btnd->bsnd", probs, v).reshape(x.shape)
  (weights,) = attention.weights_for(1)
  y = x + context @ weights.output_kernel.numpy() + weights.output_bias.numpy()
  y = y - y.mean(axis=-1, keepdims=True)
  y = y / np.sqrt((y * y).mean(axis=-1, keepdims=True) + 1e-12)
  expected = attention(tf.constant(x), tf.constant(_MASK))
  np.testing.assert_allclose(
    y * weights.gamma + weights.beta, expected, atol=1e-5
  )


def _averages(probs, rows):
  """The five numbers of one head, by loops over real tokens."""
  sums, count = np.zeros(5), 0
  for row, ids in enumerate(rows):
    for s in range(len(ids)):
      for t, id in enumerate(ids):
        p = float(probs[row, s, t])
        sums += p * np.array(
          [abs(s - t), -math.log(p), t == 0, id == _SEP, s == t]
        )
    count += len(ids)
  return sums / count


def test_statistics_are_over_tokens_without_padding(model):
  rows = [_IDS[0].tolist(), _IDS[1, :5].tolist()]
  found = layers_lib.measure_attention(model, [_BATCH], _SEP)
  maps = list(layers_lib.attention_maps(model, _BATCH))
  for layer in range(3):
    assert len(found[layer]) == _HEADS
    for head in range(_HEADS):
      expected = _averages(maps[layer][:, head], rows)
      np.testing.assert_allclose(found[layer][head], expected, rtol=1e-4)
  apart = [{"input_ids": np.int32([ids])} for ids in rows]
  np.testing.assert_allclose(
    layers_lib.measure_attention(model, apart, _SEP),
    found,
    rtol=1e-4,
    atol=1e-5,
  )


def test_uniform_attention_has_the_entropy_of_its_length():
  probs = np.full([1, 1, 4, 4], 0.25, np.float32)
  real, is_sep = np.ones([1, 4], bool), np.array([[0, 0, 1, 1]], bool)
  (found,) = layers_lib._head_sums(probs, real, is_sep) / 4
  # Distances in a square of 4: 0 four times, 1 six, 2 four, 3 two; of 16.
  np.testing.assert_allclose(
    found, [20 / 16, math.log(4), 0.25, 0.5, 0.25], rtol=1e-6
  )


def _model(**changes) -> modeling.AlbertModel:
  values = dict(
    vocab_size=97,
    embedding_size=6,
    hidden_size=10,
    num_hidden_layers=3,
    num_attention_heads=2,
    intermediate_size=14,
    max_position_embeddings=11,
    initializer_range=0.4,
  )
  tf.keras.utils.set_random_seed(3)
  config = modeling.AlbertConfig(**{**values, **changes})
  return modeling.AlbertModel(config)


def test_distances_and_angles_by_hand():
  before = np.float32([[3, 0], [1, 1], [2, 0], [0, 5], [1, 0]])
  after = np.float32([[0, 4], [2, 2], [-2, 0], [0, 5], [1, 1]])
  distances, angles = layers_lib.compare(before, after)
  np.testing.assert_allclose(distances, [5, 2**0.5, 4, 0, 1], rtol=1e-12)
  np.testing.assert_allclose(angles, [90, 0, 180, 0, 45], atol=1e-6)


def test_small_angles_are_exact():
  # In float64 the cosine of 1e-9 is 1.
  tiny = 1e-9
  before, after = np.array([[1.0, 0]]), np.array([[1.0, tiny]])
  _, angles = layers_lib.compare(before, after)
  np.testing.assert_allclose(np.radians(angles), [tiny], rtol=1e-9)


@pytest.mark.parametrize("bad", [0.0, np.nan, np.inf])
def test_vectors_without_a_direction_are_refused(bad):
  with pytest.raises(ValueError, match="0 or not finite"):
    layers_lib.compare(np.full([1, 3], bad), np.ones([1, 3]))
  with pytest.raises(ValueError, match="0 or not finite"):
    layers_lib.compare(np.ones([1, 3]), np.full([1, 3], bad))


@pytest.mark.parametrize(
  "changes, layers",
  [({}, 3), ({"sharing": "none"}, 3), ({"inner_group_num": 2}, 6)],
)
def test_each_layer_of_a_model(changes, layers):
  model = _model(**changes)
  ids = np.int32([[2, 5, 6, 3], [2, 7, 8, 3]])
  found = layers_lib.measure_similarity(model, [{"input_ids": ids}])
  assert len(found) == layers
  # The first layer by itself, from the projected embedding.
  first, _ = model.embedding(tf.constant(ids))
  attention, ffn = next(model.encoder.blocks())
  after = ffn(attention(first, tf.ones_like(ids))).numpy()
  distances, angles = layers_lib.compare(first.numpy(), after)
  assert found[0].l2_distance == pytest.approx(distances.mean(), rel=1e-5)
  assert found[0].degrees == pytest.approx(angles.mean(), rel=1e-5)
  assert len({layer.l2_distance for layer in found}) == layers


def test_means_are_over_tokens_without_padding():
  model = _model()
  rows = [[2, 5, 6, 9, 3], [2, 7, 3]]
  alone = [
    layers_lib.measure_similarity(model, [{"input_ids": np.int32([row])}])
    for row in rows
  ]
  ids = np.int32([rows[0], rows[1] + [0, 0]])
  mask = np.int32([[1] * 5, [1] * 3 + [0] * 2])
  together = layers_lib.measure_similarity(
    model, [{"input_ids": ids, "input_mask": mask}]
  )
  parts = [{"input_ids": np.int32([row])} for row in rows]
  in_parts = layers_lib.measure_similarity(model, parts)
  for index, layer in enumerate(together):
    for field in ("l2_distance", "degrees"):
      long, short = (getattr(found[index], field) for found in alone)
      expected = (5 * long + 3 * short) / 8
      assert getattr(layer, field) == pytest.approx(expected, rel=1e-5)
      assert getattr(in_parts[index], field) == pytest.approx(
        expected, rel=1e-5
      )


def test_nothing_to_measure():
  with pytest.raises(ValueError, match="no tokens"):
    layers_lib.measure_similarity(_model(), [])
  with pytest.raises(ValueError, match="no tokens"):
    layers_lib.measure_attention(_model(), [], _SEP)
  none = np.zeros([1, 4], np.int32)
  with pytest.raises(ValueError, match="no tokens"):
    layers_lib.measure_similarity(
      _model(), [{"input_ids": none, "input_mask": none}]
    )


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
