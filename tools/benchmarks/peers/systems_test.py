"""Tests of the measured programs; Hugging Face's only if it is installed."""

from __future__ import annotations

import dataclasses
import os
import pathlib

import numpy as np
import pytest

from official_albert.testing import toy_models
from official_albert.tools.benchmarks import step, turns
from official_albert.tools.benchmarks.peers import huggingface, protocol

_ROOT = pathlib.Path(__file__).resolve().parents[3]
_HF_MODEL = _ROOT / "official_albert" / "testdata" / "hf_one_group"
_WORKLOAD = protocol.Workload(
  toy_models.config(97, 14, hidden_size=24, initializer_range=0.02).to_dict(),
  *(3, 14, "float32"),
  settings={"optimizer": "adamw"},
  learning_rate=0.01,
)


def _hf_python() -> str:
  """Returns its interpreter; skips the test if there is none."""
  folder = os.environ.get("PEERS_DIR", "~/.cache/official_albert/peers")
  python = f"{folder}/official_albert_huggingface/bin/python"
  python = os.path.expanduser(python)
  if not os.path.exists(python):
    pytest.skip(
      "tools.benchmark peers creates the environment; PEERS_DIR names another "
      "folder"
    )
  return python


@pytest.mark.heavy
@pytest.mark.parametrize("precision", turns.PRECISIONS)
@pytest.mark.parametrize("name", step.SYSTEMS)
def test_systems_train(name, precision):
  system = step.SYSTEMS[name]
  python = "" if system.program == "ours" else _hf_python()
  workload = dataclasses.replace(_WORKLOAD, precision=precision)
  with turns.start(system, workload, python) as peer:
    timed = peer.run(40)
    # An untrained model guesses.
    entropy = np.log(97) + np.log(2)
    assert peer.warmup.results[0] == pytest.approx(entropy, abs=0.4)
    assert timed.results[-1] < 0.7 * peer.warmup.results[0]
    assert len(timed.seconds) == 40 and min(timed.seconds) > 0
    assert timed.peak_bytes > 2**26
    assert (timed.product_flops > 1e6) == (system.program == "ours")


@pytest.mark.heavy
@pytest.mark.parametrize("precision", turns.PRECISIONS)
@pytest.mark.parametrize("variant", huggingface.SERVING_VARIANTS)
def test_huggingface_serves(variant, precision):
  workload = dataclasses.replace(
    _WORKLOAD, precision=precision, model_dir=str(_HF_MODEL / "pretraining")
  )
  system = turns.System("huggingface", variant)
  with turns.start(system, workload, _hf_python()) as peer:
    answers = peer.warmup.results
    assert len(set(answers)) == 1 and -1 < answers[0] < 1
    assert len(peer.run(3).seconds) == 3
