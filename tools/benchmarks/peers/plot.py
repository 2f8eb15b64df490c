"""Draws comparisons with peers: a panel each, a bar for each system."""

from __future__ import annotations

import math
from typing import Sequence

from tools.benchmarks.peers import results as peer_results
from tools.cli import figures
from tools.cli.figures import pyplot

_COLUMNS = 2
_OURS, _OTHERS = "#1f77b4", "#b8bec6"


def plot(
  comparisons: Sequence[peer_results.Comparison], output_file: str
) -> None:
  """Writes the PNG, complete or not at all.

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
    _panel(axis, comparison)
  figure.tight_layout(h_pad=2.0, w_pad=3.0)
  figures.save(figure, output_file, dpi=120)


def _panel(axis, comparison: peer_results.Comparison) -> None:
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
