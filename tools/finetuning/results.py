"""Results of runs: predictions with the best weights, summaries, GLUE's table.

arXiv 1909.11942, section 4.2, reports medians over five runs.
"""

from __future__ import annotations

import math
import os
from typing import Any, Mapping, Optional, Sequence

import numpy as np
import tensorflow as tf

from official_albert import checkpoints, distribution, files, runs, training
from official_albert.tasks import squad
from official_albert.tasks.classification import glue
from official_albert.tasks.common import finetuning_task
from official_albert.tools.cli import printing
from official_albert.tools.finetuning import report

PREDICTIONS_FOLDER = "predictions"
_LOWEST_IS_BEST = ("mean_squared_error",)
_NO_RESULTS = ("total", "thresh", "threshold", "by_characters")
_ADVICE = (
  "for a better model, try other seeds (--seeds=5), a lower --learning_rate, "
  "more --num_train_epochs, more rows, or an encoder that was trained longer"
)
_STATISTICS = ("median", "best", "worst", "spread")


def predict(
  task: finetuning_task.FinetuningTask,
  config: training.TrainConfig,
  strategy: tf.distribute.Strategy,
  trainer: Optional[training.Trainer],
  eval_splits: Sequence[str],
  test_splits: Sequence[str],
) -> runs.Results:
  """Evaluates and predicts with the best weights in `config.model_dir`.

  Returns the metrics of the labeled `eval_splits`. Without the task's own
  `eval_split` among them, which the training evaluates, the earlier metrics of
  other splits stay. A split may be in both lists. With several workers, only
  the chief writes files. A trainer's model and graph are used; None creates
  them.
  """
  folder = config.model_dir
  if trainer:
    model, to_arrays = trainer.model, trainer.predict
  else:
    with strategy.scope():
      model = task.build_model()
    to_arrays = training.Evaluation(task, model, strategy, config).predict
  checkpoint = runs.find_prefix(folder)
  if missing := checkpoints.warm_start(model, checkpoint).missing:
    raise ValueError(
      f"{checkpoint} is not a checkpoint of {task.name}: it lacks {missing[0]}."
    )
  results: runs.Results = {}
  if eval_splits and task.eval_split not in eval_splits:
    results = runs.read_results(folder)
  predictions = os.path.join(folder, PREDICTIONS_FOLDER)
  for split in dict.fromkeys([*eval_splits, *test_splits]):
    print(f"predicting {split}", flush=True)
    data = task.dataset(split, config.eval_batch_size)
    # What the training has evaluated on is traced.
    arrays = to_arrays(data, bool(trainer) and split in eval_splits)
    numbers = (x for x in arrays.values() if x.dtype.kind == "f")
    if not all(np.isfinite(x).all() for x in numbers):
      raise ValueError(
        f"{checkpoint} predicts {split} with numbers that are not finite: the "
        "model has diverged; use an earlier checkpoint."
      )
    answers = task.answers(split, arrays)
    if split in eval_splits:
      # Before the files are written: SQuAD 2.0 chooses its threshold here.
      results[split] = task.score_answers(split, answers)
      print(f"{task.name} {split}: {shown(results[split])}", flush=True)
    if distribution.is_chief(strategy):
      files.make_folder(predictions)
      for path in task.write_answers(split, answers, predictions):
        print(f"wrote {path}", flush=True)
      if split in eval_splits and (decided := task.decided(split, answers)):
        report.write(folder, split, *decided)
      if split in eval_splits[-1:]:
        runs.write_results(folder, results)
  return results


def shown(metrics: Mapping[str, float]) -> str:
  """Returns metrics in a line for the log, without thresholds of labels."""
  items = [x for x in metrics.items() if not x[0].endswith(runs.THRESHOLD)]
  return ", ".join(f"{name} {value:.4g}" for name, value in items)


def summarize(
  task: finetuning_task.FinetuningTask,
  results: Mapping[int, Mapping[str, Mapping[str, float]]],
  folders: Mapping[int, str],
  metric: str,
  best_is: str,
  with_majority: bool = False,
) -> dict[str, Any]:
  """Returns the content of `summary.json`.

  It has median, best, worst and standard deviation (0 for one run) of each
  metric of the splits of all runs, and the best seed. `results` and `folders`
  are by seed. `metric`, which is best "highest" or "lowest", chooses the seed
  unless the runs' records name another that chose their best checkpoints; it
  may be a loss. `with_majority` adds the metrics of the most frequent answer,
  which needs the training data.
  """
  records: dict[int, Any] = {
    seed: runs.read_best(folder) or {} for seed, folder in folders.items()
  }
  first = next(iter(records.values()))
  metric, best_is = first.get("metric", metric), first.get("best_is", best_is)
  goodness = {}
  for seed, record in records.items():
    values = {**record.get("values", {}), **results[seed][task.eval_split]}
    value = values.get(metric, math.nan) * (-1 if best_is == "lowest" else 1)
    goodness[seed] = -math.inf if math.isnan(value) else value
  best = max(goodness, key=lambda seed: goodness[seed])
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
    "best_folder": os.path.basename(folders[best]) if len(folders) > 1 else "",
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


def describe(summary: Mapping[str, Any]) -> str:
  """Returns the summary as a table for a terminal, with units of SQuAD."""
  is_squad = summary["task"].startswith("squad")
  head, rows = ["split", "metric", *_STATISTICS], []
  if "majority" in summary:
    head.append("most frequent answer")
  for split, metrics in summary["splits"].items():
    majority = summary.get("majority", {}).get(split, {})
    for name, values in metrics.items():
      numbers = [values[statistic] for statistic in _STATISTICS]
      if name in majority:
        numbers.append(majority[name])
      unit = " (%)" if is_squad and name.endswith(squad.IN_PERCENT) else ""
      if not name.endswith(_NO_RESULTS):  # summary.json has them.
        cells = [f"{number:.4g}" for number in numbers]
        rows.append([split, f"{name}{unit}", *cells])
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
      if "mean_squared_error" in constant:
        name, sign = "mean_squared_error", -1
      # SQuAD's own threshold is for other data; at 0, the model may seem bad.
      metric = f"best_{name}" if f"best_{name}" in values else name
      if not name or values.get("accuracy") == 1:
        continue  # All labels may be the same.
      if not sign * values[metric] > sign * constant[name]:  # Or NaN.
        lines.append(
          f"warning: {summary['task']}, seed {seed}: the model is no better on "
          f"{split} than one answer to every row, with {metric} "
          f"{values[metric]:.4g} instead of {constant[name]:.4g}"
        )
  return [*lines, _ADVICE] if lines else []


def describe_glue(summaries: Mapping[str, Mapping[str, Any]]) -> str:
  """Returns a table of the scores of all tasks, given their summaries.

  A score is the mean of the median metrics of dev splits.
  """
  scores = {
    name: np.mean(
      [
        summaries[name]["splits"][split][metric]["median"]
        for split in task.dev_splits
        for metric in task.metrics
      ]
    )
    for name, task in glue.GLUE_TASKS.items()
  }
  scores["average"] = np.mean(list(scores.values()))
  row = [f"{100 * score:.1f}" for score in scores.values()]
  return printing.table(list(scores), [row])
