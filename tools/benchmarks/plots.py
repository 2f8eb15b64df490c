"""Figures of the benchmarks: how the step scales, and the peers beside it."""

from __future__ import annotations

import math
from typing import Sequence

from tools.benchmarks import scaling
from tools.benchmarks.peers import results as peer_results
from tools.cli import figures
from tools.cli.figures import pyplot

_MARGIN = 1.08
_ROWS = (
  ("tokens/s", lambda point: point.median),
  ("peak memory, GiB", lambda point: point.peak_bytes / 2**30),
  ("seconds to trace", lambda point: point.trace_seconds),
)


def draw_scaling(
  points: Sequence[scaling.Point], output_file: str, rows: int = len(_ROWS)
) -> None:
  """Draws a column for each axis; the PNG appears complete or not at all.

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
      _scaling_panel(axis, there, figure_of)
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


def _scaling_panel(axis, points: Sequence[scaling.Point], figure_of) -> None:
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


_COLUMNS = 2
_OURS, _OTHERS = "#1f77b4", "#b8bec6"


def draw_peers(
  comparisons: Sequence[peer_results.Comparison], output_file: str
) -> None:
  """Draws a panel for each comparison; the PNG appears complete or not at all.

  Args:
    comparisons: at least one.
    output_file: its folder has to exist.
  """
  columns = min(_COLUMNS, len(comparisons))
  rows = math.ceil(len(comparisons) / columns)
  figure, axes = pyplot.subplots(
    rows, columns, figsize=(6.2 * columns, 3.0 * rows), squeeze=False
  )
  for axis in axes.ravel()[len(comparisons) :]:
    axis.axis("off")
  for axis, comparison in zip(axes.ravel(), comparisons):
    _peers_panel(axis, comparison)
  figure.tight_layout(h_pad=2.0, w_pad=3.0)
  figures.save(figure, output_file, dpi=120)


def _peers_panel(axis, comparison: peer_results.Comparison) -> None:
  measured = [r for r in comparison.results if not r.failure]
  measured.sort(key=lambda result: result.median)
  medians = [result.median for result in measured]
  errors = [
    [r.median - min(r.tokens_per_second) for r in measured],
    [max(r.tokens_per_second) - r.median for r in measured],
  ]
  ours = [result.system == peer_results.OURS for result in measured]
  axis.barh(
    [result.system for result in measured],
    medians,
    xerr=errors,
    color=[_OURS if own else _OTHERS for own in ours],
    error_kw=dict(ecolor="#444444", elinewidth=1, capsize=2),
    height=0.65,
  )
  width = max(max(result.tokens_per_second) for result in measured)
  for index, result in enumerate(measured):
    axis.text(
      max(result.tokens_per_second) + 0.02 * width,
      index,
      f"{result.median:,.0f}",
      va="center",
      fontweight="bold" if ours[index] else "normal",
    )
  axis.set_xlim(0, 1.18 * width)
  axis.set_title(comparison.title, loc="left", fontsize=11)
  axis.set_xlabel("tokens/s: median and range of the rounds")
  axis.tick_params(axis="y", length=0)
  for side in ("top", "right", "left"):
    axis.spines[side].set_visible(False)
  axis.grid(axis="x", alpha=0.25)
  axis.set_axisbelow(True)
