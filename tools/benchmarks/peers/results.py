"""What a comparison with peers has measured: statistics, table, file."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import statistics
from typing import Any, Mapping, Optional, Sequence

from official_albert import files
from tools.benchmarks.peers import protocol as peer_protocol
from tools.cli import markdown

OURS = "official_albert"
_GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Result:
  """One system's figures.

  Attributes:
    system: its name.
    tokens_per_second: of each round.
    ratios: how many times as fast this project was in the same rounds.
    peak_bytes: the most memory that the process had.
    losses: of every step in order, in nats.
    build_seconds, first_step_seconds, about, versions: see
      `peer_protocol.Ready`.
    failure: why there are no figures; "" if there are.
  """

  system: str
  tokens_per_second: list[float] = dataclasses.field(default_factory=list)
  ratios: list[float] = dataclasses.field(default_factory=list)
  peak_bytes: int = 0
  losses: list[float] = dataclasses.field(default_factory=list)
  build_seconds: float = 0.0
  first_step_seconds: float = 0.0
  about: str = ""
  versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
  failure: str = ""

  @property
  def median(self) -> float:
    """Tokens a second."""
    return statistics.median(self.tokens_per_second)


@dataclasses.dataclass(frozen=True)
class Comparison:
  """All systems at one workload.

  Attributes:
    machine: one line about it.
    preset: whose sizes the workload has.
    workload: what each computed, but for its `variant`.
    flops_per_token: of the arithmetic that a step cannot do without.
    product_flops: FLOP/s of the best matrix product that any system reached;
      see `peer_protocol.best_product`.
    results: this project's first.
  """

  machine: str
  preset: str
  workload: peer_protocol.Workload
  flops_per_token: float
  product_flops: float
  results: list[Result]

  def product_share(self, result: Result) -> float:
    """Of the machine's rate of matrix products, in the median round."""
    return result.median * self.flops_per_token / self.product_flops

  @property
  def title(self) -> str:
    return (
      f"{self.preset}, S {self.workload.max_seq_length}, "
      f"B {self.workload.batch_size}, {self.workload.precision}"
    )

  @property
  def file_name(self) -> str:
    return (
      f"peers-{self.preset}-s{self.workload.max_seq_length}"
      f"-b{self.workload.batch_size}-{self.workload.precision}.json"
    )


def table(comparison: Comparison) -> str:
  """Markdown: a paragraph and a line for each system."""
  title = (
    f"{comparison.title}: {comparison.machine}, "
    f"{comparison.workload.threads} threads; matrix products reach "
    f"{comparison.product_flops / 1e9:,.0f} GFLOP/s."
  )
  rows = [row(comparison, result) for result in comparison.results]
  return f"{title}\n\n{markdown.table(_HEAD, rows)}\n"


_HEAD = (
  *("system", "tokens/s", "lowest to highest", "ours is faster by"),
  *("peak memory", "of the products' rate", "loss, first to last", "set up as"),
)


def row(comparison: Comparison, result: Result) -> tuple[str, ...]:
  """Returns the cells of a row."""
  if result.failure:
    return result.system, f"failed: {result.failure}"
  rates = result.tokens_per_second
  versions = ", ".join(f"{k} {v}" for k, v in result.versions.items())
  ratio = "1"
  if result.system != OURS:
    ratio = f"{statistics.median(result.ratios):.2f}"
    ratio += f" ({min(result.ratios):.2f} to {max(result.ratios):.2f})"
  return (
    result.system,
    f"{result.median:,.0f}",
    f"{min(rates):,.0f} to {max(rates):,.0f}",
    ratio,
    f"{result.peak_bytes / _GIB:.2f} GiB",
    f"{comparison.product_share(result):.0%}",
    f"{result.losses[0]:.2f} to {result.losses[-1]:.2f}",
    f"{versions}: {result.about}",
  )


def save(comparison: Comparison, folder: str) -> None:
  """Writes `comparison.file_name` into the folder, which is made."""
  os.makedirs(folder, exist_ok=True)
  files.write_json(
    os.path.join(folder, comparison.file_name),
    dataclasses.asdict(comparison),
    indent=2,
  )


def load_all(folder: str) -> list[Comparison]:
  """What `save` wrote there, in the order of the files' names.

  Raises:
    ValueError: a file is no comparison.
  """
  return [_load(p) for p in sorted(pathlib.Path(folder).glob("peers-*.json"))]


def _load(path: pathlib.Path) -> Comparison:
  try:
    fields: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    fields["workload"] = peer_protocol.Workload(**fields["workload"])
    fields["results"] = [Result(**r) for r in fields["results"]]
    return Comparison(**fields)
  except (TypeError, KeyError, ValueError) as error:
    raise ValueError(
      f"{path} is not what the benchmark of peers writes ({error}): remove it."
    ) from error


def best_of(comparison: Comparison, systems: Sequence[str]) -> Optional[Result]:
  """The fastest of these systems, if any of them was measured."""
  there = [
    result
    for result in comparison.results
    if result.system in systems and not result.failure
  ]
  return max(there, key=lambda result: result.median, default=None)
