"""Tests of programs, turns and reports, with toys as systems."""

from __future__ import annotations

import json
import shlex
import sys

import numpy as np
import pytest

from official_albert.tasks.pretraining import data
from official_albert.tools.benchmarks import step, turns
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
  assert workload.settings == {"xla": True}
  assert os.environ["OMP_NUM_THREADS"] == "5" and os.environ["EXTRA"] == "more"
  losses = iter(range(9, 4, -1))
  def step():
    time.sleep(0.01)
    return next(losses)
  return protocol.Program(step, "a toy", trace_seconds=0.25)

protocol.serve(build)
"""


def _start(tmp_path, monkeypatch, script: str) -> turns.Peer:
  """Starts a shell script in place of the interpreter."""
  python = tmp_path / "python"
  python.write_text(f"#!/bin/sh\n{script}\n")
  python.chmod(0o755)
  monkeypatch.setattr(turns.System, "python", lambda self: str(python))
  system = turns.System("ours", "odd", {"EXTRA": "more"}, {"xla": True})
  return turns.Peer("mine", system, _WORKLOAD)


def test_a_program_answers(tmp_path, monkeypatch):
  line = shlex.join([sys.executable, "-c", _PROGRAM])
  with _start(tmp_path, monkeypatch, f'exec {line} "$3"') as peer:
    rate = peer.turn(2)
    assert 0 < rate < 39 / 0.01
    found = peer.result
    assert (found.about, found.trace_seconds) == ("a toy", 0.25)
    assert found.results == [9, 8, 7, 6, 5] and found.product_flops == 0
    assert found.tokens_per_second == [rate] and 0 < found.start_seconds < 60
    assert 2**20 < found.peak_bytes < 2**32
    with pytest.raises(ValueError, match="mine ended with exit code 1: StopIt"):
      peer.turn(1)


@pytest.mark.parametrize(
  "script, message",
  [
    ("echo 1 >&2; echo why >&2; exit 3", "mine ended with exit code 3: why"),
    ("kill -9 $$", "perhaps because memory ran out"),
  ],
)
def test_a_program_that_does_not_start(tmp_path, monkeypatch, script, message):
  with pytest.raises(ValueError, match=message):
    _start(tmp_path, monkeypatch, script)


def test_batches_follow_the_workload():
  for make in (protocol.request, protocol.training_batch):
    batch, again = make(_WORKLOAD), make(_WORKLOAD)
    for name, value in batch.items():
      np.testing.assert_array_equal(value, again[name])
      assert value.dtype == (np.float32 if "weights" in name else np.int32)
    for name in ("input_ids", "input_mask", "segment_ids"):
      assert batch[name].shape == (3, 13)
    assert set(batch["segment_ids"].ravel()) == {0, 1}
    assert batch["input_mask"].all()
  ids = protocol.request(_WORKLOAD)["input_ids"]
  assert ids.min() >= 5 and ids.max() < 97
  # 15% of 13 tokens, rounded.
  positions, labels = batch["masked_lm_positions"], batch["masked_lm_ids"]
  assert positions.shape == labels.shape == (3, 2)
  assert batch["next_sentence_labels"].shape == (3, 1)
  assert batch["masked_lm_weights"].tolist() == [[1, 1]] * 3
  assert (np.take_along_axis(batch["input_ids"], positions, 1) == 4).all()
  np.put_along_axis(batch["input_ids"], positions, labels, 1)
  np.testing.assert_array_equal(batch["input_ids"], ids)
  for length in range(5, 600):
    found = protocol.Workload({}, 1, length).predictions
    assert found == data.num_to_predict(length)


class Toy:
  """A peer with a given time per step; the journal records the order."""

  def __init__(self, journal, name, seconds, fails_at=99, flops=0.0):
    self._journal, self._seconds, self._fails_at = journal, seconds, fails_at
    self.result = turns.Result(
      *(name, [], [], [9.0], 2.5, f"as {name}", 0.5, 2000, flops)
    )

  def turn(self, steps):
    name, rates = self.result.system, self.result.tokens_per_second
    self._journal.append(name)
    if len(rates) + 1 >= self._fails_at:
      raise ValueError(f"{name} has crashed")
    rates.append(70 / self._seconds / (len(rates) + 1))
    self.result.results += [8.0] * steps
    return rates[-1]

  def __enter__(self):
    return self

  def __exit__(self, *unused):
    self._journal.append(f"{self.result.system} stops")


def _compare(names, rounds=3, ours_fails_at=99, **others):
  journal = []
  toys = {"ours": Toy(journal, "ours", 0.5, ours_fails_at)}
  toys.update({name: Toy(journal, name, **x) for name, x in others.items()})

  def start(name):
    if name not in toys:
      raise ValueError(f"{name} does not start")
    return toys[name]

  return turns.take_turns(["ours", *names], start, rounds, 2), journal


def test_systems_take_turns():
  (ours, a, b), journal = _compare(
    *["ab"], a=dict(seconds=1.0), b=dict(seconds=0.25)
  )
  assert journal == (
    [*"ours a a ours ours a".split(), "a stops"]
    + [*"ours b b ours ours b".split(), "b stops", "ours stops"]
  )
  assert len(ours.tokens_per_second) == 6 and ours.ratios == []
  # Ratios are taken within a round, as the machine becomes slower.
  assert a.ratios == pytest.approx([2, 2, 2])
  # Our fourth turn takes four times as long.
  assert b.ratios == pytest.approx([0.125, 0.2, 0.25])


def test_other_systems_continue_after_a_failure():
  a, c = dict(seconds=1.0, fails_at=2), dict(seconds=1.0)
  (_, a, b, c), journal = _compare(["a", "b", "c"], a=a, c=c)
  assert a.failure == "a has crashed" and not a.tokens_per_second
  assert b.failure == "b does not start"
  assert len(c.ratios) == 3 and not c.failure
  assert journal.count("a") == 2
  with pytest.raises(ValueError, match="ours has crashed"):
    _compare(["a"], ours_fails_at=2, a=dict(seconds=1.0))


def test_peers_are_reported_and_saved(tmp_path, monkeypatch, capsys):
  def start(name, system, workload):
    assert workload.settings == {"optimizer": "adamw"}
    assert workload.config["hidden_dropout_prob"] == 0
    if system.variant == "eager":
      raise ValueError("no torch")
    return Toy([], name, 0.3 if name == "official_albert" else 1.0, flops=1e13)

  monkeypatch.setattr(turns, "Peer", start)
  monkeypatch.setattr(turns.System, "python", lambda self: "")
  step.run(
    *("peers", "albert_base_v1", 3, 31, "mixed_bfloat16", "lamb"),
    *(["hf_tuned", "hf_eager"], 1, 2, str(tmp_path)),
  )
  name = "peers-albert_base_v1-s31-b3-mixed_bfloat16"
  text = (tmp_path / f"{name}.md").read_text()
  assert text in capsys.readouterr().out
  title, _, head, _, *rows = text.splitlines()
  assert title.startswith("albert_base_v1, S 31, B 3, mixed_bfloat16, ")
  cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]
  assert len(cells[0]) == head.count("|") - 1
  # 233 tokens a second of about 0.5 GFLOP each.
  assert cells[0] == [
    *("official_albert", "233", "233 to 233", "", "0.00 GiB", "1%", "0.5"),
    *("2.5", "9.00 to 8.00", "as official_albert"),
  ]
  assert cells[1][:4] == ["hf_tuned", "70", "70 to 70", "3.33 (3.33 to 3.33)"]
  assert cells[2][:2] == ["hf_eager", "failed: no torch"]
  numbers = json.loads((tmp_path / f"{name}.json").read_text())
  names = [result["system"] for result in numbers["results"]]
  assert names == ["official_albert", "hf_tuned", "hf_eager"]
