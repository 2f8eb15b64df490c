"""All tables by their names, and how each is planned."""

from __future__ import annotations

from typing import Sequence

from tools.experiments import (
  configurations,
  declaration,
  depth_inference,
  jobs,
  own_tables,
  paper_tables,
  plan,
  scales,
)

TABLES = {
  table.name: table
  for table in (
    configurations.TABLE,
    *paper_tables.TABLES,
    *own_tables.TABLES,
    depth_inference.TABLE,
  )
}


def make_plan(
  table: declaration.Table,
  scale: scales.Scale,
  place: jobs.Place,
  tasks: Sequence[str],
  seeds: Sequence[int],
) -> plan.Plan:
  """The jobs of a table; see `plan.make_plan`."""
  if table is configurations.TABLE:
    return configurations.make_plan(place)
  if table is depth_inference.TABLE:
    return depth_inference.make_plan(scale, place, tasks, seeds)
  return plan.make_plan(table, scale, place, tasks, seeds)
