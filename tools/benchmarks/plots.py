"""Plots of benchmarks: how a step scales, and peers next to it."""

from __future__ import annotations

import math
from typing import Callable, Sequence

from tools.benchmarks import comparison, step
from tools.cli import figures
from tools.cli.figures import pyplot

_MARGIN = 1.08
_ROWS: tuple[tuple[str, Callable[[step.Point], float]], ...] = (
  ("tokens/s", lambda point: point.median),
  ("peak memory, GiB", lambda point: point.peak_bytes / 2**30),
  ("seconds to trace", lambda point: point.trace_seconds),
)
_COLUMNS = 2
_OURS, _OTHERS = "#1f77b4", "#b8bec6"


def draw_scaling(
  points: Sequence[step.Point], output_file: str, rows: int = len(_ROWS)
) -> None:
  """Writes a PNG with a column of panels per axis.

  Args:
    points: at least one.
    output_file: the PNG.
    rows: of panels: speed, memory, and tracing.
  """
  names = list(dict.fromkeys(point.axis for point in points))
  figure, axes = pyplot.subplots(
    rows, len(names), figsize=(3.2 * len(names), 2.3 * rows), squeeze=False
  )
  for column, name in zip(axes.T, names):
    shown = [point for point in points if point.axis == name]
    values = [point.value for point in shown]
    for axis, (label, number) in zip(column, _ROWS[:rows]):
      heights = [number(point) for point in shown]
      axis.plot(values, heights, "o-", color=_OURS, markersize=4, linewidth=1.2)
      axis.set_xscale("log", base=2)
      axis.set_xticks(values, [f"{value:,}" for value in values])
      axis.minorticks_off()
      axis.set_xlim(values[0] / _MARGIN**3, values[-1] * _MARGIN**3)
      axis.set_ylim(0, _MARGIN * (max(heights) or 1))
      axis.grid(alpha=0.25)
      axis.spines[["top", "right"]].set_visible(False)
      if name == names[0]:
        axis.set_ylabel(label)
    rates = [point.tokens_per_second for point in shown]
    column[0].vlines(
      values, list(map(min, rates)), list(map(max, rates)), color="#444444",
      linewidth=1,
    )  # fmt: skip
    column[0].set_ylim(0, _MARGIN * max(map(max, rates)))
    column[-1].set_xlabel(name)
  figure.tight_layout()
  figures.save(figure, output_file)


def draw_peers(
  comparisons: Sequence[comparison.Comparison], output_file: str
) -> None:
  """Writes a PNG with a panel for each of at least one comparison."""
  columns = min(_COLUMNS, len(comparisons))
  rows = math.ceil(len(comparisons) / columns)
  figure, axes = pyplot.subplots(
    rows, columns, figsize=(6.2 * columns, 3.0 * rows), squeeze=False
  )
  for axis in axes.flat[len(comparisons) :]:
    axis.set_axis_off()
  for axis, each in zip(axes.flat, comparisons):
    _draw_comparison(axis, each)
  figure.tight_layout(h_pad=2.0, w_pad=3.0)
  figures.save(figure, output_file, dpi=120)


def _draw_comparison(axis, each: comparison.Comparison) -> None:
  measured = [result for result in each.results if not result.failure]
  # The fastest is on top.
  measured.sort(key=lambda result: result.median)
  rates = [result.tokens_per_second for result in measured]
  ours = [result.system == comparison.OURS for result in measured]
  axis.barh(
    [result.system for result in measured],
    [result.median for result in measured],
    xerr=[
      [result.median - min(result.tokens_per_second) for result in measured],
      [max(result.tokens_per_second) - result.median for result in measured],
    ],
    color=[_OURS if own else _OTHERS for own in ours],
    error_kw=dict(ecolor="#444444", elinewidth=1, capsize=2),
    height=0.65,
  )
  width = max(map(max, rates))
  for i, result in enumerate(measured):
    axis.text(
      max(rates[i]) + 0.02 * width,
      i,
      f"{result.median:,.0f}",
      va="center",
      fontweight="bold" if ours[i] else "normal",
    )
  axis.set_xlim(0, 1.18 * width)
  axis.set_title(each.title, loc="left", fontsize=11)
  axis.set_xlabel("tokens/s: median and range of the rounds")
  axis.tick_params(axis="y", length=0)
  axis.spines[["top", "right", "left"]].set_visible(False)
  axis.grid(axis="x", alpha=0.25)
  axis.set_axisbelow(True)
