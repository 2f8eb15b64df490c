"""Tests of pictures.py: what is drawn, by Matplotlib's own account."""

from __future__ import annotations

import pytest

from tools.experiments import (
  pictures,
  report,
  results,
  scales,
  tables,
)
from tools.experiments.report_test import make_report


def _panels(**changes):
  return pictures.make_figure(make_report(**changes)).axes


def test_each_seed_is_a_dot_and_the_mean_a_line():
  accuracy = _panels()[0]
  # Of each row the seeds, then the mean.
  assert [list(line.get_xdata()) for line in accuracy.lines] == [
    *([20.0, 22.0], [21.0], [23.0, 24.0], [23.5])
  ]
  assert [label.get_text() for label in accuracy.get_yticklabels()] == [
    "a",
    "b",
  ]


def test_the_papers_average_stands_beside_ours():
  ours, papers = _panels()[1:]
  assert list(ours.lines[0].get_xdata()) == [40.0, 41.0]
  assert list(papers.lines[0].get_xdata()) == [80.0, 81.0]


def test_curves_are_over_minutes():
  curves = _panels(tasks=False, curves=True)[-1]
  assert list(curves.lines[0].get_xdata()) == [0.5]
  assert list(curves.lines[0].get_ydata()) == [5.0]


def test_layers_have_two_panels():
  distance, angle = _panels(layers=True)
  assert list(distance.lines[0].get_ydata()) == [1, 2]
  assert list(angle.lines[0].get_ydata()) == [3.0, 3.0]


def test_speeds_stand_beside_the_papers():
  table = tables.TABLE_1
  rows = [
    results.RowResults(row, 1, {"speed": [speed]}, [], [])
    for row, speed in zip(table.rows, (3.0, 1.0))
  ]
  made = report.Report(table, scales.SCALES["tiny"], (), (), rows, {}, 0)
  ours, papers = pictures.make_figure(made).axes[0].lines
  assert list(ours.get_xdata()) == [3.0, 1.0]
  assert list(papers.get_xdata()) == [4.7, 1.0]


def test_quality_is_over_latency():
  table = tables.DEPTH_INFERENCE
  rows = [
    results.RowResults(
      row,
      1,
      {"ms": [ms], "MNLI": [40.0, 42.0], "MNLI, own depth": [9.0]},
      [],
      [],
    )
    for row, ms in zip(table.rows, (0.5, 2.0))
  ]
  made = report.Report(
    table, scales.SCALES["tiny"], ("MNLI",), (1, 2), rows, {}, 0
  )
  [axis] = pictures.make_figure(made).axes
  tuned, more, random = axis.lines
  assert list(tuned.get_xdata()) == [0.5, 2.0]
  assert list(tuned.get_ydata()) == [41.0, 41.0]
  assert list(more.get_ydata()) == [9.0, 9.0]
  assert not list(random.get_xdata())
  assert [text.get_text() for text in axis.texts] == ["1", "2"]


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
