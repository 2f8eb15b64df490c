"""Tests of depth_latency.py."""

from __future__ import annotations

from official_albert import modeling
from official_albert.tools.experiments import depth_latency


def test_deeper_takes_longer():
  config = modeling.AlbertConfig.from_preset("albert_tiny")
  times = depth_latency.measure(config, [1, 12], length=64, repeats=5)
  assert set(times) == {"1", "12"}
  # 12 times the layers; the rest is TensorFlow's own.
  assert 0 < 2 * times["1"] < times["12"]
