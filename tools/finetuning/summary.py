"""What several runs say together: median, best, spread; GLUE's table.

The paper reports medians over five runs (arXiv 1909.11942, section 4.2).
"""

from __future__ import annotations

import os
import statistics
from typing import Any, Mapping, Optional, Sequence

from official_albert import checkpoints
from tasks import common
from tasks.classification import glue
from tools.finetuning import jobs as finetuning_jobs
from tools.finetuning import run as finetuning_run
from tools.finetuning import trained_run

SUBMISSION_FOLDER = "submission"
_LOWEST_IS_BEST = ("mean_squared_error", "missing")

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
      name: _describe_values(name, [r[split][name] for r in results.values()])
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


def _describe_values(name: str, values: Sequence[float]) -> dict[str, float]:
  order = sorted(values, reverse=name not in _LOWEST_IS_BEST)
  return {
    "median": statistics.median(values),
    "best": order[0],
    "worst": order[-1],
    "spread": statistics.stdev(values) if len(values) > 1 else 0.0,
  }


def write(folder: str, summary: Mapping[str, Any]) -> None:
  """Writes `summary.json` in one step."""
  os.makedirs(folder, exist_ok=True)
  trained_run.write_json(
    os.path.join(folder, checkpoints.SUMMARY_FILE), summary
  )


def read(folder: str) -> Optional[dict[str, Any]]:
  """What `write` wrote; None if there is none."""
  return trained_run.read_json(os.path.join(folder, checkpoints.SUMMARY_FILE))


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


def finish_glue(
  output_dir: str, names: Sequence[str], all_rows: bool = True
) -> None:
  """Prints the table of all tasks, and makes the submission file.

  Args:
    output_dir: with a folder for each task, or of the one task.
    names: the tasks.
    all_rows: whether the test files were predicted to their ends; the site
      takes no less.
  """
  folders = {
    name: os.path.join(output_dir, name) if len(names) > 1 else output_dir
    for name in names
  }
  summaries = {name: read(folder) for name, folder in folders.items()}
  if len(names) > 1 and all(summaries.values()):
    print(table(summaries))
  if not all_rows:
    print("no submission: --max_eval_examples leaves rows out")
    return
  write_submission(
    os.path.join(output_dir, SUBMISSION_FOLDER),
    {
      name: os.path.join(
        checkpoints.run_folder(folder), finetuning_run.PREDICTIONS_FOLDER
      )
      for name, folder in folders.items()
    },
  )


def write_submission(folder: str, predictions: Mapping[str, str]) -> None:
  """Writes GLUE's official files of what is predicted, and their zip.

  Args:
    folder: of the submission; files of other tasks in it go into the zip too.
    predictions: of each task the folder with its tables of probabilities.
  """
  written = False
  for name, source in predictions.items():
    task = glue.get_glue_task(name)
    for split in task.test_splits:
      path = os.path.join(source, f"{split}{common.PROBABILITIES_SUFFIX}")
      if os.path.exists(path):
        said = common.read_probabilities(path)
        glue.write_predictions(folder, task, split, said.ids, said.predictions)
        written = True
  if written:
    print(glue.write_zip(folder).describe())


def table(summaries: Mapping[str, Any]) -> str:
  """Scores of the nine tasks and their average, in percent, as Markdown."""
  scores = {}
  for name, summary in summaries.items():
    medians = {
      split: {metric: v["median"] for metric, v in values.items()}
      for split, values in summary["splits"].items()
    }
    scores[name] = glue.task_score(glue.get_glue_task(name), medians)
  scores["average"] = glue.glue_average(scores)
  return (
    f"| {' | '.join(scores)} |\n|{'---|' * len(scores)}\n"
    f"| {' | '.join(f'{100 * score:.1f}' for score in scores.values())} |"
  )
