"""Tests of rounds and ratios with toys in place of the peers."""

from __future__ import annotations

import pytest

from tools.benchmarks.peers import protocol as peer_protocol
from tools.benchmarks.peers import rounds as peer_rounds


class Toy:
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

  return peer_rounds.compare(start, peers, tokens=70, rounds=rounds, steps=2)


def make_toys(journal, **others):
  toys = {"official_albert": Toy(journal, "ours", 0.5, flops=3e9)}
  toys.update({n: Toy(journal, n, **kw) for n, kw in others.items()})
  return toys


def test_they_take_turns():
  journal = []
  toys = make_toys(
    journal, a=dict(seconds=1.0, flops=7e9), b=dict(seconds=0.25)
  )
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


def test_programs_that_measure_no_products():
  toys = {"official_albert": Toy([], "ours", 0.5), "a": Toy([], "a", 1.0)}
  results, flops = _compare(toys, ["a"])
  assert flops == 0 and results[1].ratios == [2.0] * 3


def test_who_fails_leaves_the_others_to_it():
  journal = []
  toys = make_toys(
    journal, a=dict(seconds=1.0, fails_at=2), c=dict(seconds=1.0)
  )
  (ours, a, b, c), unused = _compare(toys, ["a", "b", "c"])
  assert a.failure == "a has crashed" and not a.tokens_per_second
  assert b.failure == "b does not start"
  assert c.ratios == pytest.approx([2, 2, 2]) and not c.failure
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


def test_peers_come_in_groups_when_memory_is_short(monkeypatch):
  journal = []
  toys = make_toys(journal, **{name: dict(seconds=1.0) for name in "abc"})
  # Asked before each start but a group's first: room for one more, then none.
  room = iter([10**9, 0])
  monkeypatch.setattr(peer_rounds, "available_bytes", lambda: next(room))
  results, unused = _compare(toys, ["a", "b", "c"], rounds=1)
  assert journal == (
    ["ours", "a", "b", "a stops", "b stops"]
    + ["ours", "c", "c stops", "ours stops"]
  )
  assert [len(r.ratios) for r in results] == [0, 1, 1, 1]
  assert len(results[0].tokens_per_second) == 2


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
