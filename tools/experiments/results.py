"""Reads the numbers of finished jobs, arranges them in rows, and judges them.

Training time is that of an idle machine: for each depth that a run trained at,
the median speed of its log lines times its updates. It excludes compilation,
evaluations, checkpoints, pauses between a kill and the next start, and minutes
in which the machine was busy.
"""

from __future__ import annotations

import collections
import dataclasses
import glob
import itertools
import math
import os
import statistics
from typing import Any, Iterable, Mapping, NamedTuple, Optional, Sequence

from official_albert import checkpoints, files, modeling, training
from official_albert.tools.experiments import tables
from official_albert.tools.experiments.tables import Row, Table

# Values of jobs measured on held-out text, and their columns.
_HELD_OUT = {
  "masked_lm_loss": tables.LOSS,
  "masked_lm_accuracy": tables.ACCURACY,
  "nsp_accuracy": tables.NSP,
  "sop_accuracy": tables.SOP,
  "nsp_chance": f"{tables.NSP} chance",
  "sop_chance": f"{tables.SOP} chance",
}
SHOWN, CONTRADICTED, NOT_RESOLVED = KINDS = (
  "shown",
  "contradicted",
  "not resolved",
)
# Smaller differences count as none: the paper prints the MNLI of one model as
# 81.6 and as 82.0, and its averages with one decimal.
_EQUAL = 0.2
_WORDS = {1: "higher", 0: "no different", -1: "lower"}


def read_json(path: str) -> dict[str, Any]:
  """Returns the object in a JSON file of a finished job."""
  return files.read_json(path, dict[str, Any], "remove it to run the job again")


def read_pretraining(
  folder: str, config: modeling.AlbertConfig, batch_size: int
) -> dict[str, Any]:
  """Returns the numbers of a finished pretraining run.

  `config` is that of its model at full depth. The result has `parameters`,
  `steps`, `tokens_per_second`, the last evaluation, and `curve`: `step`,
  `depth`, `loss`, and `seconds` and `flops` of training until each evaluation.
  """
  evaluations = training.read_metrics(folder, "eval")
  clock = _clock(_read_log(folder), batch_size)
  curve = []
  for record in evaluations:
    step, depth = record["step"], record.get("depth", config.num_hidden_layers)
    loss = record["masked_lm_loss"]
    seconds, flops = clock[max(logged for logged in clock if logged <= step)]
    curve.append(
      dict(step=step, depth=depth, loss=loss, seconds=seconds, flops=flops)
    )
  return {
    "parameters": config.parameter_count(),
    "steps": max(clock),
    "masked_lm_loss": evaluations[-1]["masked_lm_loss"],
    "masked_lm_accuracy": 100 * evaluations[-1]["masked_lm_accuracy"],
    "curve": curve,
    **read_speed(folder),
  }


def _read_log(folder: str) -> list[dict[str, Any]]:
  return training.read_report(os.path.join(folder, training.METRICS_FILE))


def _clock(
  log: Iterable[Mapping[str, Any]], batch_size: int
) -> dict[int, tuple[float, float]]:
  """Returns seconds and operations of training by the step of a log line."""
  # Sequences per second by operations per sequence, which differ between
  # depths. The first line of each depth after a start includes compilation.
  speeds = collections.defaultdict(list)
  compiling = collections.defaultdict(list)
  costs: dict[int, float] = {}
  seen: set[float] = set()
  for record in log:
    if record["kind"] == "start":
      seen = set()
    elif record["kind"] == "train":
      speed = record["sequences_per_second"]
      cost = float(f"{record['model_flops_per_second'] / speed:.6g}")
      (speeds if cost in seen else compiling)[cost].append(speed)
      seen.add(cost)
      costs[record["step"]] = cost
  clock = {0: (0.0, 0.0)}
  before, seconds, flops = 0, 0.0, 0.0
  for step, cost in sorted(costs.items()):
    sequences = (step - before) * batch_size
    seconds += sequences / statistics.median(speeds[cost] or compiling[cost])
    flops += sequences * cost
    clock[step] = (seconds, flops)
    before = step
  return clock


