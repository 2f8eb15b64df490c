"""Tests of configurations from shapes alone."""

from __future__ import annotations

import dataclasses

import pytest

from official_albert import AlbertConfig
from official_albert.checkpoints import inferred_config
from official_albert.checkpoints import names as checkpoint_names


def _shapes(config):
  return {
    row.tf1: row.shape_in(config)
    for row in checkpoint_names.encoder_rows(config)
  }


@pytest.mark.parametrize(
  "name", ["albert_base_v2", "albert_xlarge_v2", "albert_xxlarge_zh"]
)
def test_releases_are_known_by_their_shapes(name):
  config = AlbertConfig.from_preset(name)
  inferred, note = inferred_config.infer("there", _shapes(config))
  assert inferred == config
  assert f"{config.num_attention_heads} heads" in note
  assert f"as in {name}" in note


def test_sizes_are_those_of_the_checkpoint():
  config = dataclasses.replace(
    AlbertConfig.from_preset("albert_large_v2"),
    vocab_size=12345,
    max_position_embeddings=768,
    num_hidden_groups=2,
    inner_group_num=2,
  )
  assert inferred_config.infer("there", _shapes(config))[0] == config


def test_other_shapes_need_a_file():
  config = AlbertConfig(hidden_size=96, num_attention_heads=3)
  with pytest.raises(ValueError, match="there has no configuration: give"):
    inferred_config.infer("there", _shapes(config))
  with pytest.raises(ValueError, match="--albert_config_file"):
    inferred_config.infer("there", {"x": (3,)})


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
