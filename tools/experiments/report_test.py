"""Tests of report.py and pictures.py, on numbers made by hand."""

from __future__ import annotations

import dataclasses
import json
import math
import re

import pytest

from tools.experiments import (
  declaration,
  pictures,
  report,
  results,
  scales,
)
from tools.experiments.declaration import Row

_ROWS = (
  Row("a", paper={"MNLI": 80.0, "SQuAD1.1": (90.0, 85.0)}),
  Row(
    "b",
    paper={"MNLI": 81.0, "SQuAD1.1": (91.0, 86.0)},
    paper_parameters="12M",
  ),
)


def make_report(values=None, failed=(), missing=0, **changes) -> report.Report:
  """A report of a table with two rows."""
  table = declaration.Table(
    *("7", "A title", "table 7", "A question?"),
    _ROWS,
    compare={"b": "a"},
    **changes,
  )
  values = values or (
    {"MLM loss": [5.0, 5.5], "MLM": [20.0, 22.0], "MNLI": [40.0, 41.0]},
    {"MLM loss": [4.5, 4.0], "MLM": [23.0, 24.0], "MNLI": [45.0, 43.0]},
  )
  for row_values in values:
    if "MNLI" in row_values:
      row_values["Avg"] = row_values["MNLI"]
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
  text = make_report().to_markdown()
  lines = re.sub(" +", " ", text).splitlines()
  assert lines[0] == "## Table 7: A title"
  assert (
    "| b | 1.23M | 12M | 4.250 (4.000 to 4.500) | 23.5 (23.0 to 24.0) | 44.0 "
    "(43.0 to 45.0) | 81.0 | agrees: higher | agrees: higher |"
  ) in lines
  header = next(line for line in lines if line.startswith("| |"))
  assert header == (
    "| | parameters | paper's | MLM loss | MLM | MNLI | paper | direction, by "
    "tasks | direction, by MLM |"
  )
  assert "Scale tiny: 1,600 steps of 32 x 64 tokens" in text
  assert "By tasks 1 agree with the paper, 0 disagree, 0 lie" in text


def test_learning_rates_are_those_of_the_rows():
  made = make_report()
  assert "peak learning rate 0.003; fine" in made.to_markdown()
  lower = dataclasses.replace(_ROWS[1], rate=0.1)
  table = dataclasses.replace(made.table, rows=(_ROWS[0], lower))
  text = dataclasses.replace(made, table=table).to_markdown()
  assert "peak learning rate 0.003 or 0.0003; fine" in text


def test_a_table_that_shows_nothing_says_so():
  same = {"MLM": [20.0, 22.0], "MNLI": [40.0, 41.0]}
  text = make_report((dict(same), dict(same))).to_markdown()
  assert "At this scale the table shows nothing." in text


def test_what_is_missing_is_told():
  text = make_report(failed={"x": "why"}, missing=3).to_markdown()
  assert "1 jobs failed. 3 jobs were not run." in text


def test_what_trains_nothing_has_no_steps():
  told = dataclasses.replace(make_report(), seeds=())
  assert "steps of" not in told.to_markdown()
  assert json.loads(told.to_json())["steps"] == 0


def test_never_is_a_word():
  made = make_report(({"MLM loss": [math.inf]}, {}))
  # Infinity is no JSON.
  assert json.loads(made.to_json())["rows"][0]["values"]["MLM loss"] == [None]
  told = made.to_markdown()
  assert "| never " in told


def test_json_has_every_number():
  record = json.loads(make_report().to_json())
  assert record["rows"][1]["values"]["MNLI"] == [45.0, 43.0]
  assert record["rows"][1]["verdicts"]["tasks"] == "agrees: higher"
  assert record["rows"][1]["paper"]["SQuAD1.1"] == [91.0, 86.0]
  assert record["rows"][0]["compared_with"] is None


@pytest.mark.parametrize(
  "changes", [{}, {"tasks": False}, {"curves": True}, {"layers": True}]
)
def test_pictures(tmp_path, changes):
  pictures.draw(make_report(**changes), str(tmp_path / "table.png"))
  assert [path.name for path in tmp_path.iterdir()] == ["table.png"]
  assert (tmp_path / "table.png").read_bytes().startswith(b"\x89PNG")


def _number(*values: float) -> results.Number:
  return results.Number.of(values)


