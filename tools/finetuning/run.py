"""One run: trains, then evaluates and predicts with the best weights."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Callable, Mapping, Sequence

import tensorflow as tf

from official_albert import checkpoints, distribution, training
from official_albert.training import TrainConfig
from tasks import common
from tasks.common import Predictions
from tools.finetuning import trained_run

PREDICTIONS_FOLDER = "predictions"


@dataclasses.dataclass(frozen=True)
class Devices:
  """The devices of a run."""

  strategy: tf.distribute.Strategy
  precision: str

  @property
  def is_chief(self) -> bool:
    """Whether this process writes files: one of several workers does."""
    return distribution.is_chief(self.strategy)


def check_folder(
  task: common.FinetuningTask,
  config: TrainConfig,
  devices: Devices,
  record: Mapping[str, Any],
  allow_changed_settings: bool = False,
) -> list[str]:
  """Compares a run with what is in its folder; writes nothing.

  Args:
    task: see `train`.
    config: see `train`.
    devices: see `train`; only the chief checks.
    record: see `train`.
    allow_changed_settings: see `training.check`.

  Returns:
    What has changed since the folder's last start, see `training.check`.

  Raises:
    ValueError: the folder has a run of another task, or see `training.check`.
  """
  if not devices.is_chief:
    return []
  trained_run.check_same_task(config.model_dir, task.describe())
  return training.check(
    *_record(task, config, record),
    training.newest_step(config.model_dir),
    training.is_finished(config),
    allow_changed_settings,
  )


def _record(
  task: common.FinetuningTask,
  config: TrainConfig,
  settings: Mapping[str, Any],
) -> tuple[Any, ...]:
  """Returns the arguments of `training.write_run`."""
  settings = {**settings, **dataclasses.asdict(task.settings)}
  return config.model_dir, task.config, settings, task.describe()


def train(
  task: common.FinetuningTask,
  config: TrainConfig,
  devices: Devices,
  record: Mapping[str, Any],
  notes: Sequence[str] = (),
  allow_changed_settings: bool = False,
) -> None:
  """Trains or resumes; leaves checkpoints and `best/` in `config.model_dir`.

  Args:
    task: with the splits of training and evaluation.
    config: settings, with the run's folder.
    devices: to compute on.
    record: settings for run.json, besides the task's.
    notes: first lines of the log.
    allow_changed_settings: see `training.check`.

  Raises:
    ValueError: see `check_folder` and `training.train`.
    OSError: see `training.train`.
  """
  strategy = devices.strategy
  training.check_batch_sizes(config, strategy.num_replicas_in_sync)
  changes = check_folder(task, config, devices, record, allow_changed_settings)

  def write_record() -> None:
    if devices.is_chief:
      training.write_run(*_record(task, config, record))
      training.copy_tokenizer(*task.tokenizer_file, config.model_dir)

  with training.make_reporter(strategy, config.model_dir) as report:
    for note in notes:
      report.note(note)
    for change in changes:
      report.note(f"warning: {change}; the resumed run is not the same run.")
    with distribution.naming_lost_workers(strategy):
      training.train([task], config, strategy, report, write_record)


def find_weights(model_dir: str, checkpoint: str = "") -> str:
  """Returns the prefix of a run's checkpoint, see `checkpoints.find_prefix`.

  Raises:
    FileNotFoundError: there is no such checkpoint.
  """
  try:
    return checkpoints.find_prefix(model_dir, checkpoint)
  except FileNotFoundError as error:
    if checkpoint:
      raise
    raise FileNotFoundError(
      f"{model_dir} has no fine-tuned checkpoint: train first, with --do_train."
    ) from error


def load_predictor(
  task: common.FinetuningTask, model_dir: str, devices: Devices, batch_size: int
) -> Callable[[str], Predictions]:
  """Loads a run's weights; returns a function that predicts a split.

  Args:
    task: defines the model.
    model_dir: the run's folder.
    devices: to compute on.
    batch_size: examples of a batch.

  Raises:
    FileNotFoundError: the run has no checkpoint.
    ValueError: the checkpoint is of another model.
  """
  checkpoint = find_weights(model_dir)
  with devices.strategy.scope():
    model = task.build_model()
  report = training.warm_start(model, checkpoint)
  if report.missing:
    raise ValueError(
      f"{checkpoint} is not a checkpoint of {task.name}: it lacks "
      f"{report.missing[0]}."
    )
  predict = training.make_prediction(task, model, devices.strategy)
  return lambda split: predict(task.dataset(split, batch_size))


def run(
  make_task: Callable[[Sequence[str]], common.FinetuningTask],
  config: TrainConfig,
  devices: Devices,
  *,
  train_splits: Sequence[str],
  eval_splits: Sequence[str],
  test_splits: Sequence[str],
  record: Mapping[str, Any],
  notes: Sequence[str] = (),
  note: Callable[[str], None] = print,
  allow_changed_settings: bool = False,
  results_dir: str = "",
) -> dict[str, dict[str, float]]:
  """Trains, evaluates and predicts; returns the metrics of `eval_splits`.

  Args:
    make_task: maps the splits that are needed to the task.
    config: settings of the training, with the run's folder.
    devices: to compute on.
    train_splits: the split to train on and the one that chooses the best
      checkpoint; empty to skip training.
    eval_splits: labeled splits to evaluate at the end.
    test_splits: splits to predict.
    record: settings for run.json.
    notes: first lines of the training's log.
    note: called with lines about what was written.
    allow_changed_settings: see `training.check`.
    results_dir: for metrics and predictions; "": the run's folder.

  Raises:
    ValueError, OSError: the data, a setting or a checkpoint is missing or
      invalid.
  """
  wanted = [*eval_splits, *test_splits]
  task = make_task(list(dict.fromkeys([*train_splits, *wanted])))
  if train_splits:
    train(task, config, devices, record, notes, allow_changed_settings)
  if not wanted:
    return {}
  results_dir = results_dir or config.model_dir
  predict = load_predictor(
    task, config.model_dir, devices, config.eval_batch_size
  )

  def write(split: str, predictions: Predictions) -> list[str]:
    if not devices.is_chief:
      return []
    folder = os.path.join(results_dir, PREDICTIONS_FOLDER)
    os.makedirs(folder, exist_ok=True)
    return task.write_predictions(split, predictions, folder)

  results = {}
  for split in eval_splits:
    predictions = predict(split)
    # Before the files are written: SQuAD 2.0 chooses its threshold here.
    results[split] = task.score_split(split, predictions)
    write(split, predictions)
  if results and devices.is_chief:
    trained_run.write_results(results_dir, results)
  for split in test_splits:
    for path in write(split, predict(split)):
      note(f"wrote {path}")
  return results
