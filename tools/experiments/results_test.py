"""Tests of results.py."""

from __future__ import annotations

import dataclasses

import pytest

from tools.experiments import declaration, plan, results
from tools.experiments.declaration import Row

_TABLE = declaration.Table(
  "t", "title", "source", "question?", (Row("a"), Row("b")), pairs=("nsp",)
)
_CELLS = [
  plan.Cell("a", 1, ("models/a1", "tasks/a1-mnli", "evaluations/a1-nsp")),
  plan.Cell("a", 2, ("models/a2", "tasks/a2-mnli", "evaluations/a2-nsp")),
  plan.Cell("b", 1, ("models/b1", "tasks/b1-mnli", "evaluations/b1-nsp")),
]


def _point(seconds: float, loss: float, depth: int = 4) -> dict:
  return {
    "step": int(seconds),
    "depth": depth,
    "loss": loss,
    "seconds": seconds,
    "flops": 10 * seconds * depth,
  }


_CURVE = [_point(0, 8.0), _point(10, 5.0)]
_FOUND = {
  "models/a1": {
    "parameters": 77,
    "masked_lm_loss": 5.0,
    "masked_lm_accuracy": 20.0,
    "curve": _CURVE,
  },
  "models/a2": {"parameters": 77, "masked_lm_loss": 7.0},
  "tasks/a1-mnli": {"MNLI": 40.0},
  "evaluations/a1-nsp": {"nsp_accuracy": 60.0},
}


def test_rows_have_the_numbers_of_their_seeds():
  a, b = results.collect(_TABLE, _CELLS, _FOUND, ("MNLI",))
  assert a.parameters == 77
  assert a.values == {
    "MLM loss": [5.0, 7.0],
    "MLM": [20.0],
    "NSP": [60.0],
    "MNLI": [40.0],
    "Avg": [40.0],
  }
  assert a.number("MLM loss") == results.Number(6.0, 5.0, 7.0, 2)
  assert a.curves == [_CURVE]
  assert (b.parameters, b.values, b.number("MLM")) == (None, {}, None)


def test_an_average_needs_all_tasks():
  a, _ = results.collect(_TABLE, _CELLS, _FOUND, ("MNLI", "RACE"))
  assert "Avg" not in a.values


def test_f1_and_exact_match_are_kept():
  cells = [plan.Cell("a", 1, ("models/a1", "tasks/a1"))]
  found = {"tasks/a1": {"SQuAD1.1": 5.0, "SQuAD1.1 F1": 6, "SQuAD1.1 EM": 4}}
  a, _ = results.collect(_TABLE, cells, found, ("SQuAD1.1",))
  assert a.values == {
    "SQuAD1.1": [5.0],
    "SQuAD1.1 F1": [6],
    "SQuAD1.1 EM": [4],
    "Avg": [5.0],
  }


def test_columns():
  assert _TABLE.columns(("MNLI", "RACE")) == [
    *("MLM loss", "MLM", "NSP", "MNLI", "RACE", "Avg")
  ]
  # One task is its own average.
  assert _TABLE.columns(("MNLI",))[-1] == "MNLI"


def test_times_are_shares_of_the_row_compared_with():
  table = declaration.Table(
    *("depth_schedule", "title", "source", "question?"),
    (Row("constant"), Row("schedule", compared_with="constant")),
    tasks=False,
    time_to_loss=True,
  )
  cells = [
    plan.Cell("constant", 1, ("models/c",)),
    plan.Cell("schedule", 1, ("models/s",)),
  ]
  found = {
    "models/c": {"curve": [_point(0, 9.0), _point(40, 5.0)]},
    "models/s": {
      "curve": [
        *(_point(0, 9.0, 2), _point(5, 4.0, 2)),
        *(_point(5, 7.0), _point(10, 5.0), _point(20, 4.0)),
      ]
    },
  }
  constant, schedule = results.collect(table, cells, found, ())
  assert constant.values[declaration.SAME_LOSS] == [1.0]
  assert schedule.values[declaration.SAME_LOSS] == [0.25]
  assert schedule.values[declaration.SAME_LOSS_FLOPS] == [400 / 1600]


def test_equal_time_shows_the_steps():
  table = declaration.Table(
    *("t", "title", "source", "question?"),
    (Row("a"), Row("b", equal_time=True)),
    tasks=False,
  )
  cells = [plan.Cell("a", 1, ("models/a",)), plan.Cell("b", 1, ("models/b",))]
  found = {"models/a": {"steps": 30}, "models/b": {"steps": 70}}
  a, b = results.collect(table, cells, found, ())
  assert (a.values, b.values) == ({"steps": [30]}, {"steps": [70]})
  assert table.columns(())[0] == "steps"


