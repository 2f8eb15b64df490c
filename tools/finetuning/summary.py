"""Summarizes several runs: median, best and spread; GLUE's table.

arXiv 1909.11942, section 4.2, reports medians over five runs.
"""

from __future__ import annotations

import math
import os
from typing import Any, Mapping

import numpy as np

from official_albert import files, runs
from official_albert.tasks import common, squad
from official_albert.tasks.classification import glue
from official_albert.tasks.common import finetuning_task
from official_albert.tools.cli import printing
from official_albert.tools.finetuning import run

SUBMISSION_FOLDER = "submission"
_LOWEST_IS_BEST = ("mean_squared_error", "missing")
_NO_RESULTS = ("total", "thresh", "threshold", "by_characters")
_ADVICE = (
  "for a better model, try other seeds (--seeds=5), a lower --learning_rate, "
  "more --num_train_epochs, more rows, or an encoder that was trained longer"
)
_STATISTICS = ("median", "best", "worst", "spread")


def summarize(
  task: finetuning_task.FinetuningTask,
  results: Mapping[int, Mapping[str, Mapping[str, float]]],
  folders: Mapping[int, str],
  metric: str = "",
  best_is: str = "",
  with_majority: bool = False,
) -> dict[str, Any]:
  """Returns the content of `summary.json`.

  It has median, best, worst and standard deviation (0 for one run) of each
  metric of the splits of all runs, and the best seed.

  Args:
    task: the task.
    results: the metrics of each split by seed.
    folders: the run of each seed.
    metric: of the first split, or of the run's record, which also has the
      losses; it chooses the best seed. By default that which chose each run's
      best checkpoint.
    best_is: "highest" or "lowest"; the default is that of the record, too.
    with_majority: whether to add the metrics of the most frequent answer, which
      needs the training data.
  """
  records: dict[int, Any] = {
    seed: runs.read_best(folder) or {} for seed, folder in folders.items()
  }
  first = next(iter(records.values()))
  metric = metric or first.get("metric", task.best_metric)
  best_is = best_is or first.get("best_is", "highest")
  held_out = {
    seed: {**records[seed].get("values", {}), **splits[task.eval_split]}
    for seed, splits in results.items()
  }

  def badness(seed: int) -> float:
    if metric not in held_out[seed]:
      raise ValueError(
        f"best_metric {metric!r} is not among the held-out numbers: choose one "
        f"of {', '.join(held_out[seed])}."
      )
    value = held_out[seed][metric]
    if math.isnan(value):
      return math.inf
    return -value if best_is == "highest" else value

  best = min(results, key=badness)
  splits: dict[str, Any] = {
    split: {name: _statistics(results, split, name) for name in values}
    for split, values in results[best].items()
    if all(split in others for others in results.values())
  }
  summary = {
    "task": task.name,
    "best_metric": metric,
    "best_is": best_is,
    "best_seed": best,
    "seeds": {str(seed): dict(values) for seed, values in results.items()},
    "splits": splits,
  }
  if with_majority:
    majority = {split: task.majority(split) for split in splits}
    if any(majority.values()):
      summary["majority"] = majority
  return summary


def _statistics(results: Any, split: str, name: str) -> dict[str, float]:
  values = [result[split][name] for result in results.values()]
  order = sorted(values, reverse=name not in _LOWEST_IS_BEST)
  return {
    "median": float(np.median(values)),
    "best": order[0],
    "worst": order[-1],
    "spread": float(np.std(values, ddof=1)) if len(values) > 1 else 0.0,
  }


def write(folder: str, summary: Mapping[str, Any]) -> None:
  """Writes `summary.json`."""
  files.make_folder(folder)
  files.write_json(os.path.join(folder, runs.SUMMARY_FILE), summary)


def describe(summary: Mapping[str, Any]) -> str:
  """Returns the summary as a table for a terminal, with units of SQuAD."""
  is_squad = summary["task"].startswith("squad")
  head = ["split", "metric", *_STATISTICS]
  if "majority" in summary:
    head.append("most frequent answer")
  rows = []
  for split, metrics in summary["splits"].items():
    majority = summary.get("majority", {}).get(split, {})
    for name, values in metrics.items():
      if name.endswith(_NO_RESULTS):
        continue  # summary.json has them.
      numbers = [values[statistic] for statistic in _STATISTICS]
      if name in majority:
        numbers.append(majority[name])
      if is_squad and name.endswith(squad.IN_PERCENT):
        name += " (%)"
      rows.append([split, name, *(f"{number:.4g}" for number in numbers)])
  title = f"{summary['task']}, runs: {len(summary['seeds'])}"
  return f"{title}\n{printing.table(head, rows)}"


def doubts(summary: Mapping[str, Any]) -> list[str]:
  """Names each model that is no better than a constant, in lines with advice.

  The constant is the most frequent answer, if the training data was read.
  """
  lines = []
  for seed, splits in summary["seeds"].items():
    for split, constant in summary.get("majority", {}).items():
      values, name, sign = splits[split], next(iter(constant), ""), 1
      metric = name
      if f"best_{name}" in values:
        # SQuAD's own threshold is for other data; at 0, the model may seem bad.
        metric = f"best_{name}"
      elif "mean_squared_error" in constant:
        metric, name, sign = "mean_squared_error", "mean_squared_error", -1
      if not name or values.get("accuracy") == 1:
        continue  # All labels may be the same.
      if sign * values[metric] <= sign * constant[name]:
        lines.append(
          f"warning: {summary['task']}, seed {seed}: the model is no better on "
          f"{split} than one answer to every row, with {metric} "
          f"{values[metric]:.4g} instead of {constant[name]:.4g}"
        )
  return [*lines, _ADVICE] if lines else []


def finish_glue(
  output_dir: str,
  folders: Mapping[str, str],
  summaries: Mapping[str, Mapping[str, Any]],
  all_rows: bool = True,
) -> None:
  """Prints the scores of all tasks, and writes the submission.

  `folders` has the folder of each task, `summaries` the summary of those that
  were evaluated. The site requires predictions of all rows.
  """
  if summaries.keys() == glue.GLUE_TASKS.keys():
    scores = {name: _score(name, found) for name, found in summaries.items()}
    scores["average"] = float(np.mean(list(scores.values())))
    row = [f"{100 * score:.1f}" for score in scores.values()]
    print(printing.table(list(scores), [row]))
  if not all_rows:
    print("no submission: --max_eval_examples skips rows of the test files")
    return
  write_submission(
    os.path.join(output_dir, SUBMISSION_FOLDER),
    {
      name: os.path.join(runs.run_folder(folder), run.PREDICTIONS_FOLDER)
      for name, folder in folders.items()
    },
  )


def _score(name: str, summary: Mapping[str, Any]) -> float:
  """Returns the mean of a task's median metrics, over all its dev splits."""
  task, splits = glue.GLUE_TASKS[name], summary["splits"]
  medians = [
    splits[split][metric]["median"]
    for split in task.dev_splits
    for metric in task.metrics
  ]
  return float(np.mean(medians))


def write_submission(folder: str, predictions: Mapping[str, str]) -> None:
  """Writes GLUE's official files for predictions by task, and their zip."""
  written = False
  for name, source in predictions.items():
    task = glue.GLUE_TASKS[name]
    for split in task.test_splits:
      path = os.path.join(source, f"{split}{common.PROBABILITIES_SUFFIX}")
      if files.exists(path):
        table = common.read_probabilities(path)
        glue.write_predictions(
          folder, task, split, table.ids, table.predictions
        )
        written = True
  if written:
    print(glue.write_zip(folder))