def read_speed(folder: str) -> dict[str, float]:
  """Returns the median `tokens_per_second` of a run."""
  found = training.summarize_run(_read_log(folder))
  return {"tokens_per_second": found["tokens_per_second"]}


def read_benchmark(
  folder: str, config: modeling.AlbertConfig, length: int
) -> dict[str, Any]:
  """Returns the speed and the sizes of a model of table 1."""
  [path] = files.glob(os.path.join(glob.escape(folder), "*.json"))
  rate = statistics.median(read_json(path)["tokens_per_second"])
  flops = config.forward_flops(length) / length / 1e6
  return {
    "parameters": config.parameter_count(),
    "tokens_per_second": rate,
    "columns": {tables.FLOPS: flops, tables.TOKENS: rate},
  }


def read_pair_evaluation(
  metrics_file: str, dataset_file: str, pair: str, text: str = ""
) -> dict[str, float]:
  """Returns the accuracy of a sentence objective, in percent.

  Its chance is the share of the more frequent label. In NSP that is more than
  half, because a segment cannot be followed by its document's next if there is
  none. For records of --masking=dynamic, which have no order yet, the
  evaluation swaps half of the pairs.

  The records of "sop" also give the masked-LM metrics, because their text and
  masks are the same for all rows. `text` is one of `tables.TEXTS`, "" for
  held-out text.
  """
  metrics = read_json(metrics_file)
  dataset = read_json(dataset_file)
  heldout = dataset["splits"].get("heldout", dataset["splits"]["train"])
  share = heldout["statistics"]["label_1_share"]
  if pair == "sop" and dataset["settings"].get("masking") == "dynamic":
    share = 0.5
  values = {
    f"{pair}_accuracy": 100 * metrics["sentence_order_accuracy"],
    f"{pair}_chance": 100 * max(share, 1 - share),
  }
  if pair == "sop":
    values["masked_lm_loss"] = metrics["masked_lm_loss"]
    values["masked_lm_accuracy"] = 100 * metrics["masked_lm_accuracy"]
  if not text:
    return values
  return {f"{text} {_HELD_OUT[name]}": value for name, value in values.items()}


def read_finetuning(folder: str, task: str) -> dict[str, float]:
  """Returns the results of a task in percent.

  SQuAD has F1, exact match, and their mean for the paper's average. The chance
  is the result of the most frequent answer, if the run has it.
  """
  found = _task_scores(
    task, read_json(os.path.join(folder, "eval_results.json"))
  )
  path = os.path.join(folder, checkpoints.SUMMARY_FILE)
  if files.exists(path) and (majority := read_json(path).get("majority")):
    found[f"{task} chance"] = _task_scores(task, majority)[task]
  return found


def _task_scores(
  task: str, splits: Mapping[str, Mapping[str, float]]
) -> dict[str, float]:
  first = next(iter(splits.values()))
  if not task.startswith("SQuAD"):
    return {task: 100 * first["accuracy"]}
  # The paper's numbers of SQuAD 2.0 are those of the best thresholds.
  f1, exact = (
    next(first[name] for name in names if name in first)
    for names in (("best_f1", "f1"), ("best_exact", "exact", "exact_match"))
  )
  return {task: (f1 + exact) / 2, f"{task} F1": f1, f"{task} EM": exact}


def cost_to_reach(
  curve: Sequence[Mapping[str, float]], loss: float, unit: str
) -> float:
  """Returns the "seconds" or "flops" that a run needed to reach a loss.

  Interpolates linearly between evaluations at the final depth. Returns infinity
  if the run never reaches the loss.
  """
  points = [p for p in curve if p["depth"] == curve[-1]["depth"]]
  if points[0]["loss"] <= loss:
    return points[0][unit]
  for before, after in itertools.pairwise(points):
    if after["loss"] <= loss:
      share = (before["loss"] - loss) / (before["loss"] - after["loss"])
      return before[unit] + share * (after[unit] - before[unit])
  return math.inf


