"""Tests of counts against built models, and of layers against loops by hand."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
import tensorflow as tf

from official_albert import checkpoints, modeling
from official_albert.tasks.pretraining import model as model_lib
from official_albert.tools.inspection import model_numbers

_CONFIG = modeling.AlbertConfig(
  vocab_size=97,
  embedding_size=6,
  hidden_size=10,
  num_hidden_layers=3,
  num_attention_heads=2,
  intermediate_size=50,
  max_position_embeddings=11,
  initializer_range=0.7,
)
_PARTS = {  # By a part of the variable's path.
  "masked_lm": "masked_lm_head",
  "sentence_order": "sentence_order_head",
  "/layer_norm/": "layer_norms",
  "word_embeddings": "word_embeddings",
  "position_embeddings": "position_embeddings",
  "token_type_embeddings": "segment_embeddings",
  "/projection/": "embedding_projection",
  "/attentions/": "attention",
  "/ffns/": "ffn",
  "/adapters/": "adapters",
  "/pooler/": "pooler",
}


@pytest.mark.parametrize(
  "changes",
  [
    {"embedding_size": 10},
    {"num_hidden_groups": 2, "inner_group_num": 3},
    {"sharing": "attention", "inner_group_num": 2},
    {"sharing": "ffn", "num_hidden_groups": 2},
    {"sharing": "none"},
    {"adapter_rank": 2, "num_hidden_groups": 2},
  ],
)
def test_each_part_is_that_of_the_built_model(changes):
  config = dataclasses.replace(_CONFIG, **changes)
  expected: dict[str, int] = {}
  model = model_lib.AlbertForPretraining(config)
  for path, variable in checkpoints.by_path(model).items():
    part = next(part for mark, part in _PARTS.items() if mark in path)
    expected[part] = expected.get(part, 0) + variable.shape.num_elements()
  counted = model_numbers.parameters(config)
  assert counted.pop("encoder") == config.parameter_count()
  assert counted.pop("pretraining") == model.count_params()
  assert {part: n for part, n in counted.items() if n} == expected


def test_text_of_a_released_size():
  config = modeling.AlbertConfig.from_preset("albert_base_v2")
  lines = model_numbers.describe(config, 512).splitlines()
  cells = [" ".join(line.split()) for line in lines]
  assert cells[0].startswith("layers 12, groups 1, sharing all, V 30,000, E 12")
  for row in (
    "ffn 4,722,432 40.0%",
    "encoder 11,683,584 98.9%",
    "MFLOP per token, 512 tokens per sequence",
    "forward 188.9",
    "training 536.4",
  ):
    assert row in cells


class _Numbers:
  """A tokenizer of numbers, which are the ids."""

  cls_id, sep_id, vocab_size = 2, 3, 97

  def encode(self, text):
    return [int(word) for word in text.split()]


@pytest.mark.parametrize(
  "changes", [{}, {"sharing": "none"}, {"inner_group_num": 2}]
)
def test_layers_are_those_of_the_blocks(changes):
  tf.keras.utils.set_random_seed(3)
  config = dataclasses.replace(_CONFIG, **changes)
  model = modeling.AlbertModel(config)
  rows, layers = [[2, 5, 6, 7, 8, 9, 3], [2, 10, 3, 11, 3]], []
  for ids in rows:
    states = model_numbers.run(model, ids)
    blocks = list(model.encoder.blocks())
    assert len(states) - 1 == len(blocks) == 3 * config.inner_group_num
    mask = tf.ones([1, len(ids)], tf.int32)
    for before, after, (attention, ffn) in zip(states, states[1:], blocks):
      np.testing.assert_allclose(
        ffn(attention(tf.constant(before[None]), mask))[0], after, atol=1e-5
      )
    pairs = itertools.pairwise(states)
    layers.append([model_numbers.compare(*pair) for pair in pairs])
  texts = [" ".join(map(str, row[1:-1])) for row in rows]
  # The first row is truncated to its first tokens.
  found = model_numbers.measure_layers(model, _Numbers(), texts, 11)
  expected = np.concatenate(layers, axis=1).mean(axis=1)
  np.testing.assert_allclose(found, expected, rtol=1e-6)
  with pytest.raises(ValueError, match="max_seq_length is 2"):
    model_numbers.measure_layers(model, _Numbers(), ["5"], 2)
  other = _Numbers()
  other.vocab_size = 98
  with pytest.raises(ValueError, match="98 pieces, but .* vocab_size 97"):
    model_numbers.measure_layers(model, other, ["5"], 9)


def test_distances_and_angles_by_hand():
  before = np.float32([[3, 0], [1, 1], [2, 0], [0, 5], [1, 0]])
  after = np.float32([[0, 4], [2, 2], [-2, 0], [0, 5], [1, 1]])
  distances, angles = model_numbers.compare(before, after).T
  np.testing.assert_allclose(distances, [5, 2**0.5, 4, 0, 1], rtol=1e-12)
  np.testing.assert_allclose(angles, [90, 0, 180, 0, 45], atol=1e-5)
