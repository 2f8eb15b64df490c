"""Tests of the program: in its own environment, where that has been made."""

from __future__ import annotations

import dataclasses
import pathlib

import pytest

from tools.benchmarks.peers import process as peer_process
from tools.benchmarks.peers import protocol as peer_protocol
from tools.benchmarks.peers import (
  serving_huggingface as peer_serving_huggingface,
)
from tools.testing import toy_peer

_FOLDER = pathlib.Path(__file__).resolve().parents[3]
_FOLDER = _FOLDER / "official_albert" / "testdata" / "hf_one_group"


def test_an_unknown_variant_is_refused():
  workload = dataclasses.replace(toy_peer.WORKLOAD, variant="weather")
  with pytest.raises(ValueError, match="unknown variant 'weather'"):
    peer_serving_huggingface.build(workload)


@toy_peer.needs_venv("huggingface")
@pytest.mark.heavy
@pytest.mark.parametrize("variant", sorted(peer_serving_huggingface.VARIANTS))
@pytest.mark.parametrize("precision", peer_protocol.PRECISIONS)
def test_it_answers(variant, precision):
  workload = dataclasses.replace(
    toy_peer.WORKLOAD,
    variant=variant,
    precision=precision,
    model_dir=str(_FOLDER / "pretraining"),
  )
  with peer_process.PeerProcess(
    toy_peer.venv_python("huggingface"),
    peer_serving_huggingface.__name__,
    workload,
  ) as process:
    answers = process.ready.losses
    assert len(set(answers)) == 1 and -1 < answers[0] < 1
    assert len(process.run(3).seconds) == 3


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
