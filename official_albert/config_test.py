"""Tests of AlbertConfig: sizes, JSON, presets, errors."""

from __future__ import annotations

import dataclasses

import pytest

from official_albert import config as config_lib
from official_albert.config import AlbertConfig
from official_albert.testing import toy_models

BASE = AlbertConfig.from_preset("albert_base_v2")


@pytest.mark.parametrize(
  "size, parameters",
  [
    ("base", 11_683_584),
    ("large", 17_683_968),
    ("xlarge", 58_724_864),
    ("xxlarge", 222_595_584),
  ],
)
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_released_sizes(size, version, parameters):
  config = AlbertConfig.from_preset(f"albert_{size}_{version}")
  assert config.parameter_count() == parameters


@pytest.mark.parametrize(
  "embedding_size, sharing, millions",
  [  # Paper, Table 4: base, all / attention / FFN / nothing shared.
    (768, "all", 31),
    (768, "attention", 83),
    (768, "ffn", 57),
    (768, "none", 108),
    (128, "all", 12),
    (128, "attention", 64),
    (128, "ffn", 38),
    (128, "none", 89),
  ],
)
def test_sharing_strategies_have_the_sizes_of_table_4(
  embedding_size, sharing, millions
):
  config = dataclasses.replace(
    BASE, embedding_size=embedding_size, sharing=sharing
  )
  # The paper truncates some and rounds others; its 108M is our 109.08M.
  assert abs(config.parameter_count() / 1e6 - millions) < 1.1


def test_presets_as_released():
  preset = AlbertConfig.from_preset
  assert len(config_lib.PRESETS) == 4 * 3 + 3 + 1
  assert preset("albert_xlarge_v1").hidden_dropout_prob == 0.1
  assert preset("albert_xxlarge_v1").hidden_dropout_prob == 0.0
  assert preset("albert_base_v2").hidden_dropout_prob == 0.0
  assert preset("albert_xxlarge_zh").num_attention_heads == 16
  assert preset("albert_xxlarge_v2").num_attention_heads == 64
  assert preset("albert_base_zh").hidden_act == "relu"
  assert preset("albert_base_zh").vocab_size == 21128
  assert preset("bert_large").sharing == "none"
  assert preset("bert_large").hidden_dropout_prob == 0.1
  assert preset("bert_large").embedding_size == 1024
  with pytest.raises(ValueError, match="albert_base_v2"):
    preset("albert_base")


def test_json_round_trip(tmp_path):
  config = toy_models.config(
    97, 11, num_hidden_groups=2, inner_group_num=3, sharing="ffn"
  )
  path = tmp_path / "albert_config.json"
  config.to_json_file(str(path))
  assert AlbertConfig.from_json_file(str(path)) == config
  assert [p.name for p in tmp_path.iterdir()] == ["albert_config.json"]
  shared = dataclasses.replace(config, sharing="all")
  assert "sharing" not in shared.to_dict()
  for content, message in (("[]", "must be an object"), ("{}", "vocab_size")):
    path.write_text(content)
    with pytest.raises(ValueError, match=f"{path}.* {message}"):
      AlbertConfig.from_json_file(str(path))
  with pytest.raises(dataclasses.FrozenInstanceError):
    config.hidden_size = 3


def test_keys_without_effect_are_ignored():
  released = {"net_structure_type": 0, "gap_size": 0, "num_memory_blocks": 0}
  released |= {"down_scale_factor": 1, "layers_to_keep": []}
  bert = {"directionality": "bidi", "pooler_type": "first_token_transform"}
  bert |= {"pooler_fc_size": 24, "pooler_num_fc_layers": 3, "ln_type": "postln"}
  values = {**BASE.to_dict(), **released, **bert}
  assert AlbertConfig.from_dict(values) == BASE


@pytest.mark.parametrize(
  "changes, message",
  [
    ({"y": 1, "a": 2}, "unknown configuration keys 'a', 'y'"),
    # There, "gelu" is another function.
    ({"model_type": "albert"}, "keys 'model_type'.* Hugging Face"),
    ({"gap_size": 2}, "legacy key 'gap_size'"),
    ({"gap_size": "9" * 999}, "value '9{59}; only 0"),
    ({"ln_type": "preln"}, "ln_type.*preln"),
    ({"directionality": "uni"}, "directionality.*uni"),
    ({"initializer_range": float("nan")}, "is nan, but must be a finite"),
    ({"initializer_range": float("inf")}, "is inf, but must be a finite"),
    ({"hidden_dropout_prob": float("nan")}, "is nan, but must be a finite"),
    ({"hidden_size": 100}, "multiple of num_attention_heads"),
    ({"hidden_size": "768"}, "hidden_size is '768', but must be an integer"),
    ({"num_hidden_layers": 0}, "num_hidden_layers is 0, but must be from 1"),
    ({"num_hidden_layers": True}, "is True, but must be an in"),
    (
      {"num_hidden_layers": 100, "inner_group_num": 11},
      r"num_hidden_layers \* inner_group_num must be at most 1,024, got 1100",
    ),
    ({"max_position_embeddings": 2**21}, "is 2097152, .* from 1 to 1048576"),
    ({"hidden_size": 768 * 10**6}, "at most 100,000,000,000 parameters, got 2"),
    ({"vocab_size": 10**4000}, "vocab_size is 10{70,80}, but must be from 1"),
    ({"num_hidden_groups": 13}, "exceeds num_hidden_layers"),
    ({"hidden_dropout_prob": 1.0}, "at least 0 and less than 1"),
    ({"hidden_act": "gelu_new"}, "gelu_erf"),
    ({"sharing": "atention"}, "sharing is 'atention', but .* attention"),
    ({"always_project_embedding": 1}, "is 1, but must be true or false"),
    ({"adapter_rank": -1}, "adapter_rank is -1, but must be from 0 to"),
    ({"adapter_rank": 2.5}, "adapter_rank is 2.5, but must be an integer"),
    (
      {"adapter_rank": 1025},
      "adapter_rank is 1025, but must be from 0 to 1024",
    ),
    ({"adapter_rank": 2, "sharing": "ffn"}, "rank 2 .* sharing is 'ffn': choo"),
  ],
)
def test_bad_values_are_refused(changes, message):
  with pytest.raises(ValueError, match=message):
    AlbertConfig.from_dict({**BASE.to_dict(), **changes})


