"""Tests of rounds and ratios with toys in place of the peers."""

from __future__ import annotations

import types

import pytest

from tools import benchmark_peers, peer_protocol, peer_results


class _Toy:
  """Takes a given time a step; the journal says who ran when."""

  def __init__(self, journal, name, seconds, fails_at=99, flops=None):
    self._journal, self._name = journal, name
    self._seconds, self._fails_at, self._flops = seconds, fails_at, flops
    self._runs = 0
    self.ready = peer_protocol.Ready([9.0], 1.0, 0.5, 2.0, {}, name, 1000)

  def run(self, steps):
    self._journal.append(self._name)
    self._runs += 1
    if self._runs == self._fails_at:
      raise ValueError(f"{self._name} has crashed")
    seconds = self._seconds * self._runs
    return peer_protocol.Timed([seconds] * steps, [8.0] * steps, 2000)

  def product_flops(self, count):
    return self._flops

  def stop(self):
    self._journal.append(f"{self._name} stops")

  def __enter__(self):
    return self

  def __exit__(self, *unused):
    self.stop()


def _compare(toys, peers, rounds=3):
  def start(name):
    if name not in toys:
      raise ValueError(f"{name} does not start")
    return toys[name]

  return benchmark_peers.compare(
    start, peers, tokens=70, rounds=rounds, steps=2
  )


def _toys(journal, **others):
  toys = {"official_albert": _Toy(journal, "ours", 0.5, flops=3e9)}
  toys.update({n: _Toy(journal, n, **kw) for n, kw in others.items()})
  return toys


def test_they_take_turns():
  journal = []
  toys = _toys(journal, a=dict(seconds=1.0, flops=7e9), b=dict(seconds=0.25))
  (ours, a, b), flops = _compare(toys, ["a", "b"])
  assert journal == (
    "ours a b b a ours ours a b".split() + ["a stops", "b stops", "ours stops"]
  )
  assert ours.tokens_per_second == [140, 70, 70 / 1.5] and ours.ratios == []
  assert a.tokens_per_second == [70, 35, 70 / 3]
  # Of the same round, though the machine slowed down all the time.
  assert a.ratios == pytest.approx([2, 2, 2])
  assert b.ratios == pytest.approx([0.5, 0.5, 0.5])
  assert (a.system, a.about, a.peak_bytes) == ("a", "a", 2000)
  assert a.losses == [9.0] + [8.0] * 6
  assert flops == 7e9


def test_who_fails_leaves_the_others_to_it():
  journal = []
  toys = _toys(journal, a=dict(seconds=1.0, fails_at=2), c=dict(seconds=1.0))
  (ours, a, b, c), unused = _compare(toys, ["a", "b", "c"])
  assert a.failure == "a has crashed" and not a.tokens_per_second
  assert b.failure == "b does not start"
  assert c.ratios == pytest.approx([2, 2, 2]) and not c.failure
  assert journal.count("a") == 2


def test_our_own_failure_is_an_error():
  journal = []
  toys = {
    "official_albert": _Toy(journal, "ours", 0.5, fails_at=2),
    "a": _Toy(journal, "a", 1.0),
  }
  with pytest.raises(ValueError, match="ours has crashed"):
    _compare(toys, ["a"])
  assert journal[-2:] == ["a stops", "ours stops"]


def test_peers_come_in_groups_when_memory_is_short(monkeypatch):
  journal = []
  toys = _toys(journal, **{name: dict(seconds=1.0) for name in "abc"})
  # Asked before each start but a group's first: room for one more, then none.
  room = iter([10**9, 0])
  monkeypatch.setattr(benchmark_peers, "available_bytes", lambda: next(room))
  results, unused = _compare(toys, ["a", "b", "c"], rounds=1)
  assert journal == (
    ["ours", "a", "b", "a stops", "b stops"]
    + ["ours", "c", "c stops", "ours stops"]
  )
  assert [len(r.ratios) for r in results] == [0, 1, 1, 1]
  assert len(results[0].tokens_per_second) == 2


def test_workload():
  workload = benchmark_peers.workload_of(
    "albert_base_v1", 3, 17, "mixed_bfloat16"
  )
  assert (workload.hidden_size, workload.vocab_size) == (768, 30000)
  assert workload.hidden_dropout_prob == 0 and workload.threads >= 1
  with_dropout = benchmark_peers.workload_of(
    "albert_base_v1", 3, 17, "float32", dropout=True
  )
  assert with_dropout.hidden_dropout_prob == 0.1


def test_flops():
  """A token of albert_base is 6 times its 12 layers' 7.1 million weights."""
  workload = peer_protocol.Workload()
  layers = 6 * 12 * (4 * 768**2 + 2 * 768 * 3072)
  flops = benchmark_peers.flops_per_token(workload)
  assert layers < flops < 1.06 * layers


@pytest.mark.parametrize(
  "changes, message",
  [
    (dict(systems=["hf_sdpa", "weather"]), "unknown systems weather; there ar"),
    (dict(preset="albert_bass"), "unknown preset"),
    (dict(precision="float16"), "unknown precision 'float16'"),
    (dict(max_seq_length=513), "at most 512 tokens, not 513"),
    (dict(preset="bert_base"), "does not share one block"),
  ],
)
def test_refusals(changes, message, monkeypatch):
  def make(name, folder):
    raise AssertionError(f"{name} would be installed")

  monkeypatch.setattr(benchmark_peers.peer_venvs, "make", make)
  with pytest.raises(ValueError, match=message):
    benchmark_peers.run(benchmark_peers.Settings(**changes))


def test_run_saves_everything(tmp_path, monkeypatch, capsys):
  """Toys behind a command's own `run`."""
  journal = []
  toys = _toys(journal, hf_sdpa=dict(seconds=1.0, flops=7e9))
  programs = {"tools.peer_official_albert": "official_albert"}

  def start(python, program, workload, environment):
    assert environment.keys() >= (
      {"MALLOC_TRIM_THRESHOLD_"} if workload.variant == "sdpa" else set()
    )
    return toys[programs.get(program, "hf_sdpa")]

  monkeypatch.setattr(
    benchmark_peers, "peer_process", types.SimpleNamespace(PeerProcess=start)
  )
  monkeypatch.setattr(
    benchmark_peers.peer_venvs, "make", lambda name, folder: f"{folder}/{name}"
  )
  settings = benchmark_peers.Settings(
    batch_size=3,
    max_seq_length=31,
    systems=["hf_sdpa", "official_albert"],
    output_dir=str(tmp_path),
    machine="here",
  )
  comparison = benchmark_peers.run(settings)
  names = [result.system for result in comparison.results]
  assert names == ["official_albert", "hf_sdpa"]
  assert sorted(path.name for path in tmp_path.iterdir()) == [
    "benchmark_peers.png",
    "peers-albert_base_v2-s31-b3-mixed_bfloat16.json",
    "peers.md",
  ]
  assert peer_results.load_all(str(tmp_path)) == [comparison]
  assert (tmp_path / "peers.md").read_text() in capsys.readouterr().out


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
