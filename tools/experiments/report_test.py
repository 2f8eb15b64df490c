"""Tests of report.py, on numbers made by hand."""

from __future__ import annotations

import dataclasses
import math
import re

import pytest

from official_albert.tools.experiments import report, results, scales, tables
from official_albert.tools.experiments.tables import Row

_ROWS = (
  Row("a", paper={"MNLI": 80.0, "SQuAD1.1": (90.0, 85.0)}),
  Row(
    "b",
    compared_with="a",
    paper={"MNLI": 81.0, "SQuAD1.1": (91.0, 86.0)},
    paper_parameters="12M",
  ),
  Row("c"),
)


def _report(values=None, failed=(), missing=0, **changes) -> report.Report:
  """A report of a table with a row for each of the values."""
  values = values or (
    {"MLM loss": [5.0, 5.5], "MLM": [20.0, 22.0], "MNLI": [40.0, 41.0]},
    {"MLM loss": [4.5, 4.0], "MLM": [23.0, 24.0], "MNLI": [45.0, 43.0]},
  )
  table = tables.Table(
    *("7", "A title", "table 7", "A question?"), _ROWS[: len(values)], **changes
  )
  for row_values in values:
    if "MNLI" in row_values:
      row_values.setdefault("Avg", row_values["MNLI"])
  curve = [
    {"step": 0, "depth": 4, "seconds": 0.0, "flops": 0.0, "loss": 8.0},
    {"step": 5, "depth": 4, "seconds": 30.0, "flops": 9e9, "loss": 5.0},
  ]
  layers = [{"layer": i, "l2_distance": i, "degrees": 3.0} for i in (1, 2)]
  rows = [
    results.RowResults(row, 1_234_000, value, [curve], [layers])
    for row, value in zip(_ROWS, values)
  ]
  return report.Report(
    *(table, scales.SCALES["tiny"], ("MNLI",), (1, 2)),
    *(rows, dict(failed), missing),
  )


def test_markdown():
  text = _report().to_markdown()
  lines = re.sub(" +", " ", text).splitlines()
  assert lines[0] == "## Table 7: A title"
  assert (
    "| b | 1.23M | 12M | 4.250 (4.000 to 4.500) | 23.5 (23.0 to 24.0) | 44.0 "
    "(43.0 to 45.0) | 81.0 | shown: higher | shown: higher |"
  ) in lines
  header = next(line for line in lines if line.startswith("| |"))
  assert header == (
    "| | parameters | paper's | MLM loss | MLM | MNLI | paper | by tasks | by "
    "MLM |"
  )
  assert lines[-1] == (
    "(scale tiny; 1,600 steps; peak learning rate 0.003; seeds 1, 2)"
  )
  failed = _report(failed={"a": "why"}, missing=3).to_markdown()
  assert failed.endswith("1 jobs failed; 3 jobs were not run)\n")


def test_the_score_counts_directions_that_the_seeds_resolve():
  row = {"MLM": [20.0, 22.0], "MNLI": [40.0, 41.0]}
  reports = [
    _report(),  # Higher, as in the paper, in both.
    _report((row, {"MLM": [21.0, 23.0], "MNLI": [38.0, 39.0]})),
    _report((row, {"MLM": [23.0], "MNLI": [39.0, 40.5]})),
  ]
  reports = [
    dataclasses.replace(r, table=dataclasses.replace(r.table, name=str(i)))
    for i, r in enumerate(reports, 7)
  ]
  text = re.sub(" +", " ", report.score(reports))
  assert text.startswith(
    "Of 6 directions of the paper, 2 are shown, 1 contradicted, and 3 not "
  )
  assert text.splitlines()[-4:] == [
    "| 7: A title | 1 / 0 / 0 | 1 / 0 / 0 |",
    "| 8: A title | 0 / 1 / 0 | 0 / 0 / 1 |",
    "| 9: A title | 0 / 0 / 1 | 0 / 0 / 1 |",
    "| all | 1 / 1 / 1 | 1 / 0 / 2 |",
  ]
  # Without numbers there is nothing to count.
  assert report.score([_report(({}, {}))]) == ""


def test_tables_that_are_not_run_have_the_papers_numbers():
  def made_of(name: str) -> report.Report:
    rows = [results.RowResults(row) for row in tables.TABLES[name].rows]
    tiny = scales.SCALES["tiny"]
    return report.Report(tables.TABLES[name], tiny, tiny.tasks, (), rows, {}, 0)

  # The average is the paper's, not that of the scale's tasks.
  assert (
    "| ALBERT ensemble | 91.3 | 99.2 | 90.5 | 89.2 | 97.1 | 93.4 | 69.1 | 92.5 "
    "| 91.8 | 89.4 |"
  ) in re.sub(" +", " ", made_of("9").to_markdown())
  made = made_of("10")
  lines = re.sub(" +", " ", made.to_markdown()).splitlines()
  assert "| | SQuAD1.1 | SQuAD2.0 | SQuAD2.0 test | RACE test |" in lines
  assert (
    "| ALBERT ensemble | 92.8 (95.5/90.1) | 90.2 (91.4/88.9) | "
    "91.0 (92.2/89.7) | 89.4 |"
  ) in lines
  assert made.figure() is None
  assert report.score([made]) == ""


def test_a_loss_that_is_never_reached():
  made = _report(({"MLM loss": [math.inf]}, {}))
  # Infinity is not JSON.
  assert made.to_json()["rows"][0]["values"]["MLM loss"] == [None]
  text = made.to_markdown()
  assert "| never " in text


