"""Runs: train, then evaluate and predict with the best weights."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Mapping, Optional, Sequence

import tensorflow as tf

from official_albert import checkpoints, distribution, files, training
from tasks import common
from tools.finetuning import trained_run

PREDICTIONS_FOLDER = "predictions"


def find_weights(model_dir: str, checkpoint: str = "") -> str:
  """Returns the prefix of a run's checkpoint; see `checkpoints.find_prefix`."""
  try:
    return checkpoints.find_prefix(model_dir, checkpoint)
  except FileNotFoundError as error:
    if checkpoint:
      raise
    raise FileNotFoundError(
      f"{model_dir} has no fine-tuned checkpoint: train first, with --do_train."
    ) from error


class Runs:
  """Runs of one task that differ only in the seed.

  They share the model and the traced functions; see `training.Program`.
  """

  def __init__(self, strategy: tf.distribute.Strategy):
    """Creates no model yet; `strategy` has the devices."""
    self._strategy = strategy
    self._program = training.Program(strategy)
    self._model: Optional[tf.keras.Model] = None

  def train(
    self,
    task: common.FinetuningTask,
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
    training.train_in_folder(
      [task],
      config,
      self._strategy,
      (task.config, settings, data),
      task.tokenizer_file,
      [note],
      allow_changed_settings,
      self._program,
    )

  def predict(
    self,
    task: common.FinetuningTask,
    config: training.TrainConfig,
    eval_splits: Sequence[str],
    test_splits: Sequence[str],
    results_dir: str,
  ) -> dict[str, dict[str, float]]:
    """Evaluates and predicts with the best weights in `config.model_dir`.

    Returns the metrics of the labeled `eval_splits`. With several workers, only
    the chief writes files.
    """
    splits = (*eval_splits, *test_splits)
    print(f"predicting {', '.join(splits)}", flush=True)
    self._load(task, config.model_dir)
    folder, results = os.path.join(results_dir, PREDICTIONS_FOLDER), {}
    for split in splits:
      predictions = self._to_arrays(task.dataset(split, config.eval_batch_size))
      if split in eval_splits:
        # Before the files are written: SQuAD 2.0 chooses its threshold here.
        results[split] = task.score_split(split, predictions)
      if not distribution.is_chief(self._strategy):
        continue
      files.make_folder(folder)
      paths = task.write_predictions(split, predictions, folder)
      if split in eval_splits:
        if split == eval_splits[-1]:
          trained_run.write_results(results_dir, results)
      else:
        for path in paths:
          print(f"wrote {path}", flush=True)
    return results

  def _load(self, task: common.FinetuningTask, model_dir: str) -> None:
    """Reads the best weights of a run into the model."""
    checkpoint = find_weights(model_dir)
    if self._model is None:
      self._model = self._program.model
      if self._model is None:  # Nothing was trained.
        with self._strategy.scope():
          self._model = task.build_model()
      self._to_arrays = training.make_prediction(
        task, self._model, self._strategy
      )
    report = training.warm_start(self._model, checkpoint)
    if report.missing:
      raise ValueError(
        f"{checkpoint} is not a checkpoint of {task.name}: it lacks "
        f"{report.missing[0]}."
      )
