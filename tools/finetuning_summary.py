"""What several runs say together: median, best, spread; GLUE's table.

The paper reports medians over five runs (arXiv 1909.11942, section 4.2).
"""

from __future__ import annotations

import json
import os
import statistics
from typing import Any, Mapping, Sequence

from official_albert import probability_table
from tasks.glue import benchmark, metrics, submission
from tools import finetuning_jobs, finetuning_run

SUMMARY_FILE = "summary.json"
SUBMISSION_FOLDER = "submission"

Results = Mapping[str, Mapping[str, float]]


def summarize(
  job: finetuning_jobs.Job,
  results: Mapping[int, Results],
  with_majority: bool,
) -> dict[str, Any]:
  """Of each metric of each split the median, the best and the spread.

  Args:
    job: the task.
    results: of each seed the metrics of each split.
    with_majority: whether the training data is there to find the commonest
      answer, which every result should beat.

  Returns:
    JSON values. `spread` is the standard deviation of the runs, 0 of a single
    one; `best_seed` is that whose `best_metric` of the first split is highest.
  """
  first = job.eval_splits[0]
  best = max(results, key=lambda seed: results[seed][first][job.best_metric])
  splits = {}
  for split in job.eval_splits:
    splits[split] = {
      name: _describe_values([r[split][name] for r in results.values()])
      for name in results[best][split]
    }
  summary = {
    "task": job.name,
    "best_metric": job.best_metric,
    "best_seed": best,
    "seeds": {str(seed): dict(values) for seed, values in results.items()},
    "splits": splits,
  }
  if with_majority:
    summary["majority"] = {
      split: job.majority(split) for split in job.eval_splits
    }
  return summary


def _describe_values(values: Sequence[float]) -> dict[str, float]:
  return {
    "median": statistics.median(values),
    "best": max(values),
    "worst": min(values),
    "spread": statistics.stdev(values) if len(values) > 1 else 0.0,
  }


def write(folder: str, summary: Mapping[str, Any]) -> None:
  """Writes `summary.json` in one step."""
  os.makedirs(folder, exist_ok=True)
  path = os.path.join(folder, SUMMARY_FILE)
  with open(f"{path}.tmp", "w", encoding="utf-8") as file:
    json.dump(summary, file, indent=1)
    file.write("\n")
  os.replace(f"{path}.tmp", path)


def describe(summary: Mapping[str, Any]) -> str:
  """The summary as lines for a terminal."""
  runs = len(summary["seeds"])
  lines = [f"{summary['task']}: {runs} run{'s' if runs > 1 else ''}"]
  for split, values in summary["splits"].items():
    majority = summary.get("majority", {}).get(split, {})
    for name, value in values.items():
      if name.endswith(("total", "thresh", "threshold")):
        continue  # No results: they are in the file.
      line = f"  {split} {name}: {value['median']:.4g}"
      if runs > 1:
        line = (
          f"  {split} {name}: median {value['median']:.4g}, best "
          f"{value['best']:.4g}, worst {value['worst']:.4g}, standard "
          f"deviation {value['spread']:.2g}"
        )
      if name in majority:
        line += f" (commonest answer {majority[name]:.4g})"
      lines.append(line)
  return "\n".join(lines)


def finish_glue(output_dir: str, names: Sequence[str]) -> None:
  """Prints the table of all tasks, and makes the submission file.

  Args:
    output_dir: with a folder for each task, or of the one task.
    names: the tasks.
  """
  folders = {
    name: os.path.join(output_dir, name) if len(names) > 1 else output_dir
    for name in names
  }
  summaries = {}
  for name, folder in folders.items():
    path = os.path.join(folder, SUMMARY_FILE)
    if os.path.exists(path):
      with open(path, encoding="utf-8") as file:
        summaries[name] = json.load(file)
  if len(names) > 1 and len(summaries) == len(names):
    print(table(summaries))
  folder = os.path.join(output_dir, SUBMISSION_FOLDER)
  written = [
    submission.write_predictions(
      folder,
      benchmark.get_task(name),
      split,
      predicted.ids,
      predicted.predictions,
    )
    for (name, split), predicted in read_tables(
      {
        name: best_folder(folder, summaries.get(name))
        for name, folder in folders.items()
      }
    ).items()
  ]
  if written:
    packed = submission.write_zip(folder)
    print(f"wrote {packed.path}")
    if packed.missing:
      print(f"  without {', '.join(packed.missing)}")


def best_folder(folder: str, summary: Any) -> str:
  """The folder of the run with the best result."""
  if summary and len(summary["seeds"]) > 1:
    return os.path.join(folder, f"seed_{summary['best_seed']}")
  return folder


def table(summaries: Mapping[str, Any]) -> str:
  """Scores of the nine tasks and their average, in percent, as Markdown."""
  scores = {}
  for name, summary in summaries.items():
    medians = {
      split: {metric: v["median"] for metric, v in values.items()}
      for split, values in summary["splits"].items()
    }
    scores[name] = metrics.task_score(benchmark.get_task(name), medians)
  scores["average"] = metrics.glue_average(scores)
  return (
    f"| {' | '.join(scores)} |\n|{'---|' * len(scores)}\n"
    f"| {' | '.join(f'{100 * score:.1f}' for score in scores.values())} |"
  )


def read_tables(
  folders: Mapping[str, str],
) -> dict[tuple[str, str], probability_table.ProbabilityTable]:
  """The tables of test predictions that are there, by task and split."""
  tables = {}
  for name, folder in folders.items():
    for split in benchmark.get_task(name).test_splits:
      path = os.path.join(
        folder,
        finetuning_run.PREDICTIONS_FOLDER,
        f"{split}{probability_table.SUFFIX}",
      )
      if os.path.exists(path):
        tables[name, split] = probability_table.read(path)
  return tables
