"""Runs: train, then evaluate and predict with the best weights."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Mapping, Optional, Sequence

import tensorflow as tf

from official_albert import checkpoints, distribution, files, runs, training
from official_albert.tasks import trained_run
from official_albert.tasks.common import finetuning_task

PREDICTIONS_FOLDER = "predictions"
# Prefix of its subfolders, which have the predictions of other checkpoints.
_STEP = "step_"


def _other_checkpoints(model_dir: str, count: int) -> dict[str, str]:
  """Returns the last `count` checkpoints besides the best, by folder name."""
  record = runs.read_best(model_dir)
  best = record["step"] if record else runs.newest_step(model_dir)
  steps = {
    runs.step_of(path): path for path in runs.list_checkpoints(model_dir)
  }
  steps.pop(best, None)
  last = sorted(steps, reverse=True)[:count]
  return {f"{_STEP}{step}": steps[step] for step in last}


class Runs:
  """Runs of one task that differ only in the seed.

  They share the model and the traced functions; see `training.Trainer`.
  """

  def __init__(self, strategy: tf.distribute.Strategy):
    """Creates no model yet; `strategy` has the devices."""
    self._strategy = strategy
    self._trainer: Optional[training.Trainer] = None
    self._model: Optional[tf.keras.Model] = None

  def train(
    self,
    task: finetuning_task.FinetuningTask,
    config: training.TrainConfig,
    settings: Mapping[str, Any],
    note: str,
    allow_changed_settings: bool = False,
  ) -> None:
    """Trains or resumes; writes checkpoints and `best/` to `config.model_dir`.

    `settings` go to run.json besides those of the task; `note` begins the log.
    """
    data = task.describe()
    if distribution.is_chief(self._strategy):
      trained_run.check_same_task(config.model_dir, data)
    settings = {**settings, **dataclasses.asdict(task.settings)}
    record = runs.Start(
      *(task.config, settings, data, *task.tokenizer_file),
      allow_changed_settings,
    )
    with training.open_report(config.model_dir, self._strategy) as report:
      report.note(note)
      if self._trainer:
        self._trainer.reset([task], config, report, record)
      else:
        self._trainer = training.Trainer(
          [task], config, self._strategy, report, record
        )
      self._trainer.run()

  def predict(
    self,
    task: finetuning_task.FinetuningTask,
    config: training.TrainConfig,
    eval_splits: Sequence[str],
    test_splits: Sequence[str],
    results_dir: str,
    num_checkpoints: int = 0,
    keep_results: bool = False,
  ) -> dict[str, dict[str, float]]:
    """Evaluates and predicts with the best weights in `config.model_dir`.

    It first replaces the predictions of other checkpoints by those of the last
    `num_checkpoints`, or of as many as there are. Returns the metrics of the
    labeled `eval_splits` with the best weights, with `keep_results` besides
    those of other splits from earlier. A split may be in both lists. With
    several workers, only the chief writes files.
    """
    splits = list(dict.fromkeys([*eval_splits, *test_splits]))
    folder = os.path.join(results_dir, PREDICTIONS_FOLDER)
    results: trained_run.Results = {}
    if keep_results:
      results = trained_run.read_results(results_dir)
    is_chief = distribution.is_chief(self._strategy)
    if is_chief and files.is_dir(folder):
      # An ensemble of step_* must not include those of an earlier command.
      for name in files.list_dir(folder):
        if name.startswith(_STEP):
          files.remove_tree(os.path.join(folder, name))
    others = _other_checkpoints(config.model_dir, num_checkpoints)
    if len(others) < num_checkpoints:
      print(
        f"warning: {config.model_dir} keeps {len(others)} checkpoints besides "
        f"the best, not {num_checkpoints}",
        flush=True,
      )
    for name, checkpoint in (*others.items(), ("", "")):
      weights = f" with {name}" if name else ""
      print(f"predicting {', '.join(splits)}{weights}", flush=True)
      self._load(task, config.model_dir, checkpoint)
      for split in splits:
        data = task.dataset(split, config.eval_batch_size)
        answers = task.answers(split, self._to_arrays(data))
        if split in eval_splits:
          # Before the files are written: SQuAD 2.0 chooses its threshold here.
          results[split] = task.score_answers(split, answers)
        if not is_chief:
          continue
        target = os.path.join(folder, name) if name else folder
        files.make_folder(target)
        paths = task.write_answers(split, answers, target)
        if name:
          continue
        if eval_splits and split == eval_splits[-1]:
          trained_run.write_results(results_dir, results)
        if split in test_splits:
          for path in paths:
            print(f"wrote {path}", flush=True)
    return results

  def _load(
    self, task: finetuning_task.FinetuningTask, model_dir: str, checkpoint: str
  ) -> None:
    """Reads weights of a run into the model; see `runs.find_prefix`."""
    checkpoint = runs.find_prefix(model_dir, checkpoint)
    if self._model is None:
      if self._trainer:
        self._model = self._trainer.model
      else:  # Nothing was trained.
        with self._strategy.scope():
          self._model = task.build_model()
      self._to_arrays = training.make_prediction(
        task, self._model, self._strategy
      )
    report = checkpoints.warm_start(self._model, checkpoint)
    if report.missing:
      raise ValueError(
        f"{checkpoint} is not a checkpoint of {task.name}: it lacks "
        f"{report.missing[0]}."
      )
