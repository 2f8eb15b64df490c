"""Tests of the program: in its own environment, where that has been made."""

from __future__ import annotations

import dataclasses
import os

import pytest

from tools import peer_model_garden, peer_process, peer_protocol

_TINY = peer_protocol.Workload(
  batch_size=3,
  max_seq_length=14,
  precision="float32",
  variant="",
  vocab_size=97,
  embedding_size=10,
  hidden_size=24,
  num_hidden_layers=3,
  num_attention_heads=4,
  intermediate_size=36,
  learning_rate=0.01,
)
_PYTHON = os.path.expanduser(
  os.path.join(
    os.environ.get("PEERS_DIR", "~/.cache/official_albert/peers"),
    "official_albert_model_garden/bin/python",
  )
)


def test_an_unknown_variant_is_refused():
  with pytest.raises(ValueError, match="unknown variant 'weather'"):
    peer_model_garden.build(dataclasses.replace(_TINY, variant="weather"))


@pytest.mark.skipif(
  not os.path.exists(_PYTHON),
  reason="tools.benchmark peers makes the environment; PEERS_DIR names another",
)
@pytest.mark.heavy
@pytest.mark.parametrize("variant", sorted(peer_model_garden.VARIANTS))
@pytest.mark.parametrize("precision", peer_protocol.PRECISIONS)
def test_it_trains(variant, precision):
  """From the entropy of guessing down, whatever the way."""
  workload = dataclasses.replace(_TINY, variant=variant, precision=precision)
  with peer_process.PeerProcess(
    _PYTHON, "tools.peer_model_garden", workload
  ) as process:
    timed = process.run(40)
    # ln 97 for the masked LM, ln 2 for the order of the sentences.
    assert process.ready.losses[0] == pytest.approx(5.27, abs=0.3)
    assert timed.losses[-1] < 0.7 * process.ready.losses[0]
    assert len(timed.seconds) == 40 and min(timed.seconds) > 0
    assert timed.peak_bytes > 2**26


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
