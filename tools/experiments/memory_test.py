"""Tests of memory.py."""

from __future__ import annotations

import dataclasses

import pytest

from official_albert import modeling
from tools.experiments import memory, scales

_BASE = scales.SCALES["base"]


def test_a_scale_without_a_device_is_left_alone():
  tiny = scales.SCALES["tiny"]
  found = memory.fit(tiny, tiny.config({}))
  assert found == ({}, 0, True)
  assert found.describe() == ""


def test_small_models_are_not_cut():
  found = memory.fit(_BASE, _BASE.config({}))
  assert found.fits and not found.flags
  assert found.describe().startswith("about ")


def test_large_models_are_cut_first_and_then_computed_twice():
  config = _BASE.config({"hidden_size": 4096, "depth": 12})
  whole = memory.fit(_BASE, config)
  assert set(whole.flags) == {"gradient_accumulation_steps"}
  limit = int(0.9 * _BASE.device_bytes)
  assert whole.fits and whole.bytes <= limit
  assert "gradient_accumulation_steps=" in whole.describe()
  # A step of one sequence is the smallest.
  one = dataclasses.replace(_BASE, num_devices=4096)
  deep = one.config({"hidden_size": 4096, "num_hidden_layers": 96})
  assert memory.fit(one, deep).flags == {"recompute_activations": True}


def test_what_never_fits_is_told():
  bert = _BASE.config(
    {
      "hidden_size": 4096,
      "depth": 24,
      "embedding_size": "H",
      "sharing": "none",
    }
  )
  found = memory.fit(_BASE, bert)
  # Weights, gradients and two moments alone.
  assert found.bytes > 16 * bert.parameter_count() > _BASE.device_bytes
  assert not found.fits and "does not fit" in found.describe()


def test_more_devices_need_fewer_cuts():
  config = modeling.AlbertConfig.from_preset("albert_xlarge_v1")

  def cuts(devices):
    scale = dataclasses.replace(_BASE, num_devices=devices)
    flags = memory.fit(scale, config).flags
    return flags.get("gradient_accumulation_steps", 1)

  assert cuts(64) > cuts(512) >= 1


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
