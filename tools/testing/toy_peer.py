"""A small model that each system trains, for the tests of their programs."""

from __future__ import annotations

import dataclasses
import os

import pytest

from tools.benchmarks.peers import protocol

WORKLOAD = protocol.Workload(
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
# ln 97, and ln 97 + ln 2 with the sentence-order loss.
MASKED_LM_ENTROPY = 4.57
PRETRAINING_ENTROPY = 5.27


def venv_python(name: str) -> str:
  """Returns the interpreter that `tools.benchmark peers` creates for a peer."""
  folder = os.environ.get("PEERS_DIR", "~/.cache/official_albert/peers")
  return os.path.expanduser(
    os.path.join(folder, f"official_albert_{name}/bin/python")
  )


def skip_without_venv(name: str) -> None:
  """Skips the test if the peer's environment has not been created."""
  if not os.path.exists(venv_python(name)):
    pytest.skip(
      "tools.benchmark peers creates the environment; PEERS_DIR names another "
      "folder"
    )


def check_it_trains(
  name: str, variant: str, precision: str, entropy: float
) -> None:
  """Checks that the loss falls from the entropy of guessing.

  Args:
    name: of the peer, which runs in its own environment.
    variant: a key of its `VARIANTS`.
    precision: one of `protocol.PRECISIONS`.
    entropy: the loss of a model that guesses.

  Raises:
    AssertionError: the loss starts elsewhere, or does not fall.
  """
  skip_without_venv(name)
  workload = dataclasses.replace(WORKLOAD, variant=variant, precision=precision)
  with protocol.Peer(
    venv_python(name), f"tools.benchmarks.peers.{name}", workload
  ) as process:
    timed = process.run(40)
    assert process.ready.losses[0] == pytest.approx(entropy, abs=0.3)
    assert timed.losses[-1] < 0.7 * process.ready.losses[0]
    assert len(timed.seconds) == 40 and min(timed.seconds) > 0
    assert timed.peak_bytes > 2**26
