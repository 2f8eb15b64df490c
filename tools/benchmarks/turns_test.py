"""Tests of programs, turns and reports, with toys as systems."""

from __future__ import annotations

import dataclasses
import json
import shlex
import sys

import numpy as np
import pytest

from official_albert.tasks.pretraining import data
from official_albert.tools.benchmarks import turns
from official_albert.tools.benchmarks.peers import protocol

_WORKLOAD = protocol.Workload({"vocab_size": 97}, 3, 13, threads=5)
# Prints to stdout, which must not reach the benchmark. Losses are 9, 8, 7, ...
_PROGRAM = """
import os, time
from official_albert.tools.benchmarks.peers import protocol

def build(workload):
  print("a library's greeting")
  os.write(1, b"from below Python\\n")
  assert (workload.batch_size, workload.variant) == (3, "odd"), workload
  assert workload.settings == {"compile_chains": False}
  assert os.environ["OMP_NUM_THREADS"] == "5" and os.environ["EXTRA"] == "more"
  losses = iter(range(9, 4, -1))
  def step():
    time.sleep(0.01)
    return next(losses)
  return step, lambda: {"about": "a toy"}

protocol.serve(build)
"""


def _start(tmp_path, monkeypatch, script: str, is_peer: bool = True):
  """Starts a shell script in place of the interpreter."""
  python = tmp_path / "python"
  python.write_text(f"#!/bin/sh\n{script}\n")
  python.chmod(0o755)
  monkeypatch.setattr(turns.System, "python", lambda self: str(python))
  system = turns.System(
    "ours", "odd", {"EXTRA": "more"}, {"compile_chains": False}
  )
  kind = turns.Peer if is_peer else turns.Process
  return kind("mine", system, _WORKLOAD)


def test_a_program_answers_until_it_ends(tmp_path, monkeypatch):
  line = shlex.join([sys.executable, "-c", _PROGRAM])
  with _start(tmp_path, monkeypatch, f'exec {line} "$3"') as peer:
    rate = peer.turn(2)
    assert 0 < rate < 39 / 0.01
    found = peer.result
    assert found.results == [9, 8, 7, 6, 5] and found.facts["about"] == "a toy"
    assert found.tokens_per_second == [rate] and found.first_seconds > 0.01
    assert 2**20 < found.facts["peak_bytes"] < 2**32
    with pytest.raises(ValueError, match="mine ended with exit code 1"):
      peer.turn(1)
  with pytest.raises(ValueError, match="perhaps memory ran out"):
    _start(tmp_path, monkeypatch, "kill -9 $$")


_SERVER = """
import time
from official_albert.tools.benchmarks.peers import protocol

def load(workload):
  print("a library's greeting")
  if workload.variant == "lacks":
    import a_missing_package
  def answer(features):
    time.sleep(0.2)
    return features["input_mask"].sum(1, keepdims=True) / 8
  return answer, lambda: {"about": "a toy"}

protocol.serve_model(load)
"""


def test_a_program_answers_requests(tmp_path, monkeypatch, capfd):
  line = shlex.join([sys.executable, "-c", _SERVER])
  workload = json.dumps(dataclasses.asdict(_WORKLOAD))
  with _start(tmp_path, monkeypatch, f'exec {line} "$3"', False) as process:
    request = {"batch_size": 2, "max_seq_length": 8, "requests": 2}
    found = process.ask(json.dumps(request))
    assert found["outputs"] == [[1], [1]] and found["about"] == "a toy"
    assert len(found["milliseconds"]) == 2 and min(found["milliseconds"]) > 199
    # A turn ends after half a second.
    found = process.ask(json.dumps({**request, "padded": True, "requests": 9}))
    assert len(found["milliseconds"]) == 3
    (first,), (second,) = found["outputs"]
    assert first == 1 and 0.25 <= second < 1
  lacking = workload.replace('"variant": ""', '"variant": "lacks"')
  line = shlex.join([sys.executable, "-c", _SERVER, lacking])
  with (
    _start(tmp_path, monkeypatch, f"exec {line}", False) as process,
    pytest.raises(ValueError, match="mine ended with exit code 1"),
  ):
    process.ask(json.dumps(request))
  last = capfd.readouterr().err.splitlines()[-1]
  assert last.startswith("No module named 'a_missing_package': install it")


def test_padded_requests_have_rows_of_random_lengths():
  workload = dataclasses.replace(_WORKLOAD, batch_size=50, padded=True)
  whole = protocol.request(dataclasses.replace(workload, padded=False))
  padded = protocol.request(workload)
  lengths = padded["input_mask"].sum(1)
  assert lengths[0] == 13 and {*lengths[1:]} == {*range(3, 14)}
  for row, length in enumerate(lengths):
    assert padded["input_mask"][row, :length].all()
  for name in whole:
    assert padded[name].dtype == np.int32
    expected = whole[name] * padded["input_mask"]
    np.testing.assert_array_equal(padded[name], expected)
  other = protocol.request(workload, seed=2)["input_mask"].sum(1)
  assert (other != lengths).any()


