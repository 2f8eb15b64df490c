"""The official metrics of each GLUE task, its score, and the average of nine.

A task's score is the mean of its metrics, MNLI's the mean of matched and
mismatched accuracy, and GLUE's the mean of the nine scores: so does the site
with the test sets (gluebenchmark.com), and so does this module with any splits.
The diagnostics (AX) have no part in it.

The ALBERT paper gives no such average over the dev sets, where WNLI has no
number; its Avg columns are over five other ones: the mean of F1 and EM of
SQuAD 1.1, that of SQuAD 2.0, MNLI, SST-2 and RACE. (For albert_base v2
((90.2 + 83.2) / 2 + (82.1 + 79.3) / 2 + 84.6 + 92.9 + 66.8) / 5 = 82.3.) Its
dev results of GLUE are medians over five runs.
"""

from __future__ import annotations

from typing import Mapping

import numpy as np

from tasks import common
from tasks.classification.glue import benchmark


def evaluate_glue(
  task: benchmark.GlueTask, predictions: np.ndarray, labels: np.ndarray
) -> dict[str, float]:
  """The metrics of one split, in the official order, as fractions.

  Args:
    task: which metrics.
    predictions: <int>[N] positions in `task.labels`, <float>[N] of STS-B.
    labels: the same of the file.

  Raises:
    ValueError: the arrays don't fit each other, or hold no classes of `task`.
  """
  if not task.is_regression:
    top = max(np.max(predictions, initial=0), np.max(labels, initial=0))
    if top >= len(task.labels):
      raise ValueError(
        f"{task.name} has {len(task.labels)} classes, got class {top}."
      )
  return {
    name: getattr(common, name)(predictions, labels) for name in task.metrics
  }


def task_score(
  task: benchmark.GlueTask, results: Mapping[str, Mapping[str, float]]
) -> float:
  """One number for a task: over splits, the mean of the mean of its metrics.

  Args:
    task: whose.
    results: from split to what `evaluate` says, for each split of
      `task.dev_splits`.

  Raises:
    ValueError: a split or a metric is missing, or not a dev split.
  """
  if set(results) != set(task.dev_splits):
    raise ValueError(
      f"the score of {task.name} is made of {', '.join(task.dev_splits)}; got "
      f"{', '.join(results) or 'nothing'}."
    )
  scores = []
  for split, values in results.items():
    missing = [name for name in task.metrics if name not in values]
    if missing:
      raise ValueError(f"{task.name}, {split}: no {' and no '.join(missing)}.")
    scores.append(np.mean([values[name] for name in task.metrics]))
  return float(np.mean(scores))


def glue_average(scores: Mapping[str, float]) -> float:
  """The mean of the scores of all nine tasks, from names to `task_score`.

  Raises:
    ValueError: a task is missing, for a mean of fewer is no GLUE average.
  """
  missing = [name for name in benchmark.GLUE_TASKS if name not in scores]
  if missing:
    raise ValueError(
      f"GLUE's average is over nine tasks; no score of {', '.join(missing)}."
    )
  return float(np.mean([scores[name] for name in benchmark.GLUE_TASKS]))
