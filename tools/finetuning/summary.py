"""Summarizes several runs: median, best and spread; GLUE's table.

arXiv 1909.11942, section 4.2, reports medians over five runs.
"""

from __future__ import annotations

import math
import os
import statistics
from typing import Any, Mapping, NamedTuple

import numpy as np

from official_albert import files, runs
from official_albert.tasks import classification, common, squad
from official_albert.tasks.classification import glue
from official_albert.tasks.common import finetuning_task
from official_albert.tools.cli import printing
from official_albert.tools.finetuning import run

SUBMISSION_FOLDER = "submission"
_LOWEST_IS_BEST = ("mean_squared_error", "missing")
_NO_RESULTS = (
  "total",
  "thresh",
  "threshold",
  "by_characters",
  classification.CONSTANT_ERROR,
)
_ADVICE = (
  "for a better model, try other seeds (--seeds=5), a lower --learning_rate, "
  "more --num_train_epochs, more rows, or an encoder that was trained longer"
)
_STATISTICS = ("median", "best", "worst", "spread")


# The metrics of each split by seed.
_Results = Mapping[int, Mapping[str, Mapping[str, float]]]


class Choice(NamedTuple):
  """The best of several seeds, and by what it was chosen."""

  seed: int
  metric: str
  best_is: str


def choose(
  task: finetuning_task.FinetuningTask,
  results: _Results,
  folders: Mapping[int, str],
  metric: str = "",
  best_is: str = "",
) -> Choice:
  """Chooses the best seed by a metric of the first split.

  Metric and direction are by default those that chose each run's best
  checkpoint, whose record also has the losses. `folders` has the run of each
  seed.
  """
  records = {seed: runs.read_best(path) for seed, path in folders.items()}
  for record in records.values():
    if record and not metric:
      metric, best_is = record["metric"], best_is or record["best_is"]
  metric, best_is = metric or task.best_metric, best_is or "highest"
  sign = 1 if best_is == "highest" else -1

  def value(seed: int) -> float:
    values = results[seed][task.eval_splits[0]]
    record = records.get(seed)
    if metric not in values and record:
      values = record["values"]
    if metric not in values:
      raise ValueError(
        f"best_metric {metric!r} is not among the held-out numbers: choose one "
        f"of {', '.join(values)}."
      )
    return -math.inf if math.isnan(values[metric]) else sign * values[metric]

  return Choice(max(results, key=value), metric, best_is)


def summarize(
  task: finetuning_task.FinetuningTask,
  results: _Results,
  choice: Choice,
  with_majority: bool,
) -> dict[str, Any]:
  """Returns median, best, worst and spread of each metric of each split.

  `spread` is the standard deviation over runs, 0 for one run. The splits are
  those of all runs. The majority needs the training data.
  """
  best = choice.seed
  splits: dict[str, Any] = {
    split: {}
    for split in results[best]
    if all(split in result for result in results.values())
  }
  for split, metrics in splits.items():
    for name in results[best][split]:
      values = [result[split][name] for result in results.values()]
      order = sorted(values, reverse=name not in _LOWEST_IS_BEST)
      metrics[name] = {
        "median": statistics.median(values),
        "best": order[0],
        "worst": order[-1],
        "spread": statistics.stdev(values) if len(values) > 1 else 0.0,
      }
  summary = {
    "task": task.name,
    "best_metric": choice.metric,
    "best_is": choice.best_is,
    "best_seed": best,
    "seeds": {str(seed): dict(values) for seed, values in results.items()},
    "splits": splits,
  }
  if with_majority:
    majority = {split: task.majority(split) for split in splits}
    if any(majority.values()):
      summary["majority"] = majority
  return summary


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
  runs = f"{summary['task']}, runs: {len(summary['seeds'])}"
  return f"{runs}\n{printing.table(head, rows)}"


def doubts(summary: Mapping[str, Any]) -> list[str]:
  """Names each model that is no better than a constant, in lines with advice.

  The constant class is that of the training data, if it was read.
  """
  lines = []
  for seed, splits in summary["seeds"].items():
    for split, values in splits.items():
      constant = dict(summary.get("majority", {}).get(split, {}))
      metric, sign = next(iter(constant), ""), 1
      if squad.CHOSEN_THRESHOLD in values and metric:
        # Its own threshold is for other data; at 0, the model may seem bad.
        constant[f"best_{metric}"] = constant[metric]
        metric = f"best_{metric}"
      if classification.CONSTANT_ERROR in values:
        metric, sign = "mean_squared_error", -1
        constant[metric] = values[classification.CONSTANT_ERROR]
      if metric not in values or values.get("accuracy") == 1:
        continue  # All labels may be the same.
      if sign * values[metric] <= sign * constant[metric]:
        lines.append(
          f"warning: {summary['task']}, seed {seed}: the model is no better on "
          f"{split} than one answer to every row, with {metric} "
          f"{values[metric]:.4g} instead of {constant[metric]:.4g}"
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
  medians = {
    split: {metric: value["median"] for metric, value in values.items()}
    for split, values in summary["splits"].items()
  }
  return glue.task_score(glue.GLUE_TASKS[name], medians)


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
