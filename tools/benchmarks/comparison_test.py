"""Tests of workloads, turns, tables and files, with toys as peers."""

from __future__ import annotations

import json
import re

import pytest

from official_albert.tools.benchmarks import comparison
from official_albert.tools.benchmarks.peers import protocol

_OURS = comparison.Result(
  "official_albert",
  [200.0, 300.0, 220.0],
  peak_bytes=3 * 2**29,
  losses=[11.0, 10.5, 10.0, 9.5],
  about="as it is",
  versions={"tensorflow": "2.15.1"},
  product_flops=1e9,
)
_PEER = comparison.Result(
  "other", [100.0, 100.0, 220.0], [2.0, 3.0, 1.0], 2**30, [11.0, 10.75]
)
_BROKEN = comparison.Result("broken", failure="no torch")
_RESULTS = [_OURS, _PEER, _BROKEN]


def test_table():
  title, _, head, _, *rows = comparison.table("a", 1e6, _RESULTS).splitlines()
  assert title == "a; matrix products reach 1 GFLOP/s."
  assert head.count("|") == 9
  cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]
  # 220 tokens a second of a megaflop are 22% of a gigaflop a second. The loss
  # is that of the second step, as the other system has taken only two.
  assert cells[0] == [
    *("official_albert", "220", "200 to 300", "1", "1.50 GiB", "22%"),
    *("11.00 to 10.50", "tensorflow 2.15.1: as it is"),
  ]
  ratio = "2.00 (1.00 to 3.00)"
  assert cells[1][:5] == ["other", "100", "100 to 220", ratio, "1.00 GiB"]
  assert cells[2][:2] == ["broken", "failed: no torch"]


class Toy:
  """A peer with a given time per step; the journal records the order."""

  def __init__(self, journal, name, seconds, fails_at=99, flops=0.0):
    self._journal, self._name = journal, name
    self._seconds, self._fails_at, self._flops = seconds, fails_at, flops
    self._runs = 0
    self.has_failed = False
    self.ready = protocol.Ready(1.0, 0.5, {}, name, 500)
    self.warmup = protocol.Timed([2.0], [2.0], [9.0], 1000, 0.0)

  def run(self, steps):
    self._journal.append(self._name)
    self._runs += 1
    if self._runs == self._fails_at:
      self.has_failed = True
      raise ValueError(f"{self._name} has crashed")
    seconds = [self._seconds * self._runs] * steps
    return protocol.Timed(seconds, seconds, [8.0] * steps, 2000, self._flops)

  def __enter__(self):
    return self

  def __exit__(self, *unused):
    self._journal.append(f"{self._name} stops")


def _compare(toys, peers, rounds=3):
  def start(name):
    if name not in toys:
      raise ValueError(f"{name} does not start")
    return toys[name]

  return comparison.take_turns(start, peers, tokens=70, rounds=rounds, steps=2)


def make_toys(journal, **others):
  toys = {"official_albert": Toy(journal, "ours", 0.5, flops=3e9)}
  toys.update({n: Toy(journal, n, **kw) for n, kw in others.items()})
  return toys


def test_systems_take_turns():
  journal = []
  toys = make_toys(
    journal, a=dict(seconds=1.0, flops=7e9), b=dict(seconds=0.25)
  )
  ours, a, b = _compare(toys, ["a", "b"])
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
  assert (a.build_seconds, a.first_step_seconds) == (1.0, 2.0)
  assert a.losses == [9.0] + [8.0] * 6
  # b measures no products.
  flops = [result.product_flops for result in (ours, a, b)]
  assert flops == [3e9, 7e9, 0]


def test_other_systems_continue_after_a_failure():
  journal = []
  toys = make_toys(
    journal, a=dict(seconds=1.0, fails_at=2), c=dict(seconds=1.0)
  )
  _, a, b, c = _compare(toys, ["a", "b", "c"])
  assert a.failure == "a has crashed" and not a.tokens_per_second
  assert b.failure == "b does not start"
  assert len(c.ratios) == 3 and not c.failure
  assert journal.count("a") == 2


def test_our_own_failure_is_an_error():
  journal = []
  toys = {
    "official_albert": Toy(journal, "ours", 0.5, fails_at=2),
    "a": Toy(journal, "a", 1.0),
  }
  with pytest.raises(ValueError, match="ours has crashed"):
    _compare(toys, ["a"])
  assert journal[-2:] == ["a stops", "ours stops"]


def test_workloads():
  made = comparison.workload_of("albert_base_v1", 3, 17, "mixed_bfloat16")
  assert (made.hidden_size, made.vocab_size) == (768, 30000)
  assert made.hidden_dropout_prob == 0 and made.threads >= 1
  # Our own step may have dropout, and layers of their own.
  ours = comparison.workload_of(
    "bert_base", 4, 128, "mixed_float16", ours_alone=True
  )
  assert ours.hidden_dropout_prob == 0.1
  assert (ours.sharing, ours.embedding_size) == ("none", 768)
  with pytest.raises(ValueError, match="does not share one block"):
    comparison.workload_of("bert_base", 3, 5, "float32")
  # About 6 operations per weight of the 12 layers. Attention and the heads add
  # to it; the last layer computes only what the heads read.
  layers = 6 * 12 * (4 * 768**2 + 2 * 768 * 3072)
  flops = comparison.flops_per_token(protocol.Workload())
  assert 0.95 * layers < flops < layers


def test_run_saves_everything(tmp_path, monkeypatch, capsys):
  toys = make_toys([], hf_tuned=dict(seconds=1.0, flops=7e9))
  pythons = []

  def start(system, workload, python):
    pythons.append(python)
    tuned = system.variant == "tuned"
    assert ("MALLOC_TRIM_THRESHOLD_" in system.environment) == tuned
    return toys["hf_tuned" if tuned else "official_albert"]

  monkeypatch.setattr(comparison, "start", start)
  monkeypatch.setattr(
    comparison, "make_environment", lambda name, folder: f"{folder}/{name}"
  )
  comparison.run(
    *("albert_base_v2", 3, 31, "mixed_bfloat16"),
    *(["hf_tuned", "official_albert"], 3, 4, f"{tmp_path}/peers"),
    output_dir=str(tmp_path),
  )
  assert pythons[1:] == [f"{tmp_path}/peers/huggingface"]
  name = "peers-albert_base_v2-s31-b3-mixed_bfloat16"
  assert sorted(path.name for path in tmp_path.iterdir()) == [
    *(f"{name}.json", f"{name}.md", f"{name}.png")
  ]
  text = (tmp_path / f"{name}.md").read_text()
  assert text in capsys.readouterr().out
  assert text.startswith("albert_base_v2, S 31, B 3, mixed_bfloat16: ")
  numbers = json.loads((tmp_path / f"{name}.json").read_text())
  names = [result["system"] for result in numbers["results"]]
  assert names == ["official_albert", "hf_tuned"]
  assert numbers["workload"]["max_seq_length"] == 31


def test_pins():
  files = {path.stem: path for path in comparison.REQUIREMENTS_DIR.iterdir()}
  assert set(files) == {s.venv for s in comparison.SYSTEMS.values() if s.venv}
  for path in files.values():
    for line in path.read_text().splitlines():
      assert line.startswith("#") or re.fullmatch(r"[\w-]+==\d[\w.]*", line)
