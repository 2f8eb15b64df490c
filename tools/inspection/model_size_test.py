"""Tests of the numbers of a configuration, and of their text."""

from __future__ import annotations

import dataclasses
import json

import pytest

from official_albert import checkpoints, modeling
from official_albert.tasks import pretraining
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


def _setting(**changes):
  values = dict(batch_size=5, max_seq_length=7, predictions=2)
  return model_size.Setting(**{**values, **changes})


def test_weights_gradients_and_moments_are_four_times_the_parameters():
  found = model_size.training_bytes(_CONFIG, _setting())
  encoder, head = _CONFIG.parameter_count(), (10 * 6 + 6) + 12 + 97 + 22
  assert found["weights"] == found["gradients"] == 4 * (encoder + head)
  assert found["moments"] == 8 * (encoder + head)
  assert found["cast_weights"] == 0
  assert found["total"] == sum(
    size for part, size in found.items() if part != "total"
  )
  half = model_size.training_bytes(
    _CONFIG, _setting(precision="mixed_bfloat16")
  )
  for part in ("weights", "gradients", "moments"):
    assert half[part] == found[part]
  kernels = 97 * 6 + 4 * (100 + 10) + (500 + 50) + (500 + 10)
  assert half["cast_weights"] == 2 * kernels


def _activations(config=_CONFIG, **changes):
  # So many tokens that memory peaks when the backward pass begins.
  setting = _setting(batch_size=500, **changes)
  return model_size.training_bytes(config, setting)["activations"]


def test_kept_activations_by_hand():
  b, s, h, i, n = 500, 7, 10, 50, 2
  tokens, rows = b * s, b * 3
  block = tokens * (4 * (8 * h + 2 * i + n * s) + 16)
  last = tokens * 4 * 3 * h + rows * (4 * (6 * h + 2 * i + n * s) + 16)
  embeddings = tokens * 6 * 8
  head = b * 2 * 4 * (h + 3 * 6 + 97)
  gradient = max(b * 2 * 97 * 4, tokens * 4 * 2 * i - head)
  expected = embeddings + 2 * block + last + head + gradient
  assert _activations() == expected
  # Another layer costs a block, or its input if it is recomputed.
  deeper = dataclasses.replace(_CONFIG, num_hidden_layers=4)
  assert _activations(deeper) - expected == block
  recomputed, more = (
    _activations(config, recompute_activations=True)
    for config in (_CONFIG, deeper)
  )
  assert more - recomputed == tokens * 4 * h
  # Dropout keeps masks, and probabilities twice.
  for name, size in (
    ("hidden_dropout_prob", 2 * h),
    ("attention_probs_dropout_prob", n * s * (4 + 1)),
  ):
    dropped = _activations(dataclasses.replace(_CONFIG, **{name: 0.1}))
    assert dropped - expected == (2 * tokens + rows) * size


def test_inference_holds_one_block_at_a_time():
  for precision, width in (("float32", 4), ("mixed_bfloat16", 2)):
    found = model_size.inference_bytes(_CONFIG, _setting(precision=precision))
    assert found["weights"] == width * _CONFIG.parameter_count()
    assert found["activations"] == width * 35 * (10 + 2 * 50)
    assert found["total"] == found["weights"] + found["activations"]
  deeper = dataclasses.replace(_CONFIG, num_hidden_layers=9)
  assert model_size.inference_bytes(
    deeper, _setting()
  ) == model_size.inference_bytes(_CONFIG, _setting())


@pytest.mark.parametrize(
  "size, max_seq_length, gib",
  [  # docs/tpu_compile.md: GiB on a v3 core, by the TPU's own compiler.
    ("base", 128, 0.53),
    ("base", 512, 1.78),
    ("large", 128, 1.10),
    ("large", 512, 4.28),
    ("xlarge", 128, 3.99),
    ("xlarge", 512, 7.05),
    ("xxlarge", 128, 7.04),
    ("xxlarge", 512, 11.30),
  ],
)
def test_estimate_is_close_to_the_compilers_layout(size, max_seq_length, gib):
  config = modeling.AlbertConfig.from_preset(f"albert_{size}_v2")
  found = model_size.training_bytes(
    config,
    model_size.Setting(
      8, max_seq_length, int(0.15 * max_seq_length), "mixed_bfloat16"
    ),
  )
  # The compiler orders and recomputes as it likes: 17% less to 20% more.
  assert found["total"] / 2**30 == pytest.approx(gib, rel=0.2)


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
  model = pretraining.AlbertForPretraining(config)
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
  found = model_size.measure("name", config, 5, 3)
  assert json.loads(json.dumps(found)) == found
  assert modeling.AlbertConfig.from_dict(found["config"]) == config
  flops, memory = found["flops_per_token"], found["memory"]
  assert memory["max_seq_length"] == flops["max_seq_length"] == positions
  assert flops["max_predictions_per_seq"] == predictions
  for key, recompute in (("training", False), ("training_recomputed", True)):
    for precision in ("float32", "mixed_bfloat16"):
      setting = model_size.Setting(
        5, positions, predictions, precision, recompute
      )
      expected = model_size.training_bytes(config, setting)
      assert memory[key][precision] == expected
  expected = model_size.inference_bytes(
    config, model_size.Setting(3, positions)
  )
  assert memory["inference"]["float32"] == expected