def test_layers_are_summarized_by_ends_and_largest_jump():
  table = declaration.Table(
    *("t", "title", "source", "question?", (Row("a"),)),
    tasks=False,
    layers=True,
  )
  layers = [
    {"layer": i, "degrees": d} for i, d in enumerate((30.0, 21.0, 25.0))
  ]
  found = {"models/a": {}, "layers/a": {"layers": layers}}
  cells = [plan.Cell("a", 1, ("models/a", "layers/a"))]
  [row] = results.collect(table, cells, found, ())
  assert row.values == {
    "first layer": [30.0],
    "last layer": [25.0],
    "largest jump": [9.0],
  }
  assert table.columns(())[2:] == list(row.values)


def test_speeds_are_measured_once_for_all_seeds():
  table = declaration.Table(
    *("t", "title", "source", "question?", (Row("a"), Row("b"))),
    tasks=False,
    speed_reference="a",
  )
  cells = [
    plan.Cell(label, seed, (f"models/{label}{seed}",))
    for label in "ab"
    for seed in (1, 2)
  ]
  # The job that measures it is every seed's: each seed could tell it.
  rates = {f"models/a{seed}": 5.0 for seed in (1, 2)}
  rates |= {f"models/b{seed}": 30.0 for seed in (1, 2)}
  found = {key: {"tokens_per_second": rate} for key, rate in rates.items()}
  a, b = results.collect(table, cells, found, ())
  assert (a.values["speed"], b.values["speed"]) == ([1.0], [6.0])


def _number(*values: float) -> results.Number:
  return results.Number.of(values)


@pytest.mark.parametrize(
  "paper, here, there, expected",
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
def test_directions(paper, here, there, expected):
  assert results.verdict(paper, _number(*here), _number(*there)) == expected


def test_no_verdict_without_numbers():
  assert results.verdict(1, None, _number(3)) == ""
  assert results.verdict(None, _number(3), None) == ""


_JUDGED = declaration.Table(
  *("t", "title", "source", "question?"),
  (
    Row("a", paper={"MNLI": 80.0, "RACE": 60.0}),
    Row("b", compared_with="a", paper={"MNLI": 81.0, "RACE": 50.0}),
    Row("c", compared_with="a", paper_says=1),
    Row("d", compared_with="a", paper={"MNLI": 80.0, "RACE": 60.15}),
  ),
)


@pytest.mark.parametrize(
  "label, columns, direction",
  [
    ("b", ["MNLI"], 1),
    ("b", ["MNLI", "RACE"], -1),
    ("b", ["SST-2"], None),
    ("c", ["MNLI"], 1),
    ("d", ["RACE"], 0),
  ],
)
def test_paper_direction(label, columns, direction):
  row = _JUDGED.row(label)
  other = _JUDGED.row(row.compared_with or "b")
  assert results.paper_direction(row, other, columns) == direction


def test_tasks_and_held_out_text_are_judged_apart():
  values = {
    "a": {"Avg": [50.0, 52.0], "MLM": [10.0, 11.0]},
    "b": {"Avg": [55.0, 56.0], "MLM": [12.0, 13.0]},
    "c": {"MLM": [9.0, 10.5]},
    "d": {},
  }
  rows = [
    results.RowResults(row, None, values[row.label], [], [])
    for row in _JUDGED.rows
  ]
  assert results.verdicts(_JUDGED, rows, ("MNLI",)) == {
    "b": {
      "tasks": "agrees: higher",
      "MLM": "disagrees: higher, paper lower",
    },
    "c": {"tasks": "", "MLM": "within the spread"},
    "d": {"tasks": "", "MLM": ""},
  }


def test_where_the_paper_has_held_out_numbers_they_count():
  table = dataclasses.replace(
    _JUDGED,
    rows=(
      Row("a", paper={"MLM": 54.0, "NSP": 79.0, "MNLI": 82.0}),
      # Worse on the task, better on held-out text.
      Row(
        "b",
        compared_with="a",
        paper={"MLM": 54.9, "NSP": 52.0, "MNLI": 81.5},
      ),
    ),
    pairs=("nsp",),
  )
  values = ({"MLM": [20.0], "NSP": [70.0]}, {"MLM": [21.0], "NSP": [75.0]})
  rows = [
    results.RowResults(row, None, value, [], [])
    for row, value in zip(table.rows, values)
  ]
  assert results.verdicts(table, rows, ("MNLI",)) == {
    "b": {
      "tasks": "",
      "MLM": "agrees: higher, one seed",
      "NSP": "disagrees: higher, paper lower, one seed",
    }
  }


def test_a_table_may_go_by_another_column():
  table = dataclasses.replace(_JUDGED, direction="jump")
  rows = [
    results.RowResults(row, None, {"jump": [i, i + 0.5]}, [], [])
    for i, row in enumerate(table.rows)
  ]
  judged = results.verdicts(table, rows, ("MNLI",))
  # By the average over all its tasks the paper finds b worse.
  assert judged["b"] == {"jump": "disagrees: higher, paper lower"}
  assert judged["c"] == {"jump": "agrees: higher"}


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
