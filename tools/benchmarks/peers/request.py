"""The batch that programs which serve a model are all asked for."""

from __future__ import annotations

import numpy as np

from tools.benchmarks.peers import protocol as peer_protocol

# Below are ALBERT's special pieces.
_FIRST_ID = 5


def features(workload: peer_protocol.Workload) -> dict[str, np.ndarray]:
  """`input_ids`, `input_mask`, `segment_ids` <int32>[B, S] without padding."""
  shape = [workload.batch_size, workload.max_seq_length]
  generator = np.random.default_rng(workload.seed)
  ids = generator.integers(_FIRST_ID, workload.vocab_size, shape)
  return {
    "input_ids": ids.astype(np.int32),
    "input_mask": np.ones(shape, np.int32),
    "segment_ids": generator.integers(0, 2, shape).astype(np.int32),
  }
