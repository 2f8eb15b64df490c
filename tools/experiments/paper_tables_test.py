"""Tests of paper_tables.py: numbers agree with each other and the models."""

from __future__ import annotations

import pytest

from tools.experiments import declaration, paper_tables, scales

_ROWS = [
  pytest.param(table, row, id=f"{table.name}-{row.label}")
  for table in paper_tables.TABLES
  for row in table.rows
]


@pytest.mark.parametrize("table, row", _ROWS)
def test_averages_are_those_that_the_paper_prints(table, row):
  if not row.paper:
    assert row.label in table.paper_says
    return
  average = declaration.paper_average(row, list(declaration.TASKS))
  # Both are rounded to one decimal.
  assert average == pytest.approx(row.paper["Avg"], abs=0.06)


@pytest.mark.parametrize(
  "table, row", [p for p in _ROWS if p.values[1].paper_parameters]
)
def test_the_models_at_base_have_the_papers_parameters(table, row):
  count = scales.SCALES["base"].config(row.model).parameter_count() / 1e6
  printed = float(row.paper_parameters.rstrip("M"))
  # xxlarge is 235M in table 6 and 225M in table 12; it has 222.6M.
  assert count == pytest.approx(printed, rel=0.06)


def test_deeper_models_start_from_the_one_before():
  table = paper_tables.TABLE_11
  assert [row.starts_from for row in table.rows] == [
    *(None, "1 layer", "3 layers", "6 layers", "12 layers", "24 layers")
  ]


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