def test_batches_follow_the_workload():
  batch, again = protocol.batch(_WORKLOAD), protocol.batch(_WORKLOAD)
  for name, value in batch.items():
    np.testing.assert_array_equal(value, again[name])
    assert value.dtype == (np.float32 if "weights" in name else np.int32)
  ids, positions = batch["input_ids"], batch["masked_lm_positions"]
  assert [*protocol.request(_WORKLOAD)] == [
    *("input_ids", "input_mask", "segment_ids")
  ]
  assert ids.shape == (3, 13) and ids.min() >= 4 and ids.max() < 97
  assert batch["input_mask"].all() and {*batch["segment_ids"].flat} == {0, 1}
  # 15% of 13 tokens, rounded.
  assert positions.shape == (3, 2) and batch["masked_lm_ids"].min() > 4
  assert batch["next_sentence_labels"].shape == (3, 1)
  assert (np.take_along_axis(ids, positions, 1) == 4).all()
  assert (ids == 4).sum() == positions.size
  for length in range(5, 600):
    found = protocol.Workload({}, 1, length).predictions
    assert found == data.num_to_predict(length)


@pytest.fixture(name="toys")
def fixture_toys(monkeypatch):
  """The seconds of a step by system, and a journal of the turns.

  A system ends in the turn that it has no seconds for.
  """
  toys = {"journal": []}

  class Toy:
    def __init__(self, name, system, workload):
      del system
      self.workload = toys["workload"] = workload
      facts = {"about": f"as {name}", "peak_bytes": 2**30}
      self.result = turns.Result(name, [], [], [9.0], facts)

    def turn(self, steps):
      name, rates = self.result.system, self.result.tokens_per_second
      toys["journal"].append(name)
      if len(rates) == len(toys[name]):
        raise ValueError(f"{name} has crashed")
      rates.append(70 / toys[name][len(rates)])
      self.result.results += [8.0] * steps
      return rates[-1]

    def __enter__(self):
      return self

    def __exit__(self, *unused):
      toys["journal"].append(f"{self.result.system} stops")

  monkeypatch.setattr(turns, "Peer", Toy)
  monkeypatch.setattr(turns.System, "python", lambda self: "")
  more = dict.fromkeys("oab", turns.System("ours"))
  monkeypatch.setattr(turns, "SYSTEMS", {**turns.SYSTEMS, **more})
  return toys


def test_systems_take_turns(toys):
  # The machine becomes slower.
  toys |= {"o": [1, 2, 3, 4, 5, 6], "a": [2, 4, 6], "b": [0.5, 0.5, 0.5]}
  options = turns.Options(repeats=3, steps=2)
  ours, a, b = turns.take_turns("oab", _WORKLOAD, options)
  assert toys["journal"] == (
    [*"oaaooa", "a stops"] + [*"obboob", "b stops", "o stops"]
  )
  assert len(ours.tokens_per_second) == 6 and ours.ratios == []
  # Ratios are taken within a round.
  assert a.ratios == pytest.approx([2, 2, 2])
  assert b.ratios == pytest.approx([0.5 / 4, 0.5 / 5, 0.5 / 6])
  toys["a"] = [1]
  with pytest.raises(ValueError, match="a has crashed"):
    turns.take_turns("oa", _WORKLOAD, options)


def test_peers_are_reported_and_saved(toys, tmp_path, capsys):
  toys |= {"official_albert": [0.3] * 2, "hf_tuned": [1], "hf_eager": [2]}
  options = turns.Options(
    *("albert_base_v1", 3, 31, "mixed_bfloat16", 1, 2),
    systems=["hf_tuned", "hf_eager"],
    output_dir=str(tmp_path),
  )
  turns.run("peers", options)
  assert toys["workload"].settings == {"optimizer": "adamw"}
  assert toys["workload"].config["hidden_dropout_prob"] == 0
  name = "peers-albert_base_v1-s31-b3-mixed_bfloat16"
  text = (tmp_path / f"{name}.md").read_text()
  assert text in capsys.readouterr().out
  title, _, head, _, *rows = text.splitlines()
  assert title.startswith(f"{name}, ")
  cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]
  assert len(cells[0]) == head.count("|") - 1
  assert cells[0] == [
    *("official_albert", "233", "398.6", ""),
    *("0.0 s", "1.00 GiB", "9.00, 8.00", "as official_albert"),
  ]
  assert cells[1][:2] == ["hf_tuned", "70"]
  assert cells[1][3] == "3.33"
  numbers = json.loads((tmp_path / f"{name}.json").read_text())
  names = [result["system"] for result in numbers["results"]]
  assert names == ["official_albert", "hf_tuned", "hf_eager"]
