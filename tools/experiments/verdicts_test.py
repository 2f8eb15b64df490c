"""Tests of verdicts.py."""

from __future__ import annotations

import dataclasses

import pytest

from tools.experiments import declaration, results, verdicts
from tools.experiments.declaration import Row


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
  assert verdicts.verdict(paper, _number(*here), _number(*there)) == told


def test_without_numbers_there_is_none():
  assert verdicts.verdict(1, None, _number(3)) == ""
  assert verdicts.verdict(None, _number(3), None) == ""


def test_one_seed_is_not_counted():
  told = ["agrees: higher", "agrees: higher, one seed", "within the spread"]
  told += ["disagrees: lower, paper higher", "higher", ""]
  assert verdicts.count(told) == {
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
  assert verdicts.paper_direction(_TABLE, label, columns) == direction


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
  assert verdicts.of_table(_TABLE, rows, ("MNLI",)) == {
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
  assert verdicts.of_table(table, rows, ("MNLI",)) == {
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
  told = verdicts.of_table(table, rows, ("MNLI",))
  # By the average over all its tasks the paper finds b worse.
  assert told["b"] == {"jump": "disagrees: higher, paper lower"}
  assert told["c"] == {"jump": "agrees: higher"}


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
