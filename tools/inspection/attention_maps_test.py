"""Maps against a loop over positions, and against the model itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf

from official_albert import modeling
from tools.inspection import attention_maps, layer_similarity

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


def test_maps_are_those_of_the_formula_written_as_loops(model):
  states = layer_similarity.hidden_states(model, _BATCH)
  found = list(attention_maps.maps(model, _BATCH))
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


def test_they_give_the_attention_output_of_the_model(model):
  attention, _ = next(model.encoder.blocks())
  states = layer_similarity.hidden_states(model, _BATCH)
  probs = next(attention_maps.maps(model, _BATCH))
  (weights,) = attention.weights_for(1)
  weights = type(weights)(*map(np.asarray, weights))
  ours = attention_maps.attended(states[0], probs, weights, 1e-12)
  theirs = attention(tf.constant(states[0]), tf.constant(_MASK))
  np.testing.assert_allclose(ours, theirs, atol=1e-5)
  # What is compared depends on the maps: uniform ones give something else.
  flat = np.full_like(probs, 1 / 7)
  other = attention_maps.attended(states[0], flat, weights, 1e-12)
  assert np.abs(other - theirs).max() > 0.1


def test_maps_that_the_model_does_not_agree_with_are_refused(
  model, monkeypatch
):
  right = attention_maps.probabilities

  def slightly_wrong(*arguments):
    return right(*arguments) * 1.001

  monkeypatch.setattr(attention_maps, "probabilities", slightly_wrong)
  with pytest.raises(ValueError, match="layer 1 differs by .* no map of it"):
    list(attention_maps.maps(model, _BATCH))


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
  found = attention_maps.measure(model, [_BATCH], _SEP)
  maps = list(attention_maps.maps(model, _BATCH))
  for layer in range(3):
    assert len(found[layer]) == _HEADS
    for head in range(_HEADS):
      expected = _averages(maps[layer][:, head], rows)
      np.testing.assert_allclose(found[layer][head], expected, rtol=1e-4)
  apart = [{"input_ids": np.int32([ids])} for ids in rows]
  np.testing.assert_allclose(
    attention_maps.measure(model, apart, _SEP), found, rtol=1e-4, atol=1e-5
  )


def test_uniform_attention_has_the_entropy_of_its_length():
  probs = np.full([1, 1, 4, 4], 0.25, np.float32)
  real, is_sep = np.ones([1, 4], bool), np.array([[0, 0, 1, 1]], bool)
  (found,) = attention_maps._sums(probs, real, is_sep) / 4
  # Distances in a square of 4: 0 four times, 1 six, 2 four, 3 two; of 16.
  np.testing.assert_allclose(
    found, [20 / 16, math.log(4), 0.25, 0.5, 0.25], rtol=1e-6
  )


def test_nothing_to_measure_on(model):
  with pytest.raises(ValueError, match="no tokens"):
    attention_maps.measure(model, [], _SEP)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