def _x(line) -> list[float]:
  return list(line.get_xdata())


def _titles(figure) -> list[str]:
  return [axis.get_title() for axis in figure.axes]


def test_scores_and_curves(tmp_path):
  values = (
    {"MLM": [20.0, 22.0], "MNLI": [40.0, 41.0]},
    {"MLM": [23.0, 24.0], "MNLI": [45.0, 43.0]},
    {"MLM": [25.0, 25.5]},
  )
  made = _report(values, curves=True)
  made.draw(str(tmp_path / "table.png"))
  assert (tmp_path / "table.png").read_bytes().startswith(b"\x89PNG")
  figure = made.figure()
  # The paper has no MLM, so it has no panel of it.
  assert _titles(figure) == [
    *("MLM (%)", "MNLI (%)", "paper", "held-out MLM loss (nats)")
  ]
  accuracy, mnli, papers, curves = figure.axes
  # Of each row the seeds, then the mean.
  assert [*map(_x, accuracy.lines)][:4] == [[20, 22], [21], [23, 24], [23.5]]
  labels = [label.get_text() for label in accuracy.get_yticklabels()]
  assert labels == ["a", "b", "c"]
  assert [*map(_x, mnli.lines)] == [
    *([40, 41], [40.5], [45, 43], [44]),
    pytest.approx([100 / 3] * 2),  # Chance.
  ]
  assert [*map(_x, papers.lines)] == [[80], [81]]
  # Minutes.
  assert _x(curves.lines[0]) == [0.5]
  assert list(curves.lines[0].get_ydata()) == [5.0]
  # The rows' colors, and what the marks are.
  [marks], rows = figure.legends, curves.get_legend()
  assert [text.get_text() for text in rows.get_texts()] == ["a", "b", "c"]
  assert {text.get_text() for text in marks.get_texts()} == {
    *("a seed", "mean", "chance", "the paper")
  }


def test_pictures_have_what_the_table_measures():
  # Two rows are no picture, but their curves are.
  assert _report().figure() is None
  figure = _report(curves=True).figure()
  assert _titles(figure) == ["held-out MLM loss (nats)"]
  pairs = {"MLM": [20.0], "NSP": [52.0], "SOP": [60.0], "NSP chance": [58.0]}
  columns = (tables.ACCURACY, tables.NSP, tables.SOP)
  figure = _report((pairs, pairs, pairs), columns=columns).figure()
  assert _titles(figure) == ["MLM (%)", "NSP (%)", "SOP (%)"]
  mlm, nsp, sop = ([*map(_x, axis.lines)] for axis in figure.axes)
  # Measured, not assumed: NSP's labels are uneven.
  assert nsp[-1] == [58, 58] and len(mlm) == len(sop) == 6
  pairs = {"RACE MLM": [20.0], "RACE SOP": [52.0], "RACE SOP chance": [51.0]}
  figure = _report((pairs,) * 3, columns=tuple(tables.TEXT_COLUMNS)).figure()
  assert _titles(figure) == ["RACE MLM (%)", "RACE SOP (%)"]
  mlm, sop = ([*map(_x, axis.lines)] for axis in figure.axes)
  assert sop[-1] == [51, 51] not in mlm
  # Of many tasks, there is only the average, whose chance needs all of theirs.
  scores = {**dict.fromkeys(("MNLI", "SST-2", "RACE"), [60.0]), "Avg": [60.0]}
  three = _report((scores, scores, scores))
  made = dataclasses.replace(three, tasks=("MNLI", "SST-2", "RACE"))
  assert _titles(made.figure()) == ["Avg (%)"]
  lines = made.figure().axes[0].lines
  assert _x(lines[-1]) == pytest.approx([(100 / 3 + 50 + 25) / 3] * 2)
  scores["SST-2 chance"] = [51.0]  # Measured.
  lines = made.figure().axes[0].lines
  assert _x(lines[-1]) == pytest.approx([(100 / 3 + 51 + 25) / 3] * 2)
  made = dataclasses.replace(three, tasks=("MNLI", "SST-2", "SQuAD1.1"))
  assert len(made.figure().axes[0].lines) == 2 * 3
  rows = ({"speed": [1.5]}, {"speed": [1.0]}, {"speed": [2.0]})
  made = _report(rows, columns=("speed",))
  presets = tuple(dataclasses.replace(row, preset="p") for row in _ROWS)
  table = dataclasses.replace(made.table, rows=presets)
  figure = dataclasses.replace(made, table=table).figure()
  assert _titles(figure) == ["speed"]
  for columns in ((tables.MILLISECONDS, tables.SCORES), (tables.LOSS,)):
    assert _report(({}, {}), columns=columns).figure() is None


def test_scores_are_drawn_over_the_latency_of_each_depth():
  columns = (tables.MILLISECONDS, tables.SCORES)
  values = {"ms": [2.0], "MNLI": [60.0, 70.0], "MNLI, own depth": [75.0]}
  (axes, *_) = _report((values, {"ms": [4.0]}), columns=columns).figure().axes
  lines = [(_x(line), list(line.get_ydata())) for line in axes.lines]
  assert lines[:3] == [([2.0], [65.0]), ([2.0], [75.0]), ([], [])]
  assert lines[3][1] == pytest.approx([100 / 3] * 2)
