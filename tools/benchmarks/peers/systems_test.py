"""Tests of the measured programs; Hugging Face's only if it is installed."""

from __future__ import annotations

import dataclasses
import json
import pathlib

import numpy as np
import pytest

from official_albert.testing import toy_models
from official_albert.tools.benchmarks import turns
from official_albert.tools.benchmarks.peers import protocol
from official_albert.tools.cli import command_line

_ROOT = pathlib.Path(__file__).resolve().parents[3]
_HF_MODEL = _ROOT / "official_albert" / "testdata" / "hf_one_group"
_WORKLOAD = protocol.Workload(
  toy_models.config(97, 14, hidden_size=24, initializer_range=0.02).to_dict(),
  *(3, 14, "float32"),
  settings={"optimizer": "adamw"},
  learning_rate=0.01,
)
_TRAINED = [
  name
  for name, system in turns.SYSTEMS.items()
  if system.program in ("ours", "huggingface")
  and "mode" not in system.settings  # Of serving.
]
_PRECISIONS = ("float32", "mixed_bfloat16")
# The first one's outputs are those of all others.
_SERVED = [
  *("hf_eager", "hf_sdpa", "hf_compiled", "hf_sdpa_bfloat16"),
  "hf_graphs_float32",
  *(x for x, system in turns.SYSTEMS.items() if system.program == "runtimes"),
]


@pytest.mark.heavy
@pytest.mark.parametrize("precision", _PRECISIONS)
@pytest.mark.parametrize("name", _TRAINED)
def test_systems_train(name, precision, peer_python):
  system = turns.SYSTEMS[name]
  if system.program != "ours":
    peer_python(system.program)
  workload = dataclasses.replace(_WORKLOAD, precision=precision)
  with turns.Peer(name, system, workload) as peer:
    peer.turn(40)
  found = peer.result
  # An untrained model guesses.
  entropy = np.log(97) + np.log(2)
  assert found.results[0] == pytest.approx(entropy, abs=0.4)
  assert found.results[-1] < 0.7 * found.results[0]
  assert found.tokens_per_second[0] > 0 and found.facts["peak_bytes"] > 2**26


@pytest.mark.heavy
def test_huggingface_and_runtimes_serve(tmp_path, peer_python):
  (tmp_path / "huggingface").symlink_to(_HF_MODEL / "pretraining")
  command_line.run_program(
    *("export_saved_model", f"--model_dir={tmp_path}/huggingface"),
    *("--head=encoder", "--format=onnx", f"--export_dir={tmp_path}/onnx_none"),
  )
  config = json.loads((_HF_MODEL / "pretraining/config.json").read_text())
  workload = dataclasses.replace(
    _WORKLOAD, config=config, models_dir=str(tmp_path)
  )
  changes = {"batch_size": 5, "max_seq_length": 9, "padded": True}
  line = json.dumps({**changes, "requests": 2})
  expected = None
  for name in _SERVED:
    system = turns.SYSTEMS[name]
    peer_python(system.program)
    with turns.Process(name, system, workload) as process:
      found = process.ask(line)
    assert len(found["milliseconds"]) in (1, 2)
    outputs = np.array(found["outputs"])
    expected = outputs if expected is None else expected
    assert outputs.shape == (5, 40)
    difference = abs(outputs - expected).max()
    # The static scales of OpenVINO's int8 are coarse for so small a model.
    limits = {"int8": 0.5, "bfloat16": 0.05}
    limit = limits.get(name.rpartition("_")[2], 2e-6)
    assert difference < limit, name
