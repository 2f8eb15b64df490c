"""Tests of random checkpoints."""

from __future__ import annotations

import numpy as np
import pytest

from official_albert import AlbertConfig, checkpoints
from tools.conversion import random_checkpoint


def test_every_value_is_random(tmp_path):
  config = AlbertConfig(
    vocab_size=97,
    embedding_size=10,
    hidden_size=24,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=36,
    max_position_embeddings=14,
  )
  folder = str(tmp_path / "new")
  count = random_checkpoint.write(config, folder)
  read = checkpoints.read_tf1_checkpoint(folder)
  assert read.config == config and read.head == "pretraining"
  assert not read.missing and not read.unexpected
  assert sum(value.size for value in read.tensors.values()) == count
  for name, value in read.tensors.items():
    mean = float(name.endswith("/gamma"))
    # The mean of a bias with two values varies by up to 3 * 0.02.
    assert value.size == 1 or np.std(value) > 0.001, name
    assert abs(np.mean(value) - mean) < 0.06, name


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
