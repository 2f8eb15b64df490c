"""One fine-tuning run: train, take the best weights, evaluate, predict."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any, Callable, Mapping, Sequence

import tensorflow as tf

from official_albert import (
  best_checkpoint,
  checkpoints,
  multi_worker,
  prediction,
  run_record,
  silent_reporting,
  training,
)
from official_albert.train_config import TrainConfig
from tasks import finetuning_task
from tools import training_flags

RESULTS_FILE = "eval_results.json"
PREDICTIONS_FOLDER = "predictions"


@dataclasses.dataclass(frozen=True)
class Devices:
  """What runs compute on."""

  strategy: tf.distribute.Strategy
  precision: str


def train(
  task: finetuning_task.FinetuningTask,
  config: TrainConfig,
  devices: Devices,
  notes: Sequence[str] = (),
) -> None:
  """Trains, or goes on; leaves checkpoints and `best/` in `config.model_dir`.

  Raises:
    ValueError, OSError: see `training.train`.
  """
  strategy = devices.strategy
  training.check_batch_sizes(config, strategy.num_replicas_in_sync)
  settings = {
    **training_flags.settings(config, strategy, devices.precision),
    **dataclasses.asdict(task.settings),
  }
  is_chief, changes = multi_worker.is_chief(strategy), []
  if is_chief:
    changes = run_record.write(
      config.model_dir,
      task.config,
      settings,
      task.describe(),
      checkpoints.newest_step(config.model_dir),
    )
    run_record.copy_tokenizer(*task.tokenizer_file, config.model_dir)
  with silent_reporting.make_reporter(strategy, config.model_dir) as report:
    for note in notes:
      report.note(note)
    for change in changes:
      report.note(f"warning: {change}; the resumed run is not the same run.")
    with multi_worker.naming_lost_workers(strategy):
      training.train([task], config, strategy, report)


def find_weights(model_dir: str) -> str:
  """The best checkpoint of a run, else its latest.

  Raises:
    FileNotFoundError: there is none.
  """
  record = best_checkpoint.read(model_dir)
  if record:
    return best_checkpoint.prefix_of(model_dir, record)
  paths = checkpoints.list_checkpoints(model_dir)
  if not paths:
    raise FileNotFoundError(
      f"{model_dir} holds no fine-tuned checkpoint: train first, with "
      "--do_train."
    )
  return paths[-1]


class Predictor:
  """A task's model with the weights of a run."""

  def __init__(
    self,
    task: finetuning_task.FinetuningTask,
    model_dir: str,
    devices: Devices,
    batch_size: int,
  ):
    """Reads the weights.

    Raises:
      FileNotFoundError: the run has no checkpoint.
      ValueError: it is of another model.
    """
    self._task = task
    self._model_dir = model_dir
    self._batch_size = batch_size
    self.checkpoint = find_weights(model_dir)
    with devices.strategy.scope():
      model = task.build_model()
    report = checkpoints.warm_start(model, self.checkpoint)
    if report.missing:
      raise ValueError(
        f"{self.checkpoint} is no checkpoint of {task.name}: it lacks "
        f"{report.missing[0]}."
      )
    self._predict = prediction.make_prediction(task, model, devices.strategy)

  def evaluate(self, splits: Sequence[str]) -> dict[str, dict[str, float]]:
    """Official metrics of labelled splits; their predictions are written."""
    results = {}
    for split in splits:
      predictions = self._predict(self._task.dataset(split, self._batch_size))
      results[split] = self._task.score_split(split, predictions)
      self._write(split, predictions)
    return results

  def predict(self, splits: Sequence[str]) -> list[str]:
    """Writes the predictions of splits; returns the files."""
    paths = []
    for split in splits:
      predictions = self._predict(self._task.dataset(split, self._batch_size))
      paths += self._write(split, predictions)
    return paths

  def _write(self, split: str, predictions) -> list[str]:
    folder = os.path.join(self._model_dir, PREDICTIONS_FOLDER)
    os.makedirs(folder, exist_ok=True)
    return self._task.write_predictions(split, predictions, folder)


def write_results(model_dir: str, results: Mapping[str, Any]) -> None:
  """Writes `eval_results.json` in one step."""
  path = os.path.join(model_dir, RESULTS_FILE)
  with open(f"{path}.tmp", "w", encoding="utf-8") as file:
    json.dump(results, file, indent=1, sort_keys=True)
    file.write("\n")
  os.replace(f"{path}.tmp", path)


def run(
  make_task: Callable[[Sequence[str]], finetuning_task.FinetuningTask],
  config: TrainConfig,
  devices: Devices,
  *,
  eval_splits: Sequence[str],
  test_splits: Sequence[str],
  do_train: bool,
  notes: Sequence[str] = (),
  note: Callable[[str], None] = print,
) -> dict[str, dict[str, float]]:
  """Does what is asked for, in order; returns the metrics of each split.

  Args:
    make_task: from the splits that are needed to the task.
    config: settings of the training, with the run's folder.
    devices: to compute on.
    eval_splits: labelled splits to measure at the end; the first one also
      chooses the best checkpoint.
    test_splits: splits to predict.
    do_train: whether to train at all.
    notes: lines for the top of the training's log.
    note: is told what was written.
  """
  wanted = [*eval_splits, *test_splits]
  task = make_task([*(["train"] if do_train else []), *wanted])
  if do_train:
    train(task, config, devices, notes)
  if not wanted:
    return {}
  predictor = Predictor(task, config.model_dir, devices, config.eval_batch_size)
  results = predictor.evaluate(eval_splits)
  if results and multi_worker.is_chief(devices.strategy):
    write_results(config.model_dir, results)
  for path in predictor.predict(test_splits):
    note(f"wrote {path}")
  return results
