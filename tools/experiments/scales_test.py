"""Tests of scales.py."""

from __future__ import annotations

import pytest

from official_albert import modeling
from tools.experiments import scales


def test_base_is_the_papers_base():
  config = scales.SCALES["base"].config({})
  assert config == modeling.AlbertConfig.from_preset("albert_base_v1")


def test_sizes_are_translated():
  config = scales.SCALES["tiny"].config(
    {"hidden_size": 4096, "embedding_size": 64, "depth": 24}
  )
  assert config.hidden_size == 256
  assert config.intermediate_size == 1024
  assert config.num_attention_heads == 16
  assert config.embedding_size == 32
  assert config.num_hidden_layers == 8


def test_other_fields_stay_as_they_are():
  config = scales.SCALES["tiny"].config(
    {"num_hidden_layers": 24, "sharing": "ffn", "embedding_size": "H"}
  )
  assert (config.num_hidden_layers, config.sharing) == (24, "ffn")
  assert config.embedding_size == config.hidden_size == 128


@pytest.mark.parametrize("name", ["embedding_size", "hidden_size", "depth"])
def test_an_unknown_size_is_refused(name):
  with pytest.raises(ValueError, match=f"nothing stands for {name} 77 "):
    scales.SCALES["tiny"].config({name: 77})


def test_large_tables_of_tiny_are_shorter_and_none_of_base():
  tiny, base = scales.SCALES["tiny"], scales.SCALES["base"]
  assert tiny.steps_of("11") * 4 == tiny.steps_of("3") == tiny.steps
  assert tiny.peak_rate("11") * 3 == tiny.peak_rate("3") == 0.003
  assert base.peak_rate("11") == base.training["learning_rate"]
  assert base.steps_of("13") == 125_000


@pytest.mark.parametrize("scale", scales.SCALES.values(), ids=lambda s: s.name)
def test_larger_sizes_stay_larger(scale):
  for sizes in (scale.hidden_sizes, scale.embedding_sizes, scale.depths):
    translated = [sizes[size] for size in sorted(sizes)]
    assert translated == sorted(translated)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