@pytest.mark.parametrize(
  "paper, here, there, told",
  [
    (1, (5, 6), (3, 4), "agrees: higher"),
    (-1, (5, 6), (3, 4), "disagrees: higher, paper lower"),
    (-1, (3, 4), (5, 6), "agrees: lower"),
    (1, (4, 6), (3, 5), "within the spread"),
    (0, (4, 6), (3, 5), "within the spread"),
    (0, (5, 6), (3, 4), "higher, paper no different"),
    (1, (5,), (3, 4), "agrees: higher, one seed"),
    (1, (3,), (3,), "within the spread, one seed"),
    (None, (5, 6), (3, 4), "higher"),
    (None, (4, 6), (3, 5), "no different"),
  ],
)
def test_directions(paper, here, there, told):
  assert report.verdict(paper, _number(*here), _number(*there)) == told


def test_without_numbers_there_is_none():
  assert report.verdict(1, None, _number(3)) == ""
  assert report.verdict(None, _number(3), None) == ""


def test_one_seed_is_not_counted():
  told = ["agrees: higher", "agrees: higher, one seed", "within the spread"]
  told += ["disagrees: lower, paper higher", "higher", ""]
  assert report.count_verdicts(told) == {
    "agrees": 1,
    "disagrees": 1,
    "within the spread": 1,
  }


_TABLE = declaration.Table(
  *("t", "title", "source", "question?"),
  (
    Row("a", paper={"MNLI": 80.0, "RACE": 60.0}),
    Row("b", paper={"MNLI": 81.0, "RACE": 50.0}),
    Row("c"),
    Row("d", paper={"MNLI": 80.0, "RACE": 60.15}),
  ),
  compare={"b": "a", "c": "a", "d": "a"},
  paper_says={"c": 1},
)


@pytest.mark.parametrize(
  "label, columns, direction",
  [
    ("b", ["MNLI"], 1),
    ("b", ["MNLI", "RACE"], -1),
    ("b", ["SST-2"], None),
    ("a", ["MNLI"], None),
    ("c", ["MNLI"], 1),
    ("d", ["RACE"], 0),
  ],
)
def test_what_the_paper_says(label, columns, direction):
  assert report.paper_direction(_TABLE, label, columns) == direction


def test_tasks_and_held_out_text_are_judged_apart():
  values = {
    "a": {"Avg": [50.0, 52.0], "MLM": [10.0, 11.0]},
    "b": {"Avg": [55.0, 56.0], "MLM": [12.0, 13.0]},
    "c": {"MLM": [9.0, 10.5]},
    "d": {},
  }
  rows = [
    results.RowResults(row, None, values[row.label], [], [])
    for row in _TABLE.rows
  ]
  assert report.verdicts_of(_TABLE, rows, ("MNLI",)) == {
    "b": {
      "tasks": "agrees: higher",
      "MLM": "disagrees: higher, paper lower",
    },
    "c": {"tasks": "", "MLM": "within the spread"},
    "d": {"tasks": "", "MLM": ""},
  }


def test_where_the_paper_has_held_out_numbers_they_count():
  table = dataclasses.replace(
    _TABLE,
    rows=(
      Row("a", paper={"MLM": 54.0, "NSP": 79.0, "MNLI": 82.0}),
      # Worse on the task, better on held-out text.
      Row("b", paper={"MLM": 54.9, "NSP": 52.0, "MNLI": 81.5}),
    ),
    compare={"b": "a"},
    paper_says={},
    pairs=("nsp",),
  )
  values = ({"MLM": [20.0], "NSP": [70.0]}, {"MLM": [21.0], "NSP": [75.0]})
  rows = [
    results.RowResults(row, None, value, [], [])
    for row, value in zip(table.rows, values)
  ]
  assert report.verdicts_of(table, rows, ("MNLI",)) == {
    "b": {
      "tasks": "",
      "MLM": "agrees: higher, one seed",
      "NSP": "disagrees: higher, paper lower, one seed",
    }
  }


def test_a_table_may_go_by_another_column():
  table = dataclasses.replace(_TABLE, direction="jump")
  rows = [
    results.RowResults(row, None, {"jump": [i, i + 0.5]}, [], [])
    for i, row in enumerate(table.rows)
  ]
  told = report.verdicts_of(table, rows, ("MNLI",))
  # By the average over all its tasks the paper finds b worse.
  assert told["b"] == {"jump": "disagrees: higher, paper lower"}
  assert told["c"] == {"jump": "agrees: higher"}


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
