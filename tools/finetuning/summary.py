"""Summarizes several runs: median, best and spread; GLUE's table.

arXiv 1909.11942, section 4.2, reports medians over five runs.
"""

from __future__ import annotations

import os
import statistics
from typing import Any, Mapping, Optional

import numpy as np
from typing_extensions import TypedDict

from official_albert import checkpoints, files
from tasks import common
from tasks.classification import glue
from tools.cli import printing
from tools.finetuning import jobs, run

SUBMISSION_FOLDER = "submission"
_LOWEST_IS_BEST = ("mean_squared_error", "missing")
_STATISTICS = ("median", "best", "worst", "spread")


class _Summary(TypedDict):
  """What is read of summary.json: the statistics of each metric by split."""

  splits: dict[str, dict[str, dict[str, float]]]


def summarize(
  job: jobs.Job,
  results: Mapping[int, Mapping[str, Mapping[str, float]]],
  with_majority: bool,
) -> dict[str, Any]:
  """Returns median, best, worst and spread of each metric of each split.

  `results` has the metrics of each split by seed. `spread` is the standard
  deviation over runs, 0 for one run; `best_seed` has the highest `best_metric`
  of the first split. The majority needs the training data.
  """
  first = job.eval_splits[0]
  best = max(results, key=lambda seed: results[seed][first][job.best_metric])
  splits: dict[str, Any] = {split: {} for split in job.eval_splits}
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
    "task": job.name,
    "best_metric": job.best_metric,
    "best_seed": best,
    "seeds": {str(seed): dict(values) for seed, values in results.items()},
    "splits": splits,
  }
  if with_majority:
    summary["majority"] = {split: job.majority(split) for split in splits}
  return summary


def write(folder: str, summary: Mapping[str, Any]) -> None:
  """Writes `summary.json`."""
  files.make_folder(folder)
  files.write_json(os.path.join(folder, checkpoints.SUMMARY_FILE), summary)


def read(folder: str) -> Optional[_Summary]:
  """Reads `summary.json`; returns None if there is none."""
  path = os.path.join(folder, checkpoints.SUMMARY_FILE)
  if not files.exists(path):
    return None
  return files.read_json(path, _Summary, "remove it, and evaluate again")


def describe(summary: Mapping[str, Any]) -> str:
  """Returns the summary as a table for a terminal."""
  head = ["split", "metric", *_STATISTICS]
  if "majority" in summary:
    head.append("most frequent answer")
  rows = []
  for split, metrics in summary["splits"].items():
    majority = summary.get("majority", {}).get(split, {})
    for name, values in metrics.items():
      if name.endswith(("total", "thresh", "threshold")):
        continue  # Not results; summary.json has them.
      numbers = [values[statistic] for statistic in _STATISTICS]
      if name in majority:
        numbers.append(majority[name])
      rows.append([split, name, *(f"{number:.4g}" for number in numbers)])
  runs = f"{summary['task']}, runs: {len(summary['seeds'])}"
  return f"{runs}\n{printing.table(head, rows)}"


def finish_glue(
  output_dir: str, folders: Mapping[str, str], all_rows: bool = True
) -> None:
  """Prints the scores of all tasks, and writes the submission.

  `folders` has the folder of each task. The site requires predictions of all
  rows.
  """
  summaries = {name: read(folder) for name, folder in folders.items()}
  if len(folders) > 1 and all(summaries.values()):
    try:
      scores = {name: _score(name, found) for name, found in summaries.items()}
    except KeyError as error:
      raise ValueError(
        f"a {checkpoints.SUMMARY_FILE} below {output_dir} has no {error}: "
        "evaluate again."
      ) from error
    scores["average"] = float(np.mean(list(scores.values())))
    row = [f"{100 * score:.1f}" for score in scores.values()]
    print(printing.table(list(scores), [row]))
  if not all_rows:
    print("no submission: --max_eval_examples skips rows of the test files")
    return
  write_submission(
    os.path.join(output_dir, SUBMISSION_FOLDER),
    {
      name: os.path.join(checkpoints.run_folder(folder), run.PREDICTIONS_FOLDER)
      for name, folder in folders.items()
    },
  )


def _score(name: str, summary: _Summary) -> float:
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
