"""Collects the numbers of a table by row, column and seed, and judges them."""

from __future__ import annotations

import math
import statistics
from typing import Any, Mapping, NamedTuple, Optional, Sequence

from tools.experiments import declaration, plan, readings
from tools.experiments.declaration import Row, Table

# Values of jobs measured on held-out text, and their columns.
_INTRINSIC = {
  "masked_lm_loss": declaration.LOSS,
  "masked_lm_accuracy": declaration.ACCURACY,
  "nsp_accuracy": "NSP",
  "sop_accuracy": "SOP",
}
AGREES, DISAGREES, SPREAD = "agrees", "disagrees", "within the spread"
ONE_SEED = "one seed"
# Smaller differences count as none: the paper prints the MNLI of one model as
# 81.6 and as 82.0, and its averages with one decimal.
_EQUAL = 0.2
_WORDS = {1: "higher", 0: "no different", -1: "lower"}


class Number(NamedTuple):
  """The mean and range of one value per seed."""

  mean: float
  lowest: float
  highest: float
  seeds: int

  @classmethod
  def of(cls, values: Sequence[float]) -> Number:
    """Summarizes at least one value."""
    return cls(statistics.mean(values), min(values), max(values), len(values))


class RowResults(NamedTuple):
  """The results of a row.

  Attributes:
    row: the declaration.
    parameters: of embeddings, encoder and pooler; None if it was not run.
    values: by column, one number per finished seed.
    curves: per seed, see `readings.pretraining`.
    layers: per seed, the layers' numbers of tools.inspect_model.
  """

  row: Row
  parameters: Optional[int]
  values: dict[str, list[float]]
  curves: list[list[dict[str, float]]]
  layers: list[list[dict[str, float]]]

  def number(self, column: str) -> Optional[Number]:
    """Summarizes a column; None without values."""
    values = self.values.get(column)
    return Number.of(values) if values else None


def collect(
  table: Table,
  cells: Sequence[plan.Cell],
  finished: Mapping[str, Mapping[str, Any]],
  tasks: Sequence[str],
) -> list[RowResults]:
  """Arranges the values of jobs by row and column.

  Args:
    table: the declaration.
    cells: of its plan.
    finished: the values of the finished jobs, by key.
    tasks: the columns that were fine-tuned.
  """
  merged: dict[tuple[str, int], dict[str, Any]] = {}
  for cell in cells:
    values = merged.setdefault((cell.label, cell.seed), {})
    for key in cell.keys:
      values.update(finished.get(key, {}))
  rows = {row.label: RowResults(row, None, {}, [], []) for row in table.rows}
  for cell in cells:
    values, row = merged[cell.label, cell.seed], rows[cell.label].row
    if "parameters" in values:
      rows[cell.label] = rows[cell.label]._replace(
        parameters=values["parameters"]
      )
    if row.num_applied_layers:
      suffix = f" at {row.num_applied_layers}"
      measured = {
        name.removesuffix(suffix): value
        for name, value in values.items()
        if name.endswith(suffix)
      }
    else:
      measured = _columns(values, table, tasks)
      reference = merged.get((row.compared_with or row.label, cell.seed), {})
      if table.time_to_loss and "curve" in values and "curve" in reference:
        measured.update(_cost_to_same_loss(values, reference))
      fastest = merged.get((table.speed_reference, cell.seed), {})
      name = "tokens_per_second"
      # The speed is measured once for all seeds.
      if cell.seed == cells[0].seed and name in values and name in fastest:
        measured[declaration.SPEED] = values[name] / fastest[name]
    result = rows[cell.label]
    for column, number in measured.items():
      result.values.setdefault(column, []).append(number)
    if "curve" in values:
      result.curves.append(values["curve"])
    if "layers" in values:
      result.layers.append(values["layers"])
  return list(rows.values())


