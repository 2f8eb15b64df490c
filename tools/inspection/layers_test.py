"""Tests of opened models and their layers, against loops by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf

from official_albert import modeling, tokenization
from official_albert.tasks.pretraining import model as model_lib
from official_albert.testing import toy_vocabulary
from official_albert.tools.inspection import layers as layers_lib
from official_albert.tools.testing import toy_runs

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


def test_states_are_those_of_the_blocks(model):
  ids, mask = layers_lib.pad(_ROWS, 0)
  states = layers_lib.run(model, ids, mask)
  blocks = list(model.encoder.blocks())
  assert len(states) - 1 == len(blocks) == 3 * model.config.inner_group_num
  for before, after, (attention, ffn) in zip(states, states[1:], blocks):
    np.testing.assert_allclose(
      ffn(attention(tf.constant(before), tf.constant(mask))), after, atol=1e-5
    )


def test_means_are_over_tokens_without_padding(model):
  layers = []
  states = layers_lib.run(model, *layers_lib.pad(_ROWS, 0))
  for before, after in itertools.pairwise(states):
    pairs = [
      (before[row, s], after[row, s])
      for row, ids in enumerate(_ROWS)
      for s in range(len(ids))
    ]
    layers.append(np.mean([layers_lib.compare(*pair) for pair in pairs], 0))
  opened = layers_lib.InspectedModel(model, _Numbers(), "")
  texts = [" ".join(map(str, row[1:-1])) for row in _ROWS]
  found = layers_lib.look_into(opened, texts, 11, "")
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


_TEXTS = ["the day was cold", "a tall old tree"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
  """Toy runs by their sharing, with three layers each."""
  folder = tmp_path_factory.mktemp("runs")
  return {
    sharing: toy_runs.write_pretrained(
      str(folder / sharing), num_hidden_layers=3, sharing=sharing
    )
    for sharing in ("all", "none")
  }


@pytest.mark.parametrize("sharing", ["all", "none"])
def test_a_run_is_opened_with_its_weights_and_tokenizer(runs, sharing):
  opened = layers_lib.open_model(runs[sharing])
  assert opened.tokenizer.vocab_size == opened.model.config.vocab_size == 47
  assert opened.source.startswith(runs[sharing])
  model = model_lib.AlbertForPretraining(opened.model.config)
  latest = tf.train.latest_checkpoint(runs[sharing])
  checkpoint = tf.train.Checkpoint(model=model)
  checkpoint.restore(latest).assert_existing_objects_matched()
  assert len(opened.model.variables) == len(model.albert.variables)
  for ours, theirs in zip(opened.model.variables, model.albert.variables):
    np.testing.assert_array_equal(ours, theirs)


def test_another_depth(runs):
  shallow, deep = (
    layers_lib.look_into(
      layers_lib.open_model(runs["all"], num_hidden_layers=depth),
      _TEXTS,
      64,
      "run",
    )["layers"]
    for depth in (0, 5)
  )
  assert len(deep) == 5
  for a, b in zip(shallow, deep):
    assert list(a.values()) == pytest.approx(list(b.values()), rel=1e-5)
  with pytest.raises(ValueError, match="cannot have 5"):
    layers_lib.open_model(runs["none"], num_hidden_layers=5)


def test_long_sentences_are_truncated(model):
  opened = layers_lib.InspectedModel(model, _Numbers(), "")
  # More sentences than a batch.
  texts = ["5 6 7", "8", *["9 10"] * 16]
  found = layers_lib.look_into(opened, texts, 9, "")
  sizes = {"count": 18, "tokens": 5 + 3 + 16 * 4, "cut": 0}
  assert found["sentences"] == sizes
  found = layers_lib.look_into(opened, ["5 6 7 8", "9 10"], 4, "")
  assert found["sentences"]["cut"] == 1
  with pytest.raises(ValueError, match="max_seq_length is 2"):
    layers_lib.look_into(opened, ["5"], 2, "")
  with pytest.raises(ValueError, match="X has no tokenizer: .* --spm_model"):
    layers_lib.look_into(opened._replace(tokenizer=None), ["5"], 9, "X")


def test_the_tokenizer_must_be_the_models(runs, tmp_path):
  path = tmp_path / "other.model"
  path.write_bytes(toy_vocabulary.numbers(41))
  other = tokenization.open_tokenizer(str(path))
  with pytest.raises(ValueError, match="41 pieces, but .* vocab_size 47"):
    layers_lib.open_model(runs["all"], tokenizer=other)
