"""A small model that each peer trains, for the tests of their programs."""

from __future__ import annotations

import dataclasses
import os
import sys

import pytest

from tools.benchmarks.peers import process as peer_process
from tools.benchmarks.peers import protocol as peer_protocol

WORKLOAD = peer_protocol.Workload(
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
# ln 97, and with ln 2 for the order of the sentences.
MASKED_LM_ENTROPY = 4.57
PRETRAINING_ENTROPY = 5.27


def venv_python(name: str) -> str:
  """The interpreter that `tools.benchmark peers` made for a peer, if it did."""
  if name == "official_albert":
    return sys.executable
  folder = os.environ.get("PEERS_DIR", "~/.cache/official_albert/peers")
  return os.path.expanduser(
    os.path.join(folder, f"official_albert_{name}/bin/python")
  )


def needs_venv(name: str) -> pytest.MarkDecorator:
  """Skips a test where the peer's environment has not been made."""
  return pytest.mark.skipif(
    not os.path.exists(venv_python(name)),
    reason="tools.benchmark peers makes the environment; PEERS_DIR names "
    "another",
  )


def check_it_trains(
  name: str, variant: str, precision: str, entropy: float
) -> None:
  """From the entropy of guessing down, in the peer's own environment.

  Args:
    name: of the peer; official_albert runs where the test does.
    variant: a key of its `VARIANTS`.
    precision: a member of `peer_protocol.PRECISIONS`.
    entropy: the loss of a model that guesses.

  Raises:
    AssertionError: it begins elsewhere, or does not learn.
  """
  workload = dataclasses.replace(WORKLOAD, variant=variant, precision=precision)
  with peer_process.PeerProcess(
    venv_python(name), f"tools.benchmarks.peers.{name}_step", workload
  ) as process:
    timed = process.run(40)
    assert process.ready.losses[0] == pytest.approx(entropy, abs=0.3)
    assert timed.losses[-1] < 0.7 * process.ready.losses[0]
    assert len(timed.seconds) == 40 and min(timed.seconds) > 0
    assert timed.peak_bytes > 2**26
