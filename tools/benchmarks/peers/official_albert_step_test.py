"""Tests of this project's own program, with a small model."""

from __future__ import annotations

import dataclasses
import sys

import pytest

from tools.benchmarks.peers import official_albert_step as peer_official_albert
from tools.benchmarks.peers import process as peer_process
from tools.testing import toy_peer


@pytest.mark.heavy
def test_it_trains_and_multiplies():
  with peer_process.PeerProcess(
    sys.executable,
    "tools.benchmarks.peers.official_albert_step",
    toy_peer.WORKLOAD,
  ) as process:
    timed = process.run(30)
    assert process.ready.losses[0] == pytest.approx(
      toy_peer.PRETRAINING_ENTROPY, abs=0.2
    )
    assert timed.losses[-1] < 0.7 * process.ready.losses[0]
    assert process.product_flops(3) > 1e6
    ready = process.ready
  assert 0 < ready.trace_seconds < ready.build_seconds
  assert ready.about == "run_pretraining's step, adamw"


def test_an_unknown_variant_is_refused():
  with pytest.raises(ValueError, match="unknown variant 'sgd'; there is lamb"):
    peer_official_albert.build(
      dataclasses.replace(toy_peer.WORKLOAD, variant="sgd")
    )


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