def _columns(
  values: Mapping[str, Any], table: Table, tasks: Sequence[str]
) -> dict[str, float]:
  shown = {
    title: values[name] for name, title in _INTRINSIC.items() if name in values
  }
  for task in tasks:
    for name in (task, f"{task} F1", f"{task} EM"):
      if name in values:
        shown[name] = values[name]
  shown.update(values.get("columns", {}))
  if "steps" in values and any(row.equal_time for row in table.rows):
    shown[declaration.STEPS] = values["steps"]
  if "layers" in values:
    degrees = [layer["degrees"] for layer in values["layers"]]
    jumps = [abs(a - b) for a, b in zip(degrees, degrees[1:])]
    shown[declaration.FIRST] = degrees[0]
    shown[declaration.LAST] = degrees[-1]
    shown[declaration.JUMP] = max(jumps, default=0.0)
  if table.tasks and tasks and all(task in values for task in tasks):
    average = statistics.mean(values[task] for task in tasks)
    shown[declaration.AVERAGE] = average
  return shown


def _cost_to_same_loss(
  values: Mapping[str, Any], reference: Mapping[str, Any]
) -> dict[str, float]:
  """Returns time and operations as fractions of the reference's total."""
  end = reference["curve"][-1]
  return {
    column: readings.cost_to_reach(values["curve"], end["loss"], unit)
    / end[unit]
    for column, unit in (
      (declaration.SAME_LOSS, "seconds"),
      (declaration.SAME_LOSS_FLOPS, "flops"),
    )
  }


def verdicts(
  table: Table, rows: Sequence[RowResults], tasks: Sequence[str]
) -> dict[str, dict[str, str]]:
  """Judges each row that is compared with another.

  Returns:
    By label, then by what the verdict is based on: "tasks" compares averages
    over the tasks that were run with the paper's over the same tasks; "MLM"
    compares held-out accuracy with the paper's or, where the paper has none,
    with the direction of its own average; "NSP" and "SOP" compare accuracies.
    A table with another `direction` has one verdict, based on that column.
  """
  by_label = {result.row.label: result for result in rows}
  found = {}
  for row in table.rows:
    if not row.compared_with:
      continue
    other = table.row(row.compared_with)
    every = [task for task in declaration.TASKS if task in row.paper]
    mlm = declaration.ACCURACY
    # Verdict: the paper's columns, and our column.
    bases = {table.direction: (every, table.direction)}
    if table.direction == declaration.AVERAGE:
      bases = {
        "tasks": (tasks, declaration.AVERAGE),
        mlm: ([mlm] if mlm in row.paper else every, mlm),
        **{p.upper(): ([p.upper()], p.upper()) for p in table.pairs},
      }
    found[row.label] = {
      name: verdict(
        paper_direction(row, other, columns),
        by_label[row.label].number(column),
        by_label[other.label].number(column),
      )
      for name, (columns, column) in bases.items()
    }
  return found


def paper_direction(
  row: Row, other: Row, columns: Sequence[str]
) -> Optional[int]:
  """Returns 1, 0 or -1 if the paper finds `row` better, equal or worse.

  Args:
    row: the row.
    other: the row compared with.
    columns: the tasks to average over, or one other column.

  Returns:
    None if the paper does not say.
  """
  if row.paper_says is not None:
    return row.paper_says
  ours, theirs = row.paper_average(columns), other.paper_average(columns)
  if ours is None or theirs is None:
    return None
  if abs(ours - theirs) < _EQUAL:
    return 0
  return 1 if ours > theirs else -1


def verdict(
  paper: Optional[int], row: Optional[Number], other: Optional[Number]
) -> str:
  """Compares our direction with the paper's, in words.

  Args:
    paper: from `paper_direction`.
    row: our number; None if it was not run.
    other: the number compared with.

  Returns:
    `AGREES`, `DISAGREES` or `SPREAD`, with the directions; our direction alone
    where the paper gives none or sees no difference; "" without numbers. One
    seed has no spread, which the verdict mentions.
  """
  if row is None or other is None:
    return ""
  one_seed = f", {ONE_SEED}" if min(row.seeds, other.seeds) == 1 else ""
  ours = int(math.copysign(1, row.mean - other.mean))
  if row.lowest <= other.highest and other.lowest <= row.highest:
    ours = 0
  if paper is None:
    return _WORDS[ours] + one_seed
  if ours == 0:
    return SPREAD + one_seed
  if ours == paper:
    return f"{AGREES}: {_WORDS[ours]}{one_seed}"
  if paper == 0:
    return f"{_WORDS[ours]}, paper no different{one_seed}"
  return f"{DISAGREES}: {_WORDS[ours]}, paper {_WORDS[paper]}{one_seed}"
