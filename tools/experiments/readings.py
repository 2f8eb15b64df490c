"""Reads the numbers that finished jobs have left in their folders.

Training time is that of an idle machine: for each depth that a run trained at,
the median speed of its log lines times its updates. It excludes compilation,
evaluations, checkpoints, pauses between a kill and the next start, and minutes
in which the machine was busy.
"""

from __future__ import annotations

import collections
import json
import os
import statistics
from typing import Any, Iterable, Mapping, Sequence

import tfrecords
from official_albert import modeling, training

Record = Mapping[str, Any]


def read_json(path: str) -> dict[str, Any]:
  """Returns the object in a JSON file."""
  with open(path, encoding="utf-8") as file:
    return json.load(file)


def records(folder: str) -> dict[str, Any]:
  """Returns the sizes of a folder of pretraining records, and its entropy."""
  manifest = tfrecords.read_manifest(folder)
  statistics_ = manifest.split("train").statistics
  return {
    "train_examples": manifest.split("train").records,
    "heldout_examples": manifest.split("heldout").records,
    "unigram_entropy_nats": statistics_["unigram_entropy_nats"],
  }


def pretraining(
  folder: str, config: modeling.AlbertConfig, batch_size: int
) -> dict[str, Any]:
  """Returns the numbers of a finished pretraining run.

  Args:
    folder: of the run.
    config: of its model at full depth.
    batch_size: sequences per update.

  Returns:
    `parameters`, `steps`, `training_seconds`, `training_flops` and the median
    `tokens_per_second`; of the last evaluation `masked_lm_loss` and, in
    percent, `masked_lm_accuracy` and `sentence_pair_accuracy` if there is one;
    and `curve`: of each evaluation `step`, `depth`, `loss`, and the `seconds`
    and `flops` of training until then.

  Raises:
    OSError, KeyError, IndexError: the run is not complete.
  """
  log = training.read_report(os.path.join(folder, training.METRICS_FILE))
  evaluations = [record for record in log if record["kind"] == "eval"]
  clock = _clock(log, batch_size)
  # A run that was killed repeats evaluations; the last one counts.
  by_step = {
    (record["step"], record.get("depth", config.num_hidden_layers)): record
    for record in evaluations
  }
  curve = []
  for (step, depth), record in sorted(by_step.items()):
    seconds, flops = clock[max(logged for logged in clock if logged <= step)]
    curve.append(
      {
        "step": step,
        "depth": depth,
        "loss": record["masked_lm_loss"],
        "seconds": seconds,
        "flops": flops,
      }
    )
  last, end = evaluations[-1], max(clock)
  values = {
    "parameters": config.parameter_count(),
    "steps": end,
    "training_seconds": clock[end][0],
    "training_flops": clock[end][1],
    "tokens_per_second": training.summarize_run(log)["tokens_per_second"],
    "masked_lm_loss": last["masked_lm_loss"],
    "masked_lm_accuracy": 100 * last["masked_lm_accuracy"],
    "curve": curve,
  }
  if "sentence_order_accuracy" in last:
    values["sentence_pair_accuracy"] = 100 * last["sentence_order_accuracy"]
  return values


def _clock(
  log: Sequence[Record], batch_size: int
) -> dict[int, tuple[float, float]]:
  """Returns seconds and operations of training by the step of a log line."""
  speeds = collections.defaultdict(list)
  compiling = collections.defaultdict(list)
  costs: dict[int, float] = {}
  seen: set[float] = set()
  for record in log:
    if record["kind"] == "start":
      seen = set()
    elif record["kind"] == "train":
      speed = record["sequences_per_second"]
      # Operations per sequence, which differ between depths.
      cost = float(f"{record['model_flops_per_second'] / speed:.6g}")
      # The first line of each depth after a start includes compilation.
      (speeds if cost in seen else compiling)[cost].append(speed)
      seen.add(cost)
      costs[record["step"]] = cost
  clock = {0: (0.0, 0.0)}
  before, seconds, flops = 0, 0.0, 0.0
  for step, cost in sorted(costs.items()):
    speed = statistics.median(speeds[cost] or compiling[cost])
    sequences = (step - before) * batch_size
    seconds += sequences / speed
    flops += sequences * cost
    clock[step] = (seconds, flops)
    before = step
  return clock


def speed(folder: str) -> dict[str, float]:
  """Returns the median `tokens_per_second` of a run."""
  log = training.read_report(os.path.join(folder, training.METRICS_FILE))
  return {"tokens_per_second": training.summarize_run(log)["tokens_per_second"]}


def pair_evaluation(metrics_file: str, pair: str) -> dict[str, float]:
  """Returns the accuracy of a sentence objective, in percent.

  The records of "sop" also give the masked-LM numbers, as they are the same
  text with the same masks for all rows.
  """
  metrics = read_json(metrics_file)
  values = {f"{pair}_accuracy": 100 * metrics["sentence_order_accuracy"]}
  if pair == "sop":
    values["masked_lm_loss"] = metrics["masked_lm_loss"]
    values["masked_lm_accuracy"] = 100 * metrics["masked_lm_accuracy"]
  return values


def finetuning(folder: str, task: str) -> dict[str, float]:
  """Returns the results of a task in percent.

  For SQuAD, F1, exact match and their mean, which enters the paper's average.
  """
  results = read_json(os.path.join(folder, "eval_results.json"))
  first = next(iter(results.values()))
  if not task.startswith("SQuAD"):
    return {task: 100 * first["accuracy"]}
  f1, exact = first["f1"], first.get("exact_match", first.get("exact"))
  return {task: (f1 + exact) / 2, f"{task} F1": f1, f"{task} EM": exact}


def cost_to_reach(
  curve: Iterable[Mapping[str, float]], loss: float, unit: str
) -> float:
  """Returns the training a run needed to reach a loss.

  Interpolates linearly between evaluations. Only evaluations at the final depth
  count.

  Args:
    curve: from `pretraining`.
    loss: in nats.
    unit: "seconds" or "flops".

  Returns:
    Infinity if the run never reaches the loss.
  """
  points = list(curve)
  points = [p for p in points if p["depth"] == points[-1]["depth"]]
  if points[0]["loss"] <= loss:
    return points[0][unit]
  for before, after in zip(points, points[1:]):
    if after["loss"] <= loss:
      share = (before["loss"] - loss) / (before["loss"] - after["loss"])
      return before[unit] + share * (after[unit] - before[unit])
  return float("inf")
