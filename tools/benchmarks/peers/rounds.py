"""Programs that are timed take turns, so that none has the quiet minutes.

Every system is a process of its own that keeps its model; round after round
each takes some steps, and the ratios are taken within a round.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Callable, Optional, Sequence

from tools.benchmarks.peers import process as peer_process
from tools.benchmarks.peers import results as peer_results

# What the next process may need, measured in the most that one needed so far.
_MEMORY_MARGIN = 1.5
_PRODUCTS = 20  # A round and process, of which the fastest counts.

Start = Callable[[str], peer_process.PeerProcess]


def compare(
  start: Start, peers: Sequence[str], tokens: int, rounds: int, steps: int
) -> tuple[list[peer_results.Result], float]:
  """Lets this project and the peers take turns.

  If memory is short, peers are measured in groups, this project with each.

  Args:
    start: starts the system of a name.
    peers: names of the others.
    tokens: of a step.
    rounds: of each system.
    steps: of a system in a round.

  Returns:
    This project's result, then the peers' in their order, and the FLOP/s of the
    fastest matrix product; 0 if no program measures any.

  Raises:
    ValueError: this project's own step failed.
  """
  pending = list(peers)
  turns: dict[str, _Turns] = {}
  with start(peer_results.OURS) as process:
    ours = turns[peer_results.OURS] = _Turns(process)
    while True:
      group = _start_group(start, pending, turns)
      for index in range(rounds):
        _take_round([ours, *group][:: -1 if index % 2 else 1], tokens, steps)
        for peer in group:
          peer.finish_round(ours.rates[-1])
      for peer in group:
        peer.process.stop()
      if not pending:
        break
  if ours.failure:
    raise ValueError(ours.failure)
  products = [flops for turn in turns.values() for flops in turn.products]
  order = [peer_results.OURS, *peers]
  results = [turns[name].result(name) for name in order]
  return results, max(products, default=0.0)


@dataclasses.dataclass
class _Turns:
  """A system and what it has done so far."""

  process: Optional[peer_process.PeerProcess] = None
  failure: str = ""

  def __post_init__(self):
    self.rates: list[float] = []
    self.ratios: list[float] = []
    self.losses: list[float] = []
    self.products: list[float] = []
    self.peak_bytes = 0
    if self.process:
      self.losses += self.process.ready.losses
      self.peak_bytes = self.process.ready.peak_bytes

  def take(self, tokens: int, steps: int) -> None:
    try:
      timed = self.process.run(steps)
      flops = self.process.product_flops(_PRODUCTS)
    except ValueError as error:
      self.failure = str(error)
      return
    self.rates.append(tokens * steps / sum(timed.seconds))
    self.losses += timed.losses
    self.peak_bytes = timed.peak_bytes
    if flops:
      self.products.append(flops)

  def finish_round(self, ours: float) -> None:
    if not self.failure:
      self.ratios.append(ours / self.rates[-1])

  def result(self, name: str) -> peer_results.Result:
    if self.failure:
      return peer_results.Result(name, failure=self.failure)
    ready = self.process.ready
    return peer_results.Result(
      name,
      self.rates,
      self.ratios,
      self.peak_bytes,
      self.losses,
      ready.build_seconds,
      ready.first_step_seconds,
      ready.about,
      ready.versions,
    )


def _start_group(start: Start, pending: list[str], turns: dict) -> list[_Turns]:
  """Starts as many of the pending systems as there is memory for."""
  group: list[_Turns] = []
  while pending:
    need = _MEMORY_MARGIN * max(turn.peak_bytes for turn in turns.values())
    if group and available_bytes() < need:
      break
    name = pending.pop(0)
    try:
      turns[name] = _Turns(start(name))
      group.append(turns[name])
      print(f"{name} is ready.", file=sys.stderr, flush=True)
    except ValueError as error:
      turns[name] = _Turns(failure=str(error))
      print(f"{name}: {error}", file=sys.stderr, flush=True)
  return group


def _take_round(turns: Sequence[_Turns], tokens: int, steps: int) -> None:
  for turn in turns:
    if not turn.failure:
      turn.take(tokens, steps)


def available_bytes() -> int:
  """Memory that is not in use; Linux only."""
  with open("/proc/meminfo", encoding="utf-8") as file:
    line = next(line for line in file if line.startswith("MemAvailable:"))
  return int(line.split()[1]) * 1024
