"""Tests of turns, workloads and reports, with toys as systems."""

from __future__ import annotations

import json

import pytest

from official_albert.tools.benchmarks import step, turns
from official_albert.tools.benchmarks.peers import protocol


class Toy:
  """A peer with a given time per step; the journal records the order."""

  def __init__(self, journal, name, seconds, fails_at=99, flops=0.0):
    self._journal, self._name = journal, name
    self._seconds, self._fails_at, self._flops = seconds, fails_at, flops
    self._runs = 0
    self.start_seconds = 2.5
    self.warmup = protocol.Timed([2.0], [9.0], name, 0.5, 1000, 0.0)

  def run(self, steps):
    self._journal.append(self._name)
    self._runs += 1
    if self._runs >= self._fails_at:
      raise ValueError(f"{self._name} has crashed")
    seconds = [self._seconds * self._runs] * steps
    return protocol.Timed(
      *(seconds, [8.0] * steps, self._name, 0.5, 2000, self._flops)
    )

  def __enter__(self):
    return self

  def __exit__(self, *unused):
    self._journal.append(f"{self._name} stops")


def _compare(names, rounds=3, ours_fails_at=99, **others):
  journal = []
  toys = {"ours": Toy(journal, "ours", 0.5, ours_fails_at, 3e9)}
  toys.update({name: Toy(journal, name, **x) for name, x in others.items()})

  def start(name):
    if name not in toys:
      raise ValueError(f"{name} does not start")
    return toys[name]

  results = turns.take_turns(["ours", *names], start, 70, rounds, 2)
  return results, journal


def test_systems_take_turns():
  (ours, a, b), journal = _compare(
    *["ab"], a=dict(seconds=1.0, flops=7e9), b=dict(seconds=0.25)
  )
  assert journal == (
    [*"ours a a ours ours a".split(), "a stops"]
    + [*"ours b b ours ours b".split(), "b stops", "ours stops"]
  )
  assert len(ours.tokens_per_second) == 6 and ours.ratios == []
  assert ours.tokens_per_second[:2] == [140, 70]
  assert a.tokens_per_second == [70, 35, 70 / 3]
  # Ratios are taken within a round, as the machine becomes slower.
  assert a.ratios == pytest.approx([2, 2, 2])
  # Our fourth turn takes four times as long.
  assert b.ratios == pytest.approx([0.125, 0.2, 0.25])
  assert (a.system, a.about, a.peak_bytes) == ("a", "a", 2000)
  assert (a.trace_seconds, a.start_seconds) == (0.5, 2.5)
  assert a.results == [9.0] + [8.0] * 6
  assert [result.product_flops for result in (ours, a, b)] == [3e9, 7e9, 0]


def test_other_systems_continue_after_a_failure():
  a, c = dict(seconds=1.0, fails_at=2), dict(seconds=1.0)
  (_, a, b, c), journal = _compare(["a", "b", "c"], a=a, c=c)
  assert a.failure == "a has crashed" and not a.tokens_per_second
  assert b.failure == "b does not start"
  assert len(c.ratios) == 3 and not c.failure
  assert journal.count("a") == 2
  with pytest.raises(ValueError, match="ours has crashed"):
    _compare(["a"], ours_fails_at=2, a=dict(seconds=1.0))


def test_workloads():
  made = turns.workload_of("bert_base", 3, 17, "float32", num_hidden_layers=2)
  assert (made.config["hidden_size"], made.config["vocab_size"]) == (768, 30000)
  assert made.config["sharing"] == "none" and made.threads >= 1
  assert made.config["num_hidden_layers"] == 2
  with pytest.raises(ValueError, match="does not share one block"):
    turns.check_comparable("bert_base", "float32")
  usual = ["xla", "hf_sdpa"]
  assert turns.choose([], step.SYSTEMS, usual) == usual
  chosen = turns.choose(["hf_eager"], step.SYSTEMS, ["xla"])
  assert chosen == ["xla", "hf_eager"]
  assert turns.find_environment([turns.System("ours")], "/nowhere") == ""


def test_peers_are_reported_and_saved(tmp_path, monkeypatch, capsys):
  peers = {"ours": Toy([], "as it is", 0.3, flops=1e13)}
  peers["tuned"] = Toy([], "tuned", 1.0)

  def start(system, workload, python):
    assert python == f"{tmp_path}/peers/python"
    assert workload.settings["optimizer"] == "adamw"
    if system.variant == "eager":
      raise ValueError("no torch")
    return peers["ours" if system.program == "ours" else "tuned"]

  monkeypatch.setattr(turns, "start", start)
  monkeypatch.setattr(
    turns, "find_environment", lambda systems, folder: f"{folder}/python"
  )
  step.run(
    *("peers", "albert_base_v1", 3, 31, "mixed_bfloat16", "lamb"),
    *(["hf_tuned", "hf_eager"], 1, 2, f"{tmp_path}/peers", str(tmp_path)),
  )
  name = "peers-albert_base_v1-s31-b3-mixed_bfloat16"
  text = (tmp_path / f"{name}.md").read_text()
  assert text in capsys.readouterr().out
  title, _, head, _, *rows = text.splitlines()
  assert title.startswith("albert_base_v1, S 31, B 3, mixed_bfloat16, ")
  cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]
  assert len(cells[0]) == head.count("|") - 1
  # 310 tokens a second of about 0.5 GFLOP each.
  assert cells[0] == [
    *("official_albert", "310", "310 to 310", "", "0.00 GiB", "2%", "0.5"),
    *("2.5", "9.00 to 8.00", "as it is"),
  ]
  assert cells[1][:4] == ["hf_tuned", "93", "93 to 93", "3.33 (3.33 to 3.33)"]
  assert cells[2][:2] == ["hf_eager", "failed: no torch"]
  numbers = json.loads((tmp_path / f"{name}.json").read_text())
  names = [result["system"] for result in numbers["results"]]
  assert names == ["official_albert", "hf_tuned", "hf_eager"]
