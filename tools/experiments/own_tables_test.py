"""Tests of own_tables.py."""

from __future__ import annotations

import pytest

from tools.experiments import jobs, own_tables, plan, scales


def _configs(table):
  return {
    row.label: scales.SCALES["base"].config(row.model) for row in table.rows
  }


def test_the_wider_berts_are_the_papers():
  configs = _configs(own_tables.FIGURE_1)
  wide = configs["BERT, H 2048"]
  assert (wide.embedding_size, wide.sharing) == (2048, "none")
  assert configs["ALBERT, H 4096"].embedding_size == 128
  assert configs["ALBERT, H 4096"].sharing == "all"


def test_layers_are_compared_at_one_depth():
  configs = _configs(own_tables.FIGURE_2)
  assert {c.num_hidden_layers for c in configs.values()} == {24}
  assert {c.sharing for c in configs.values()} == {"all", "none"}


def test_schedules_end_at_the_depth_of_the_model():
  table = own_tables.DEPTH_SCHEDULE
  schedules = [
    row.training["depth_schedule"] for row in table.rows if row.training
  ]
  assert len(schedules) == 6
  assert all(s.split(",")[-1].startswith("12:") for s in schedules)
  assert not table.rows[0].training


def test_schedules_at_the_lower_rate_are_models_of_both_tables():
  place = jobs.Place("/dev/null/out", "a.txt", "b.txt", {})
  low, both = (
    {
      cell.label: cell.model
      for cell in plan.make_plan(
        table, scales.SCALES["tiny"], place, (), (1,)
      ).cells
    }
    for table in (own_tables.LOW_RATE, own_tables.DEPTH_SCHEDULE)
  )
  assert len(set(low.values())) == 7
  shared = {"12 throughout", "3:0.5,6:0.25,12:0.25"}
  assert {both[f"{label}, a tenth of the rate"] for label in shared} == {
    low[label] for label in shared
  }
  assert len(set(low.values()) & set(both.values())) == 2


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