class Cell(NamedTuple):
  """A row with one seed; `keys` are its jobs, starting with the pretraining."""

  label: str
  seed: int
  keys: tuple[str, ...]


class Number(NamedTuple):
  """The mean and range of one value per seed."""

  mean: float
  lowest: float
  highest: float
  seeds: int


@dataclasses.dataclass
class RowResults:
  """The results of a row, a list item per finished seed."""

  row: Row
  # Of embeddings, encoder and pooler; None if it was not run.
  parameters: Optional[int] = None
  values: dict[str, list[float]] = dataclasses.field(default_factory=dict)
  # See `read_pretraining`, and the layers of tools.inspect_model.
  curves: list[list[dict[str, float]]] = dataclasses.field(default_factory=list)
  layers: list[list[dict[str, float]]] = dataclasses.field(default_factory=list)

  def number(self, column: str) -> Optional[Number]:
    """Summarizes a column; None without values."""
    v = self.values.get(column)
    return Number(statistics.mean(v), min(v), max(v), len(v)) if v else None


def collect(
  table: Table,
  cells: Sequence[Cell],
  finished: Mapping[str, Mapping[str, Any]],
  tasks: Sequence[str],
) -> list[RowResults]:
  """Arranges the values of `finished` jobs, by key, by row and column."""
  merged: dict[tuple[str, int], dict[str, Any]] = {}
  for label, seed, keys in cells:
    merged[label, seed] = {}
    for key in keys:
      merged[label, seed] |= finished.get(key, {})
  rows = {row.label: RowResults(row) for row in table.rows}
  for (label, seed), values in merged.items():
    result = rows[label]
    reference = merged.get((result.row.compared_with or label, seed), {})
    # The speed is measured once for all seeds.
    fastest = {}
    if seed == cells[0].seed:
      fastest = merged.get((tables.SPEED_REFERENCE, seed), {})
    measured = _measured(result.row, table, tasks, values, reference, fastest)
    for column, number in measured.items():
      result.values.setdefault(column, []).append(number)
    result.parameters = values.get("parameters", result.parameters)
    if "curve" in values:
      result.curves.append(values["curve"])
    if "layers" in values:
      result.layers.append(values["layers"])
  return list(rows.values())


def _measured(
  row: Row,
  table: Table,
  tasks: Sequence[str],
  values: Mapping[str, Any],
  reference: Mapping[str, Any],
  fastest: Mapping[str, Any],
) -> dict[str, float]:
  """Returns the numbers of one seed by column.

  `reference` and `fastest` are the values of the rows that it is compared with.
  """
  if row.num_applied_layers:
    suffix = f" at {row.num_applied_layers}"
    return {
      name.removesuffix(suffix): value
      for name, value in values.items()
      if name.endswith((suffix, " chance"))
    }
  names = dict(_HELD_OUT)
  names |= {name: name for name in table.columns}
  names |= {name: name for name in values if name.endswith(" chance")}
  for task in tasks:
    names |= {name: name for name in (task, f"{task} F1", f"{task} EM")}
  shown = {names[name]: values[name] for name in names if name in values}
  shown |= values.get("columns", {})
  if "layers" in values:
    degrees = [layer["degrees"] for layer in values["layers"]]
    jumps = [abs(a - b) for a, b in itertools.pairwise(degrees)]
    shown[tables.FIRST], shown[tables.LAST] = degrees[0], degrees[-1]
    shown[tables.JUMP] = max(jumps, default=0.0)
  if tasks and all(task in values for task in tasks):
    shown[tables.AVERAGE] = statistics.mean(values[task] for task in tasks)
  if tables.SAME_LOSS in table.columns and "curve" in values:
    for column, unit in (
      (tables.SAME_LOSS, "seconds"),
      (tables.SAME_LOSS_FLOPS, "flops"),
    ):
      if "curve" in reference:
        end = reference["curve"][-1]
        cost = cost_to_reach(values["curve"], end["loss"], unit)
        shown[column] = cost / end[unit]
  rate = "tokens_per_second"
  if tables.SPEED in table.columns and rate in values and rate in fastest:
    shown[tables.SPEED] = values[rate] / fastest[rate]
  return shown


