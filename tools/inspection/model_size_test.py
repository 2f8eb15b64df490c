"""Tests of the numbers of a configuration, and of their text."""

from __future__ import annotations

import dataclasses
import json

import pytest

from official_albert import checkpoints, modeling
from official_albert.tasks.pretraining import model as model_lib
from official_albert.tools.inspection import model_size

_CONFIG = modeling.AlbertConfig(
  vocab_size=97,
  embedding_size=6,
  hidden_size=10,
  num_hidden_layers=3,
  num_attention_heads=2,
  intermediate_size=50,
  max_position_embeddings=11,
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
  "/pooler/": "pooler",
}


@pytest.mark.parametrize(
  "changes",
  [
    {},
    {"embedding_size": 10},
    {"num_hidden_groups": 2, "inner_group_num": 3},
    {"sharing": "attention", "inner_group_num": 2},
    {"sharing": "ffn", "num_hidden_groups": 2},
    {"sharing": "none"},
  ],
)
def test_each_part_is_that_of_the_built_model(changes):
  config = dataclasses.replace(_CONFIG, **changes)
  expected: dict[str, int] = {}
  model = model_lib.AlbertForPretraining(config)
  for path, variable in checkpoints.by_path(model).items():
    part = next(part for mark, part in _PARTS.items() if mark in path)
    expected[part] = expected.get(part, 0) + variable.shape.num_elements()
  counted = model_size.parameters(config)
  assert counted.pop("encoder") == config.parameter_count()
  assert counted.pop("pretraining") == model.count_params()
  assert {part: n for part, n in counted.items() if n} == expected


_BASE = modeling.AlbertConfig.from_preset("albert_base_v2")


@pytest.mark.parametrize(
  "positions, predictions", [(3, 1), (128, 19), (512, 77)]
)
def test_measured_sizes(positions, predictions):
  """By default the sequence is as long as the positions."""
  config = dataclasses.replace(_BASE, max_position_embeddings=positions)
  found = model_size.measure("name", config)
  assert json.loads(json.dumps(found)) == found
  assert modeling.AlbertConfig.from_dict(found["config"]) == config
  flops = found["flops_per_token"]
  assert flops["max_seq_length"] == positions
  assert flops["max_predictions_per_seq"] == predictions
