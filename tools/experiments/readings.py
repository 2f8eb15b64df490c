"""What finished jobs left, as numbers.

Time is training time as a quiet machine would have it: of each depth that a run
trained at, the median over its log lines, times its updates. Compilation,
evaluations, checkpoints, pauses between a kill and the next start, and a busy
minute of the machine are not in it.
"""

from __future__ import annotations

import collections
import json
import os
import statistics
from typing import Any, Iterable, Mapping, Sequence

from official_albert import modeling, training

Record = Mapping[str, Any]


def pretraining(
  folder: str, config: modeling.AlbertConfig, batch_size: int
) -> dict[str, Any]:
  """Numbers of a finished run.

  Args:
    folder: of the run.
    config: of its model at full depth.
    batch_size: sequences of an update.

  Returns:
    `parameters`, `steps`, `training_seconds`, `training_flops`, the last
    evaluation's `masked_lm_loss`, `masked_lm_accuracy` and, where there is
    one, `sentence_pair_accuracy` in percent; `tokens_per_second`, the median;
    and `curve`: of each evaluation `step`, `depth`, `loss`, and `seconds` and
    `flops` of training until then.

  Raises:
    OSError, KeyError, IndexError: it is no whole run.
  """
  records = training.read_report(os.path.join(folder, training.METRICS_FILE))
  full = config.num_hidden_layers
  clock = _clock(records, batch_size)
  evaluated = {
    (record["step"], record.get("depth", full)): record
    for record in records
    if record["kind"] == "eval"
  }
  curve = [
    {
      "step": step,
      "depth": depth,
      "loss": record["masked_lm_loss"],
      **dict(zip(("seconds", "flops"), clock[_last_line(clock, step)])),
    }
    for (step, depth), record in sorted(evaluated.items())
  ]
  last = [r for r in records if r["kind"] == "eval"][-1]
  end = max(clock)
  values = {
    "parameters": config.parameter_count(),
    "steps": end,
    "training_seconds": clock[end][0],
    "training_flops": clock[end][1],
    "tokens_per_second": training.summarize_run(records)["tokens_per_second"],
    "masked_lm_loss": last["masked_lm_loss"],
    "masked_lm_accuracy": 100 * last["masked_lm_accuracy"],
    "curve": curve,
  }
  if "sentence_order_accuracy" in last:
    values["sentence_pair_accuracy"] = 100 * last["sentence_order_accuracy"]
  return values


def _clock(
  records: Sequence[Record], batch_size: int
) -> dict[int, tuple[float, float]]:
  """Seconds and operations of training until each step of a log line."""
  speeds = collections.defaultdict(list)
  compiling = collections.defaultdict(list)
  costs: dict[int, float] = {}
  seen: set[float] = set()
  for record in records:
    if record["kind"] == "start":
      seen = set()
    elif record["kind"] == "train":
      speed = record["sequences_per_second"]
      # Of a sequence: each depth has its own.
      cost = float(f"{record['model_flops_per_second'] / speed:.6g}")
      # The first line of each depth of each start is of a loop that compiles.
      (speeds if cost in seen else compiling)[cost].append(speed)
      seen.add(cost)
      costs[record["step"]] = cost
  clock = {0: (0.0, 0.0)}
  before, seconds, flops = 0, 0.0, 0.0
  for step, cost in sorted(costs.items()):
    # A first loop is better than none.
    speed = statistics.median(speeds[cost] or compiling[cost])
    sequences = (step - before) * batch_size
    seconds += sequences / speed
    flops += sequences * cost
    clock[step] = (seconds, flops)
    before = step
  return clock


def _last_line(clock: Mapping[int, Any], step: int) -> int:
  return max(logged for logged in clock if logged <= step)


def speed(folder: str) -> dict[str, float]:
  """The median `tokens_per_second` of a run."""
  path = os.path.join(folder, training.METRICS_FILE)
  summary = training.summarize_run(training.read_report(path))
  return {"tokens_per_second": summary["tokens_per_second"]}


def finetuning(folder: str, column: str) -> dict[str, float]:
  """In percent: what the paper's tables show of a task.

  Of SQuAD the mean of F1 and exact match, as the paper's Avg has it, and both.
  """
  results = object_of(os.path.join(folder, "eval_results.json"))
  first = next(iter(results.values()))
  if column not in ("SQuAD1.1", "SQuAD2.0"):
    return {column: 100 * first["accuracy"]}
  f1, exact = first["f1"], first.get("exact_match", first.get("exact"))
  return {
    column: (f1 + exact) / 2,
    f"{column} F1": f1,
    f"{column} EM": exact,
  }


def object_of(path: str) -> dict[str, Any]:
  """The object in a JSON file."""
  with open(path, encoding="utf-8") as file:
    return json.load(file)


def first_to(
  curve: Iterable[Mapping[str, float]], loss: float, what: str
) -> float:
  """What it took a run to reach a loss, between evaluations on a line.

  Only evaluations at the depth that the run ends with count: a shallow model
  with that loss is not the model that was wanted.

  Args:
    curve: of `pretraining`.
    loss: in nats.
    what: "seconds" or "flops" of training.

  Returns:
    Infinity if it never does.
  """
  points = list(curve)
  points = [p for p in points if p["depth"] == points[-1]["depth"]]
  if points[0]["loss"] <= loss:
    return points[0][what]
  for before, after in zip(points, points[1:]):
    if after["loss"] <= loss:
      share = (before["loss"] - loss) / (before["loss"] - after["loss"])
      return before[what] + share * (after[what] - before[what])
  return float("inf")
