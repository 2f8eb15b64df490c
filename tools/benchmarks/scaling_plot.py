"""Draws how the training step scales: a column for each axis, three rows."""

from __future__ import annotations

import dataclasses
import statistics
from typing import Sequence

from tools.cli import figures
from tools.cli.figures import pyplot


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


_MARGIN = 1.08
_ROWS = (
  ("tokens/s", lambda point: point.median),
  ("peak memory, GiB", lambda point: point.peak_bytes / 2**30),
  ("seconds to trace", lambda point: point.trace_seconds),
)


def plot(
  points: Sequence[Point], output_file: str, rows: int = len(_ROWS)
) -> None:
  """Writes the PNG, complete or not at all.

  Args:
    points: at least one.
    output_file: its folder has to exist.
    rows: of the plot: speed, memory, and tracing where there is any.
  """
  names = list(dict.fromkeys(point.axis for point in points))
  figure, axes = pyplot.subplots(
    rows,
    len(names),
    figsize=(3.2 * len(names), 2.3 * rows),
    squeeze=False,
  )
  for column, name in enumerate(names):
    there = [point for point in points if point.axis == name]
    for axis, (label, figure_of) in zip(axes[:, column], _ROWS[:rows]):
      _panel(axis, there, figure_of)
      if column == 0:
        axis.set_ylabel(label)
    for point in there:
      rates = point.tokens_per_second
      axes[0, column].vlines(
        point.value, min(rates), max(rates), color="#444444", linewidth=1
      )
    highest = max(max(point.tokens_per_second) for point in there)
    axes[0, column].set_ylim(0, _MARGIN * highest)
    axes[-1, column].set_xlabel(name)
  figure.tight_layout()
  figures.save(figure, output_file)


def _panel(axis, points: Sequence[Point], figure_of) -> None:
  values = [point.value for point in points]
  heights = [figure_of(point) for point in points]
  axis.plot(
    values,
    heights,
    "o-",
    color="#1f77b4",
    markersize=4,
    linewidth=1.2,
  )
  axis.set_xscale("log", base=2)
  axis.set_xticks(values, [f"{value:,}" for value in values])
  axis.minorticks_off()
  axis.set_xlim(values[0] / _MARGIN**3, values[-1] * _MARGIN**3)
  axis.set_ylim(0, _MARGIN * (max(heights) or 1))
  axis.grid(alpha=0.25)
  for side in ("top", "right"):
    axis.spines[side].set_visible(False)
