"""Tests of the program: in its own environment, where that has been made."""

from __future__ import annotations

import dataclasses

import pytest

from tools.benchmarks.peers import model_garden_step as peer_model_garden
from tools.benchmarks.peers import protocol as peer_protocol
from tools.testing import toy_peer


def test_an_unknown_variant_is_refused():
  workload = dataclasses.replace(toy_peer.WORKLOAD, variant="weather")
  with pytest.raises(ValueError, match="unknown variant 'weather'"):
    peer_model_garden.build(workload)


@toy_peer.needs_venv("model_garden")
@pytest.mark.heavy
@pytest.mark.parametrize("variant", sorted(peer_model_garden.VARIANTS))
@pytest.mark.parametrize("precision", peer_protocol.PRECISIONS)
def test_it_trains(variant, precision):
  toy_peer.check_it_trains(
    "model_garden", variant, precision, toy_peer.PRETRAINING_ENTROPY
  )


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
