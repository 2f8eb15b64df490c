"""The numbers of a table: of each row and column, one for each seed."""

from __future__ import annotations

import statistics
from typing import Any, Mapping, NamedTuple, Optional, Sequence

from tools.experiments import declaration, depth_inference, plan

LOSS, ACCURACY = "MLM loss", "MLM"
STEPS = "steps"
SAME_LOSS = "time to the same loss"
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
    curves: of each seed [step, unix time in seconds, held-out loss].
    layers: of each seed, what `tools.inspect_model` says of each layer.
  """

  row: declaration.Row
  parameters: Optional[int]
  values: dict[str, list[float]]
  curves: list[list[list[float]]]
  layers: list[list[dict[str, float]]]

  def number(self, column: str) -> Optional[Number]:
    """What the seeds say of a column; None without any."""
    values = self.values.get(column)
    return Number.of(values) if values else None


def columns(table: declaration.Table, tasks: Sequence[str]) -> list[str]:
  """What is measured, in the order in which it is shown."""
  if table.name == depth_inference.TABLE.name:
    return depth_inference.columns(tasks)
  if table.columns:
    return list(table.columns)
  shown = [declaration.SPEED] if table.speed_reference else []
  if any(row.equal_time for row in table.rows):
    shown.append(STEPS)
  shown += [LOSS, ACCURACY]
  shown += [pair.upper() for pair in table.pairs]
  if table.name == "depth_schedule":
    shown.append(SAME_LOSS)
  if table.layers:
    shown += [FIRST, LAST, JUMP]
  if table.tasks:
    shown += [*tasks, declaration.AVERAGE]
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
  rows = []
  for row in table.rows:
    result = RowResults(row, None, {}, [], [])
    for cell in (cell for cell in cells if cell.label == row.label):
      values = {}
      for key in cell.keys:
        values.update(found.get(key, {}))
      if "parameters" in values:
        result = result._replace(parameters=values["parameters"])
      if cell.depth:
        measured = _at_depth(values, cell.depth)
      else:
        measured = _cell_columns(values, table, tasks)
      for column, number in measured.items():
        result.values.setdefault(column, []).append(number)
      if "curve" in values:
        result.curves.append(values["curve"])
      if "layers" in values:
        result.layers.append(values["layers"])
    rows.append(result)
  if table.name == "depth_schedule":
    _add_times(table, rows)
  if table.speed_reference:
    _add_speeds(table, rows)
  return rows


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
  shown.update({task: values[task] for task in tasks if task in values})
  shown.update(values.get("columns", {}))
  if STEPS in values and any(row.equal_time for row in table.rows):
    shown[STEPS] = values[STEPS]
  if "layers" in values:
    shown.update(_angles([layer["degrees"] for layer in values["layers"]]))
  if table.speed_reference and "tokens_per_second" in values:
    shown[declaration.SPEED] = values["tokens_per_second"]
  if table.tasks and tasks and all(task in values for task in tasks):
    shown[declaration.AVERAGE] = statistics.mean(values[t] for t in tasks)
  return shown


def _angles(degrees: Sequence[float]) -> dict[str, float]:
  """Where the layers begin and end, and how smoothly they get there."""
  jumps = [abs(a - b) for a, b in zip(degrees, degrees[1:])]
  return {FIRST: degrees[0], LAST: degrees[-1], JUMP: max(jumps, default=0.0)}


def seconds_to(curve: Sequence[Sequence[float]], loss: float) -> float:
  """When a curve first reaches a loss, between its points on a line.

  Args:
    curve: [step, unix time in seconds, held-out loss] of each evaluation; the
      first one is made before the first step.
    loss: in nats.

  Returns:
    Seconds since the first evaluation; infinite if it never does.
  """
  begun = curve[0][1]
  for (_, before, high), (_, after, low) in zip(curve, curve[1:]):
    if low <= loss:
      share = (high - loss) / (high - low) if high > loss else 0.0
      return before + share * (after - before) - begun
  return float("inf")


def _add_times(table: declaration.Table, rows: list[RowResults]) -> None:
  """Time to the last loss of the row compared with, as a share of its own."""
  by_label = {result.row.label: result for result in rows}
  for result in rows:
    reference = by_label[table.compare.get(result.row.label, result.row.label)]
    for curve, other in zip(result.curves, reference.curves):
      target = other[-1][2]
      share = seconds_to(curve, target) / seconds_to(other, target)
      result.values.setdefault(SAME_LOSS, []).append(share)


def _add_speeds(table: declaration.Table, rows: list[RowResults]) -> None:
  """Makes tokens a second a multiple of one row's, seed for seed."""
  name = declaration.SPEED
  reference = next(r for r in rows if r.row.label == table.speed_reference)
  rates = list(reference.values.get(name, []))
  for result in rows:
    pairs = zip(result.values.pop(name, []), rates)
    if rates:
      result.values[name] = [rate / other for rate, other in pairs]