def verdicts(
  table: Table, rows: Sequence[RowResults], tasks: Sequence[str]
) -> dict[str, dict[str, str]]:
  """Judges each row that is compared with another.

  Returns a verdict by label, then by what it is based on, if that was measured:
  "tasks" compares averages over the tasks that were run with the paper's over
  the same tasks; "MLM" compares held-out accuracy with the paper's or, where
  the paper has none, with the direction of its own average; "NSP" and "SOP"
  compare accuracies, unless a row trained no such head or neither learned it. A
  table without tasks has one verdict, based on layers or on held-out accuracy.
  """
  by_label = {result.row.label: result for result in rows}
  mlm, found = tables.ACCURACY, {}
  for row in (row for row in table.rows if row.compared_with):
    other = table.row(row.compared_with)
    paper_tasks = [task for task in tables.TASKS if task in row.paper]
    # Verdict: the paper's columns, and our column.
    bases = {mlm: ([mlm] if mlm in row.paper else paper_tasks, mlm)}
    if tables.SCORES in table.columns:
      bases = {"tasks": (tasks, tables.AVERAGE), **bases}
    elif tables.JUMP in table.columns:
      bases = {tables.JUMP: (paper_tasks, tables.JUMP)}
    compared = by_label[row.label], by_label[other.label]
    for pair in (tables.NSP, tables.SOP):
      if pair in table.columns and _have_learned(pair, compared):
        bases[pair] = ([pair], pair)
    words = {
      name: verdict(
        paper_direction(row, other, columns),
        *(result.number(column) for result in compared),
      )
      for name, (columns, column) in bases.items()
    }
    found[row.label] = {name: word for name, word in words.items() if word}
  return found


def _have_learned(pair: str, rows: Sequence[RowResults]) -> bool:
  """Returns whether all rows trained a head, and the best is above chance."""
  numbers = [(r.number(pair), r.number(f"{pair} chance")) for r in rows]
  best, chance = max(numbers, key=lambda x: x[0].mean if x[0] else -math.inf)
  above = not (best and chance) or best.lowest > chance.mean
  return above and all(r.row.sentence_pair != "none" for r in rows)


def paper_direction(
  row: Row, other: Row, columns: Sequence[str]
) -> Optional[int]:
  """Returns 1, 0 or -1 if the paper finds `row` better, equal or worse.

  Returns None if the paper does not say. Several columns are averaged.
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
  """Compares our direction with the paper's, from `paper_direction`, in words.

  A direction of the paper is one of `KINDS`: resolved only if both rows have
  several seeds and the ranges of the seeds don't overlap. Returns our direction
  alone where the paper gives none or sees no difference; "" without numbers.
  """
  if row is None or other is None:
    return ""
  ours = 1 if row.mean > other.mean else -1
  if row.lowest <= other.highest and other.lowest <= row.highest:
    ours = 0
  one_seed = min(row.seeds, other.seeds) == 1
  if not paper:
    words = _WORDS[ours]
    if paper == 0 and ours:
      words = f"{words}, paper no different"
  elif one_seed or not ours:
    words = NOT_RESOLVED
  else:
    words = f"{SHOWN if ours == paper else CONTRADICTED}: {_WORDS[ours]}"
  return f"{words}, one seed" if one_seed else words
