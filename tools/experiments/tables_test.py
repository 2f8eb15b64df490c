"""Tests of tables.py."""

from __future__ import annotations

import pytest

from tools.experiments import jobs, scales, tables

_PLACE = jobs.Place("out", "a.txt", "b.txt", {"MNLI": "glue"})


@pytest.mark.parametrize("name", tables.TABLES)
def test_every_table_is_planned(name):
  planned = tables.make_plan(
    tables.TABLES[name], scales.SCALES["tiny"], _PLACE, ("MNLI",), (1, 2)
  )
  labels = {cell.label for cell in planned.cells}
  assert labels == {row.label for row in tables.TABLES[name].rows}


def test_the_papers_tables_are_there():
  names = {*"12345678", "11", "12", "13", "figure_1", "figure_2"}
  assert names <= set(tables.TABLES)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