def test_always_project_embedding():
  plain = AlbertConfig.from_preset("bert_base")
  config = dataclasses.replace(plain, always_project_embedding=True)
  assert not plain.has_projection and config.has_projection
  # Other programs do not know this key, so it is written only if needed.
  assert "always_project_embedding" not in plain.to_dict()
  assert AlbertConfig.from_dict(config.to_dict()) == config
  size = 768 * 768 + 768
  assert config.parameter_count() == plain.parameter_count() + size
  flops = config.forward_flops(7) - plain.forward_flops(7)
  assert flops == 2 * 7 * 768 * 768


def test_adapter_rank_is_written_if_it_is_not_0():
  assert "adapter_rank" not in BASE.to_dict()
  config = dataclasses.replace(BASE, adapter_rank=2)
  assert AlbertConfig.from_dict(config.to_dict()) == config
  # 3% of ALBERT base.
  added = config.parameter_count() - BASE.parameter_count()
  assert added == config.parameters_by_part()["adapters"] == 294_912


def test_at_depth_requires_full_sharing():
  config = AlbertConfig(num_hidden_layers=5, inner_group_num=2)
  for depth in (1, 3, 48):
    other = config.at_depth(depth)
    assert other.num_hidden_layers == depth
    assert other.parameter_count() == config.parameter_count()
    assert dataclasses.replace(other, num_hidden_layers=5) == config
  for changes, kind in (
    (dict(num_hidden_groups=2), "sharing 'all', 2 groups"),
    (dict(sharing="attention"), "sharing 'attention', 1 groups"),
    (dict(adapter_rank=7), "sharing 'all', 1 groups, adapter_rank 7"),
  ):
    own = dataclasses.replace(config, **changes)
    assert own.at_depth(5) is own
    with pytest.raises(ValueError, match=f"{kind} and 5 layers cannot have 3"):
      own.at_depth(3)
  with pytest.raises(ValueError, match="num_hidden_layers is 0, but must be"):
    config.at_depth(0)


def test_group_of_layer_for_every_pair():
  for layers in range(1, 49):
    for groups in range(1, layers + 1):
      config = AlbertConfig(num_hidden_layers=layers, num_hidden_groups=groups)
      used = [config.group_of_layer(layer) for layer in range(layers)]
      assert used == sorted(used)
      assert set(used) == set(range(groups))
      sizes = [used.count(group) for group in range(groups)]
      assert max(sizes) - min(sizes) <= 1


def test_forward_flops():
  config = AlbertConfig(
    vocab_size=7,
    embedding_size=2,
    hidden_size=3,
    num_hidden_layers=2,
    num_attention_heads=1,
    intermediate_size=5,
  )
  s = 4
  projection = 2 * s * 2 * 3
  attention = 4 * (2 * s * 3 * 3) + 2 * (2 * s * s * 3)
  ffn = 2 * (2 * s * 3 * 5)
  pooler = 2 * 3 * 3
  expected = projection + 2 * (attention + ffn) + pooler
  assert config.forward_flops(s) == expected
  # Query, scores, context, output and FFN of one row of the last block.
  row = 2 * (2 * 3 * 3) + 2 * (2 * s * 3) + 2 * (2 * 3 * 5)
  assert config.forward_flops(s, last_rows=1) == expected - 3 * row
  assert config.forward_flops(s, last_rows=s) == expected
  # A and B of query, key and value, of the attention's output, and of the FFN.
  adapted = dataclasses.replace(config, adapter_rank=2)
  expected += 2 * 2 * s * 2 * ((3 + 9) + (3 + 3) + (3 + 5) + (5 + 3))
  assert adapted.forward_flops(s) == expected
  # That of one row; x A of the query is a product of its own.
  row += 2 * 2 * ((0 + 3) + (3 + 3) + (3 + 5) + (5 + 3))
  assert adapted.forward_flops(s, 1) == expected - 3 * row + 2 * 2 * 3
