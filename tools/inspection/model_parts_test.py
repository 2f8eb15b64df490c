"""Compares with built models, and with what the paper says."""

from __future__ import annotations

import pytest

from official_albert import checkpoints, modeling
from tasks import pretraining
from tools.inspection import model_parts


def _config(**changes) -> modeling.AlbertConfig:
  values = dict(
    vocab_size=97,
    embedding_size=6,
    hidden_size=10,
    num_hidden_layers=4,
    num_attention_heads=2,
    intermediate_size=14,
    max_position_embeddings=11,
    type_vocab_size=3,
  )
  return modeling.AlbertConfig(**{**values, **changes})


def _part(path: str) -> str:
  """Where a variable of a built model belongs, by the way to it."""
  if path.startswith("masked_lm"):
    return "masked_lm_head"
  if path.startswith("sentence_order"):
    return "sentence_order_head"
  if "/layer_norm/" in path:
    return "layer_norms"
  for mark, part in (
    ("word_embeddings", "word_embeddings"),
    ("position_embeddings", "position_embeddings"),
    ("token_type_embeddings", "segment_embeddings"),
    ("/projection/", "embedding_projection"),
    ("/attentions/", "attention"),
    ("/ffns/", "ffn"),
    ("/pooler/", "pooler"),
  ):
    if mark in path:
      return part
  raise AssertionError(path)


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

  config = _config(**changes)
  expected: dict[str, int] = {}
  model = pretraining.AlbertForPretraining(config)
  for path, variable in checkpoints.by_path(model).items():
    part = _part(path)
    expected[part] = expected.get(part, 0) + variable.shape.num_elements()
  counted = model_parts.parameters(config)
  assert counted.pop("encoder") == config.parameter_count()
  assert counted.pop("pretraining") == model.count_params()
  assert {part: n for part, n in counted.items() if n} == expected


def test_base_has_the_released_number():
  counted = model_parts.parameters(
    modeling.AlbertConfig.from_preset("albert_base_v2")
  )
  assert counted["word_embeddings"] == 30000 * 128
  assert counted["encoder"] == 11_683_584


def test_operations_a_token():
  config = modeling.AlbertConfig.from_preset("albert_base_v2")
  short = model_parts.flops_per_token(config, 128, 19)
  long = model_parts.flops_per_token(config, 512, 76)
  # 12 layers, each 8 H^2 + 4 H I, and 4 S H of attention.
  layers = 12 * (8 * 768**2 + 4 * 768 * 3072)
  assert short["forward"] == pytest.approx(
    layers + 12 * 4 * 128 * 768 + 2 * 128 * 768 + 2 * 768**2 / 128
  )
  assert long["forward"] - short["forward"] == pytest.approx(
    12 * 4 * (512 - 128) * 768 - 2 * 768**2 * (1 / 128 - 1 / 512)
  )
  # Three times forward, less what the last block need not compute of it.
  assert 0.9 < short["training"] / (3 * short["forward"]) < 1


def test_predictions_are_15_percent():
  assert [model_parts.default_predictions(s) for s in (3, 128, 512)] == [
    1,
    19,
    76,
  ]


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
