"""Tests of this project's own program, with a small model."""

from __future__ import annotations

import dataclasses
import sys

import pytest

from tools import peer_official_albert, peer_process, peer_protocol

_TINY = peer_protocol.Workload(
  batch_size=3,
  max_seq_length=14,
  precision="float32",
  vocab_size=97,
  embedding_size=10,
  hidden_size=24,
  num_hidden_layers=3,
  num_attention_heads=4,
  intermediate_size=36,
  learning_rate=0.01,
)


def test_it_trains_and_multiplies():
  with peer_process.PeerProcess(
    sys.executable, "tools.peer_official_albert", _TINY
  ) as process:
    timed = process.run(30)
    # ln 97 for the masked LM, ln 2 for the order of the sentences.
    assert process.ready.losses[0] == pytest.approx(5.27, abs=0.2)
    assert timed.losses[-1] < 0.7 * process.ready.losses[0]
    assert process.product_flops(3) > 1e6
    ready = process.ready
  assert 0 < ready.trace_seconds < ready.build_seconds
  assert ready.about == "run_pretraining's step, adamw"


def test_an_unknown_variant_is_refused():
  with pytest.raises(ValueError, match="unknown variant 'sgd'; there is lamb"):
    peer_official_albert.build(dataclasses.replace(_TINY, variant="sgd"))


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
