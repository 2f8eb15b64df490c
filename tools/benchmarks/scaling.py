"""How the step's speed, memory and tracing grow with batch, length and model.

Each point is a process of its own, so that no point has another's memory.
"""

from __future__ import annotations

import dataclasses
import os
import statistics
from typing import NamedTuple

from official_albert import files
from tools.benchmarks import peers_command as benchmark_peers
from tools.benchmarks import step as benchmark_step
from tools.benchmarks.peers import protocol as peer_protocol
from tools.cli import markdown

_TOKENS = 2048  # Of a step, where the batch is not what is varied.
_BATCH_SIZES = (1, 2, 4, 8, 16, 32)
_LENGTHS = (64, 128, 256, 512)
_DEPTHS = (1, 3, 6, 12, 24)
_WIDTHS = ("base", "large", "xlarge", "xxlarge")
# Widths are compared at a depth at which the widest takes seconds a step.
_WIDTHS_DEPTH = 2


@dataclasses.dataclass(frozen=True)
class Settings:
  """What is measured; see the flags of tools.benchmark."""

  precision: str = "mixed_bfloat16"
  repeats: int = 3
  steps: int = 2
  output_dir: str = ""
  machine: str = ""


class Setting(NamedTuple):
  """A point: along which axis, where on it, and what is computed there."""

  axis: str
  value: int
  workload: peer_protocol.Workload


@dataclasses.dataclass(frozen=True)
class Point:
  """One model and batch.

  Attributes:
    axis: what is varied, as the table and the plot call it.
    value: where on the axis.
    tokens_per_second: of each run.
    peak_bytes: the most memory of the process.
    trace_seconds: to trace the step.
    flops_per_second: of the step, by its median.
  """

  axis: str
  value: int
  tokens_per_second: list[float]
  peak_bytes: int
  trace_seconds: float
  flops_per_second: float

  @property
  def median(self) -> float:
    """Tokens a second."""
    return statistics.median(self.tokens_per_second)


def settings_of(precision: str) -> list[Setting]:
  """All points, axis after axis."""

  def base(batch_size: int, length: int, preset: str = "albert_base_v2"):
    return benchmark_peers.workload_of(preset, batch_size, length, precision)

  middle = base(_TOKENS // 128, 128)
  widths = [
    dataclasses.replace(
      base(_TOKENS // 128, 128, f"albert_{name}_v2"),
      num_hidden_layers=_WIDTHS_DEPTH,
    )
    for name in _WIDTHS
  ]
  return [
    *(Setting("batch size, S 128", b, base(b, 128)) for b in _BATCH_SIZES),
    *(
      Setting(f"length, {_TOKENS:,} tokens a step", s, base(_TOKENS // s, s))
      for s in _LENGTHS
    ),
    *(
      Setting("layers", n, dataclasses.replace(middle, num_hidden_layers=n))
      for n in _DEPTHS
    ),
    *(
      Setting(f"width, {_WIDTHS_DEPTH} layers", w.hidden_size, w)
      for w in widths
    ),
  ]


def run(settings: Settings) -> list[Point]:
  """Measures every point, prints the table, and saves table, figures and plot.

  Raises:
    ValueError: a step failed.
  """
  print(markdown.head(_HEAD), flush=True)
  points = []
  for setting in settings_of(settings.precision):
    measured = benchmark_step.measure(
      setting.workload, settings.repeats, settings.steps
    )
    points.append(
      Point(
        setting.axis,
        setting.value,
        measured.tokens_per_second,
        measured.peak_bytes,
        measured.ready.trace_seconds,
        measured.flops_per_second,
      )
    )
    print(markdown.row(row(points[-1])), flush=True)
  if settings.output_dir:
    save(points, settings)
  return points


_HEAD = (
  *("axis", "at", "tokens/s", "lowest to highest", "GFLOP/s", "peak memory"),
  "seconds to trace",
)


def row(point: Point) -> tuple[str, ...]:
  """Returns the cells of a row."""
  rates = point.tokens_per_second
  return (
    point.axis,
    f"{point.value:,}",
    f"{point.median:,.0f}",
    f"{min(rates):,.0f} to {max(rates):,.0f}",
    f"{point.flops_per_second / 1e9:,.0f}",
    f"{point.peak_bytes / 2**30:.2f} GiB",
    f"{point.trace_seconds:.1f}",
  )


def save(points: list[Point], settings: Settings) -> None:
  """Figures, table and plot, in `settings.output_dir`."""
  from tools.benchmarks import plots

  folder = settings.output_dir
  os.makedirs(folder, exist_ok=True)
  title = f"albert_base, {settings.precision}: {settings.machine}"
  figures = {
    "title": title,
    "points": [dataclasses.asdict(point) for point in points],
  }
  files.write_json(os.path.join(folder, "scaling.json"), figures, indent=2)
  files.write_text(
    os.path.join(folder, "scaling.md"),
    f"{title}\n\n{markdown.table(_HEAD, map(row, points))}\n",
  )
  plots.draw_scaling(points, os.path.join(folder, "benchmark_scaling.png"))
