"""The numbers of a table: of each row and column, one for each seed."""

from __future__ import annotations

import statistics
from typing import Any, Mapping, NamedTuple, Optional, Sequence

from tools.experiments import declaration, depth_inference, plan, readings

LOSS, ACCURACY = "MLM loss", "MLM"
STEPS = "steps"
# Shares of what the row compared with takes to its own last loss.
SAME_LOSS = "time to the same loss"
SAME_LOSS_FLOPS = "operations to it"
# Of the angles between input and output of the layers, in degrees.
FIRST, LAST, JUMP = "first layer", "last layer", "largest jump"


class Number(NamedTuple):
  """What the seeds say together."""

  mean: float
  lowest: float
  highest: float
  seeds: int

  @classmethod
  def of(cls, values: Sequence[float]) -> Number:
    """Of at least one value."""
    return cls(statistics.mean(values), min(values), max(values), len(values))


class RowResults(NamedTuple):
  """What was found of a row.

  Attributes:
    row: as declared.
    parameters: of embeddings, encoder and pooler; None if it was not run.
    values: by column, one number for each seed that has one.
    curves: of each seed, as `readings.pretraining` says.
    layers: of each seed, what `tools.inspect_model` says of each layer.
  """

  row: declaration.Row
  parameters: Optional[int]
  values: dict[str, list[float]]
  curves: list[list[dict[str, float]]]
  layers: list[list[dict[str, float]]]

  def number(self, column: str) -> Optional[Number]:
    """What the seeds say of a column; None without any."""
    values = self.values.get(column)
    return Number.of(values) if values else None


def columns(table: declaration.Table, tasks: Sequence[str]) -> list[str]:
  """What is measured, in the order in which it is shown."""
  if table.depths:
    return depth_inference.columns(tasks)
  if table.columns:
    return list(table.columns)
  shown = [declaration.SPEED] if table.speed_reference else []
  if any(row.equal_time for row in table.rows):
    shown.append(STEPS)
  shown += [LOSS, ACCURACY]
  shown += [pair.upper() for pair in table.pairs]
  if table.time_to_loss:
    shown += [SAME_LOSS, SAME_LOSS_FLOPS]
  if table.layers:
    shown += [FIRST, LAST, JUMP]
  if table.tasks:
    shown += tasks
    if len(tasks) > 1:
      shown.append(declaration.AVERAGE)
  return shown


def collect(
  table: declaration.Table,
  cells: Sequence[plan.Cell],
  found: Mapping[str, Mapping[str, Any]],
  tasks: Sequence[str],
) -> list[RowResults]:
  """Brings the results of jobs into rows and columns.

  Args:
    table: the declaration.
    cells: of its plan.
    found: of each finished job, its values.
    tasks: the columns that were fine-tuned.
  """
  merged: dict[tuple[str, int], dict[str, Any]] = {}
  for cell in cells:
    values = merged.setdefault((cell.label, cell.seed), {})
    for key in cell.keys:
      values.update(found.get(key, {}))
  rows = {row.label: RowResults(row, None, {}, [], []) for row in table.rows}
  for cell in cells:
    values, result = merged[cell.label, cell.seed], rows[cell.label]
    if "parameters" in values:
      result = result._replace(parameters=values["parameters"])
      rows[cell.label] = result
    if cell.depth:
      measured = _at_depth(values, cell.depth)
    else:
      measured = _cell_columns(values, table, tasks)
      measured.update(_times(table, cell, merged))
      if cell.seed == cells[0].seed:  # Measured once, not with each seed.
        measured.update(_speed(table, cell, merged))
    for column, number in measured.items():
      result.values.setdefault(column, []).append(number)
    if "curve" in values:
      result.curves.append(values["curve"])
    if "layers" in values:
      result.layers.append(values["layers"])
  return list(rows.values())


def _times(
  table: declaration.Table,
  cell: plan.Cell,
  merged: Mapping[tuple[str, int], Mapping[str, Any]],
) -> dict[str, float]:
  """Time and operations to a loss, as shares of another row's in all."""
  values = merged[cell.label, cell.seed]
  label = table.compare.get(cell.label, cell.label)
  other = merged.get((label, cell.seed), {})
  if not (table.time_to_loss and "curve" in values and "curve" in other):
    return {}
  target = other["curve"][-1]["loss"]
  return {
    column: readings.first_to(values["curve"], target, what)
    / other["curve"][-1][what]
    for column, what in ((SAME_LOSS, "seconds"), (SAME_LOSS_FLOPS, "flops"))
  }


def _speed(
  table: declaration.Table,
  cell: plan.Cell,
  merged: Mapping[tuple[str, int], Mapping[str, Any]],
) -> dict[str, float]:
  """Tokens a second, as a multiple of another row's."""
  name = "tokens_per_second"
  own = merged[cell.label, cell.seed].get(name)
  other = merged.get((table.speed_reference, cell.seed), {}).get(name)
  return {declaration.SPEED: own / other} if own and other else {}


def _at_depth(values: Mapping[str, Any], depth: int) -> dict[str, float]:
  """What is called "COLUMN at DEPTH"."""
  ending = f" at {depth}"
  return {
    name[: -len(ending)]: value
    for name, value in values.items()
    if name.endswith(ending)
  }


def _cell_columns(
  values: Mapping[str, Any], table: declaration.Table, tasks: Sequence[str]
) -> dict[str, float]:
  shown = {
    title: values[name]
    for name, title in declaration.INTRINSIC.items()
    if name in values
  }
  for task in tasks:
    # Of SQuAD also what its number is the mean of.
    for name in (task, f"{task} F1", f"{task} EM"):
      if name in values:
        shown[name] = values[name]
  shown.update(values.get("columns", {}))
  if STEPS in values and any(row.equal_time for row in table.rows):
    shown[STEPS] = values[STEPS]
  if "layers" in values:
    shown.update(_angles([layer["degrees"] for layer in values["layers"]]))
  if table.tasks and tasks and all(task in values for task in tasks):
    shown[declaration.AVERAGE] = statistics.mean(values[t] for t in tasks)
  return shown


def _angles(degrees: Sequence[float]) -> dict[str, float]:
  """Where the layers begin and end, and how smoothly they get there."""
  jumps = [abs(a - b) for a, b in zip(degrees, degrees[1:])]
  return {FIRST: degrees[0], LAST: degrees[-1], JUMP: max(jumps, default=0.0)}
