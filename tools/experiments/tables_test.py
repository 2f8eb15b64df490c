"""Tests of tables.py: the numbers agree with each other and the models."""

from __future__ import annotations

import pytest

from tools.experiments import declaration, scales, tables
from tools.experiments.declaration import Row

_ROWS = [
  pytest.param(table, row, id=f"{table.name}-{row.label}")
  for table in tables.TABLES.values()
  for row in table.rows
]


@pytest.mark.parametrize("table", tables.TABLES.values(), ids=lambda t: t.name)
def test_rows_refer_to_rows(table):
  labels = [row.label for row in table.rows]
  assert len(set(labels)) == len(labels)
  for i, row in enumerate(table.rows):
    assert row.compared_with in (None, *labels)
    assert row.starts_from in (None, *labels[:i])
  assert table.speed_reference in ("", *labels)


@pytest.mark.parametrize("table, row", _ROWS)
def test_averages_are_those_that_the_paper_prints(table, row):
  if "Avg" in row.paper:
    average = row.paper_average(list(declaration.TASKS))
    # Both are rounded to one decimal.
    assert average == pytest.approx(row.paper["Avg"], abs=0.06)


@pytest.mark.parametrize(
  "table, row",
  [p for p in _ROWS if p.values[1].paper_parameters and not p.values[1].preset],
)
def test_models_at_base_have_the_papers_parameters(table, row):
  count = scales.SCALES["base"].config(row.model).parameter_count() / 1e6
  printed = float(row.paper_parameters.rstrip("M"))
  # xxlarge is 235M in table 6 and 225M in table 12; it has 222.6M.
  assert count == pytest.approx(printed, rel=0.06)


def test_deeper_models_start_from_the_one_before():
  assert [row.starts_from for row in tables.TABLE_11.rows] == [
    *(None, "1 layer", "3 layers", "6 layers", "12 layers", "24 layers")
  ]


def _base_configs(table):
  base = scales.SCALES["base"]
  return {row.label: base.config(row.model) for row in table.rows}


def test_models_of_the_figures():
  configs = _base_configs(tables.FIGURE_1)
  wide = configs["BERT, H 2048"]
  assert (wide.embedding_size, wide.sharing) == (2048, "none")
  assert configs["ALBERT, H 4096"].embedding_size == 128
  assert configs["ALBERT, H 4096"].sharing == "all"
  configs = _base_configs(tables.FIGURE_2).values()
  assert {c.num_hidden_layers for c in configs} == {24}
  assert {c.sharing for c in configs} == {"all", "none"}


def test_schedules_end_at_the_depth_of_the_model():
  rows = tables.DEPTH_SCHEDULE.rows
  schedules = [row.training["depth_schedule"] for row in rows if row.training]
  assert len(schedules) == 6
  assert all(s.split(",")[-1].startswith("12:") for s in schedules)
  assert not rows[0].training


def test_average_takes_the_mean_of_f1_and_exact_match():
  row = Row("a", paper={"SQuAD1.1": (90.0, 80.0), "MNLI": 75.0})
  assert row.paper_average(["SQuAD1.1", "MNLI"]) == 80.0
  assert row.paper_average(["MNLI"]) == 75.0
  for columns in ([], ["MNLI", "RACE"]):
    assert row.paper_average(columns) is None


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
