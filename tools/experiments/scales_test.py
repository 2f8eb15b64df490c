"""Tests of scales.py."""

from __future__ import annotations

import dataclasses

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


_BASE = scales.SCALES["base"]


def test_steps_are_not_split_without_need():
  tiny = scales.SCALES["tiny"]
  unknown = tiny.fit(tiny.config({}))
  assert unknown == ({}, 0, True) and unknown.describe() == ""
  small = _BASE.fit(_BASE.config({}))
  assert small.fits and not small.flags
  assert small.describe().startswith("about ")


def test_large_steps_are_split_and_then_recomputed():
  split = _BASE.fit(_BASE.config({"hidden_size": 4096, "depth": 12}))
  assert set(split.flags) == {"gradient_accumulation_steps"}
  assert split.fits and split.bytes <= int(0.9 * _BASE.device_bytes)
  assert "gradient_accumulation_steps=" in split.describe()
  # A step of one sequence is the smallest.
  one = dataclasses.replace(_BASE, num_devices=4096)
  deep = one.config({"hidden_size": 4096, "num_hidden_layers": 96})
  assert one.fit(deep).flags == {"recompute_activations": True}


def test_a_model_may_not_fit_at_all():
  bert = _BASE.config(
    {
      "hidden_size": 4096,
      "depth": 24,
      "embedding_size": "H",
      "sharing": "none",
    }
  )
  fit = _BASE.fit(bert)
  # Weights, gradients and two moments alone.
  assert fit.bytes > 16 * bert.parameter_count() > _BASE.device_bytes
  assert not fit.fits and "does not fit" in fit.describe()


def test_more_devices_need_fewer_micro_batches():
  config = modeling.AlbertConfig.from_preset("albert_xlarge_v1")

  def micro_batches(devices):
    scale = dataclasses.replace(_BASE, num_devices=devices)
    return scale.fit(config).flags.get("gradient_accumulation_steps", 1)

  assert micro_batches(64) > micro_batches(512) >= 1


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
