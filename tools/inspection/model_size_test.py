"""Tests of the numbers of a configuration, and of their text."""

from __future__ import annotations

import dataclasses
import json

import pytest

from official_albert import checkpoints, modeling
from tasks import pretraining
from tools.inspection import model_size

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


def test_gradients_of_shared_kernels_wait_for_each_other():
  one = dataclasses.replace(_CONFIG, num_hidden_layers=40)
  small = _setting(batch_size=1, max_seq_length=1, predictions=1)
  parts = _CONFIG.parameters_by_part()
  shared = model_size.training_bytes(one, small)["activations"]
  waiting = 4 * 40 * (parts["attention"] + parts["ffn"])
  assert waiting < shared < 1.1 * waiting
  unshared = dataclasses.replace(one, sharing="none")
  alone = model_size.training_bytes(unshared, small)["activations"]
  assert alone < waiting / 2


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
  [  # README.md: GiB on a v3 core, by the TPU's own compiler.
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


def test_operations_a_token():
  config = modeling.AlbertConfig.from_preset("albert_base_v2")
  short, long = (
    model_size.measure("", config, 1, 1, length, predictions)["flops_per_token"]
    for length, predictions in ((128, 19), (512, 76))
  )
  # 12 layers, each 8 H^2 + 4 H I, and 4 S H of attention.
  layers = 12 * (8 * 768**2 + 4 * 768 * 3072)
  assert short["forward"] == pytest.approx(
    layers + 12 * 4 * 128 * 768 + 2 * 128 * 768 + 2 * 768**2 / 128
  )
  assert long["forward"] - short["forward"] == pytest.approx(
    12 * 4 * (512 - 128) * 768 - 2 * 768**2 * (1 / 128 - 1 / 512)
  )
  # Three times forward, less what the last block does not compute.
  assert 0.9 < short["training"] / (3 * short["forward"]) < 1


_BASE = modeling.AlbertConfig.from_preset("albert_base_v2")


def test_numbers_use_the_given_sizes():
  found = model_size.measure("name", _BASE, 5, 3, 128, 20)
  assert json.loads(json.dumps(found)) == found
  assert modeling.AlbertConfig.from_dict(found["config"]) == _BASE
  memory = found["memory"]
  for key, recompute in (("training", False), ("training_recomputed", True)):
    for precision in ("float32", "mixed_bfloat16"):
      setting = model_size.Setting(5, 128, 20, precision, recompute)
      expected = model_size.training_bytes(_BASE, setting)
      assert memory[key][precision] == expected
  setting = model_size.Setting(3, 128)
  expected = model_size.inference_bytes(_BASE, setting)
  assert memory["inference"]["float32"] == expected


@pytest.mark.parametrize(
  "positions, predictions", [(3, 1), (128, 19), (512, 76)]
)
def test_default_sizes(positions, predictions):
  config = dataclasses.replace(_BASE, max_position_embeddings=positions)
  found = model_size.measure("name", config, 32, 1)
  assert found["memory"]["max_seq_length"] == positions
  flops = found["flops_per_token"]
  assert flops["max_seq_length"] == positions
  assert flops["max_predictions_per_seq"] == predictions


def test_numbers_as_text():
  values = model_size.measure("a model", _BASE, 8, 2)
  lines = {" ".join(x.split()) for x in model_size.describe(values).split("\n")}
  moments = f"{values['memory']['training']['float32']['moments'] / 2**20:,.0f}"
  assert {
    "== a model ==",
    "layers 12, groups 1, sharing all, V 30,000, E 128, H 768, I 3,072, "
    "heads 12",
    "word embeddings 3,840,000 32.5%",
    "pretraining 11,813,810 100.0%",
    "forward 188.9",
    "training, MiB, batch 8 x 512 float32 mixed_bfloat16",
    f"moments {moments} {moments}",
    "inference, MiB, batch 2 x 512 float32 mixed_bfloat16",
  } <= lines
  assert not any("degrees" in line for line in lines)
  numbers = (2, 1.25, 0.5, 0.125, 0.0625, 0.75)
  keys = ("distance", "entropy", "cls_share", "sep_share", "self_share")
  values.update(
    layers=[{"layer": 1, "l2_distance": 12.3456, "degrees": 78.905}],
    attention=[{"layer": 1, "heads": [dict(zip(("head", *keys), numbers))]}],
    sentences={"count": 3, "tokens": 1234, "cut": 2},
  )
  text = " ".join(model_size.describe(values).split())
  assert text.endswith(
    "means over 1,234 tokens of 3 sentences, of which 2 were truncated "
    "layer l2_distance degrees 1 12.346 78.905 "
    "layer head distance entropy cls_share sep_share self_share "
    "1 2 1.250 0.500 0.125 0.062 0.750"
  )


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
