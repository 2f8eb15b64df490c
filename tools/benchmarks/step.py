"""Speed, memory and efficiency of one pretraining step, in its own process.

The step is that of `tools.run_pretraining` with its losses, clipping and
optimizer, and the preset's own dropout; the batch is random and full. Between
runs of steps the process measures how fast the machine multiplies matrices,
so that both have the same share of a busy machine.
"""

from __future__ import annotations

import dataclasses
import os
import statistics
import sys

from official_albert import files
from tools.benchmarks import peers_command as benchmark_peers
from tools.benchmarks.peers import official_albert_step as peer_official_albert
from tools.benchmarks.peers import process as peer_process
from tools.benchmarks.peers import protocol as peer_protocol
from tools.cli import markdown

_PRODUCTS = 20
OPTIMIZERS = {
  optimizer: variant
  for variant, optimizer in peer_official_albert.VARIANTS.items()
}


@dataclasses.dataclass(frozen=True)
class Settings:
  """What is measured; see the flags of tools.benchmark."""

  preset: str = "albert_base_v2"
  batch_size: int = 16
  max_seq_length: int = 128
  precision: str = "mixed_bfloat16"
  repeats: int = 3
  steps: int = 4
  optimizer: str = "lamb"
  output_dir: str = ""
  machine: str = ""


@dataclasses.dataclass(frozen=True)
class Measured:
  """One process.

  Attributes:
    workload: what it computed.
    ready: what it said after the warm-up.
    tokens_per_second: of each run of steps.
    peak_bytes: the most memory that it had.
    flops_per_second: of the step, by its median, in the arithmetic that it
      cannot do without.
    product_flops: FLOP/s of the fastest matrix product between the runs.
  """

  workload: peer_protocol.Workload
  ready: peer_protocol.Ready
  tokens_per_second: list[float]
  peak_bytes: int
  flops_per_second: float
  product_flops: float

  @property
  def median(self) -> float:
    """Tokens a second."""
    return statistics.median(self.tokens_per_second)


def run(settings: Settings) -> Measured:
  """Measures, prints a table, and saves it.

  Raises:
    ValueError: unknown sizes or optimizer, or the step failed.
  """
  if settings.optimizer not in OPTIMIZERS:
    raise ValueError(
      f"unknown optimizer {settings.optimizer!r}; choose one of "
      f"{', '.join(sorted(OPTIMIZERS))}."
    )
  workload = benchmark_peers.workload_of(
    settings.preset,
    settings.batch_size,
    settings.max_seq_length,
    settings.precision,
    dropout=True,
    ours_alone=True,
  )
  measured = measure(
    dataclasses.replace(workload, variant=OPTIMIZERS[settings.optimizer]),
    settings.repeats,
    settings.steps,
  )
  title = (
    f"{settings.preset}, S {settings.max_seq_length}, B {settings.batch_size}, "
    f"{settings.precision}, {settings.optimizer}"
  )
  text = f"{title}: {settings.machine}\n\n{table(measured)}"
  print(text, flush=True)
  if settings.output_dir:
    os.makedirs(settings.output_dir, exist_ok=True)
    path = os.path.join(
      settings.output_dir, title.replace(", ", "-").replace(" ", "").lower()
    )
    figures = {"machine": settings.machine, **dataclasses.asdict(measured)}
    files.write_json(f"{path}.json", figures, indent=2)
    files.write_text(f"{path}.md", text)
  return measured


def measure(
  workload: peer_protocol.Workload, repeats: int, steps: int
) -> Measured:
  """`repeats` runs of `steps` steps in a process of their own.

  Raises:
    ValueError: it failed.
  """
  rates, products = [], []
  with peer_process.PeerProcess(
    sys.executable, peer_official_albert.__name__, workload
  ) as process:
    for _ in range(repeats):
      timed = process.run(steps)
      rates.append(workload.tokens * steps / sum(timed.seconds))
      products.append(process.product_flops(_PRODUCTS))
    ready = process.ready
  flops = benchmark_peers.flops_per_token(workload)
  return Measured(
    workload,
    ready,
    rates,
    timed.peak_bytes,
    flops * statistics.median(rates),
    max(products),
  )


def table(measured: Measured) -> str:
  """Markdown, a line for each figure."""
  rates, ready = measured.tokens_per_second, measured.ready
  share = measured.flops_per_second / measured.product_flops
  step = measured.workload.tokens / measured.median
  rows = (
    ("tokens/s, median", f"{measured.median:,.0f}"),
    (
      "tokens/s, lowest to highest",
      f"{min(rates):,.0f} to {max(rates):,.0f}",
    ),
    ("seconds a step", f"{step:.3f}"),
    (
      "seconds to import and build",
      f"{ready.build_seconds - ready.trace_seconds:.1f}",
    ),
    ("seconds to trace the step", f"{ready.trace_seconds:.1f}"),
    ("seconds of the first step", f"{ready.first_step_seconds:.1f}"),
    ("peak memory", f"{measured.peak_bytes / 2**30:.2f} GiB"),
    ("GFLOP/s of the step", f"{measured.flops_per_second / 1e9:,.0f}"),
    ("GFLOP/s of matrix products", f"{measured.product_flops / 1e9:,.0f}"),
    ("share of the matrix products' rate", f"{share:.0%}"),
  )
  return markdown.table(("figure", "value"), rows) + "\n"
