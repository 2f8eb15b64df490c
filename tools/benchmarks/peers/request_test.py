"""Tests of the batch that all are asked for."""

from __future__ import annotations

import numpy as np
import pytest

from tools.benchmarks.peers import protocol as peer_protocol
from tools.benchmarks.peers import request as peer_request


def test_features_follow_the_workload():
  workload = peer_protocol.Workload(3, 7, vocab_size=9, seed=4)
  first, again = (peer_request.features(workload) for _ in range(2))
  for name, value in first.items():
    assert value.shape == (3, 7) and value.dtype == np.int32
    np.testing.assert_array_equal(value, again[name])
  assert first["input_ids"].min() >= 5 and first["input_ids"].max() < 9
  assert set(first["segment_ids"].ravel()) == {0, 1}
  assert first["input_mask"].all()


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
