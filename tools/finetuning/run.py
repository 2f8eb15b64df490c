"""One run: trains, then evaluates and predicts with the best weights."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Callable, Mapping, Sequence

import tensorflow as tf

from official_albert import checkpoints, distribution, training
from tasks import common
from tools.finetuning import trained_run

PREDICTIONS_FOLDER = "predictions"


def _record(
  task: common.FinetuningTask, settings: Mapping[str, Any]
) -> tuple[Any, Any, Any]:
  """Returns the model, the settings and the data for run.json."""
  settings = {**settings, **dataclasses.asdict(task.settings)}
  return task.config, settings, task.describe()


def check_folder(
  task: common.FinetuningTask,
  config: training.TrainConfig,
  settings: Mapping[str, Any],
  allow_changed_settings: bool = False,
) -> None:
  """Compares a run with the one in its folder; writes nothing.

  Args:
    task: the task with the splits of training and evaluation.
    config: the training settings, including the folder.
    settings: settings for run.json besides those of the task.
    allow_changed_settings: see `training.check`.
  """
  trained_run.check_same_task(config.model_dir, task.describe())
  training.check(
    config.model_dir,
    *_record(task, settings),
    training.newest_step(config.model_dir),
    training.is_finished(config),
    allow_changed_settings,
  )


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


def run(
  make_task: Callable[[Sequence[str]], common.FinetuningTask],
  config: training.TrainConfig,
  strategy: tf.distribute.Strategy,
  *,
  train_splits: Sequence[str],
  eval_splits: Sequence[str],
  test_splits: Sequence[str],
  settings: Mapping[str, Any],
  notes: Sequence[str] = (),
  allow_changed_settings: bool = False,
  results_dir: str = "",
) -> dict[str, dict[str, float]]:
  """Trains or resumes, evaluates and predicts.

  Training writes checkpoints and `best/` to `config.model_dir`. With several
  workers, only the chief writes files.

  Args:
    make_task: maps the required splits to the task.
    config: the training settings, including the folder of the run.
    strategy: the devices.
    train_splits: the split to train on and the one that selects the best
      checkpoint; empty to skip training.
    eval_splits: the labeled splits to evaluate at the end.
    test_splits: the splits to predict.
    settings: settings for run.json besides those of the task.
    notes: the first lines of the log.
    allow_changed_settings: see `training.check`.
    results_dir: the folder for metrics and predictions; "" is the folder of the
      run.

  Returns:
    The metrics of `eval_splits`.
  """
  held_out = [*eval_splits, *test_splits]
  task = make_task(list(dict.fromkeys([*train_splits, *held_out])))
  is_chief = distribution.is_chief(strategy)
  if train_splits:
    if is_chief:
      trained_run.check_same_task(config.model_dir, task.describe())
    training.train_in_folder(
      [task],
      config,
      strategy,
      _record(task, settings),
      task.tokenizer_file,
      notes,
      allow_changed_settings,
    )
  if not held_out:
    return {}
  model = _load(task, config.model_dir, strategy)
  predict = training.make_prediction(task, model, strategy)
  results_dir = results_dir or config.model_dir
  folder, results = os.path.join(results_dir, PREDICTIONS_FOLDER), {}
  for split in held_out:
    predictions = predict(task.dataset(split, config.eval_batch_size))
    if split in eval_splits:
      # Before the files are written: SQuAD 2.0 chooses its threshold here.
      results[split] = task.score_split(split, predictions)
    if not is_chief:
      continue
    os.makedirs(folder, exist_ok=True)
    paths = task.write_predictions(split, predictions, folder)
    if split in eval_splits:
      if split == eval_splits[-1]:
        trained_run.write_results(results_dir, results)
    else:
      for path in paths:
        print(f"wrote {path}", flush=True)
  return results


def _load(
  task: common.FinetuningTask, model_dir: str, strategy: tf.distribute.Strategy
) -> tf.keras.Model:
  """Returns the model with the best weights of a run."""
  checkpoint = find_weights(model_dir)
  with strategy.scope():
    model = task.build_model()
  report = training.warm_start(model, checkpoint)
  if report.missing:
    raise ValueError(
      f"{checkpoint} is not a checkpoint of {task.name}: it lacks "
      f"{report.missing[0]}."
    )
  return model
