"""Tests of depth_latency.py."""

from __future__ import annotations

import pytest

from official_albert import modeling
from tools.experiments import depth_latency


def test_deeper_takes_longer():
  config = modeling.AlbertConfig(
    vocab_size=77,
    embedding_size=16,
    hidden_size=128,
    num_hidden_layers=1,
    num_attention_heads=4,
    intermediate_size=512,
    max_position_embeddings=64,
  )
  times = depth_latency.measure(config, [1, 24], length=64, repeats=5)
  assert set(times) == {"1", "24"}
  # 24 times the layers; the rest is TensorFlow's own.
  assert 0 < 2 * times["1"] < times["24"]


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
