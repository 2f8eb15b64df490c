"""One run: train, then evaluate and predict with the best weights."""

from __future__ import annotations

import os
from typing import Any, Mapping, Optional, Sequence

import tensorflow as tf

from official_albert import checkpoints, distribution, files, runs, training
from official_albert.tasks import trained_run
from official_albert.tasks.common import finetuning_task

PREDICTIONS_FOLDER = "predictions"


def train(
  task: finetuning_task.FinetuningTask,
  config: training.TrainConfig,
  strategy: tf.distribute.Strategy,
  settings: Mapping[str, Any],
  note: str,
  allow_changed_settings: bool = False,
  trainer: Optional[training.Trainer] = None,
) -> training.Trainer:
  """Trains or resumes; writes checkpoints and `best/` to `config.model_dir`.

  `settings` go to run.json besides those of the task; `note` begins the log.
  `trainer` is that of a run with another seed, whose graphs this one uses.
  Returns the trainer, whose model has its last weights.
  """
  record = runs.Start(
    task.config,
    {**settings, **task.model_settings()},
    task.describe(),
    *task.tokenizer_file,
    allow_changed_settings,
  )
  with training.open_report(config.model_dir, strategy) as report:
    report.note(note)
    if trainer:
      trainer.reset([task], config, report, record)
    else:
      trainer = training.Trainer([task], config, strategy, report, record)
    trainer.run()
  return trainer


def predict(
  task: finetuning_task.FinetuningTask,
  config: training.TrainConfig,
  strategy: tf.distribute.Strategy,
  model: Optional[tf.keras.Model],
  eval_splits: Sequence[str],
  test_splits: Sequence[str],
  results_dir: str,
) -> trained_run.Results:
  """Evaluates and predicts with the best weights in `config.model_dir`.

  Returns the metrics of the labeled `eval_splits`. If the first of them, which
  the training evaluates, is not among them, the earlier metrics of other splits
  stay. A split may be in both lists. With several workers, only the chief
  writes files. `model` is that of a trainer; None creates one.
  """
  if model is None:
    with strategy.scope():
      model = task.build_model()
  checkpoint = runs.find_prefix(config.model_dir)
  if missing := checkpoints.warm_start(model, checkpoint).missing:
    raise ValueError(
      f"{checkpoint} is not a checkpoint of {task.name}: it lacks {missing[0]}."
    )
  to_arrays = training.make_prediction(task, model, strategy)
  results: trained_run.Results = {}
  if eval_splits and task.eval_split not in eval_splits:
    results = trained_run.read_results(results_dir)
  splits = list(dict.fromkeys([*eval_splits, *test_splits]))
  print(f"predicting {', '.join(splits)}", flush=True)
  is_chief = distribution.is_chief(strategy)
  for split in splits:
    data = task.dataset(split, config.eval_batch_size)
    answers = task.answers(split, to_arrays(data))
    if split in eval_splits:
      # Before the files are written: SQuAD 2.0 chooses its threshold here.
      results[split] = task.score_answers(split, answers)
    if not is_chief:
      continue
    folder = os.path.join(results_dir, PREDICTIONS_FOLDER)
    files.make_folder(folder)
    paths = task.write_answers(split, answers, folder)
    if split in eval_splits[-1:]:
      trained_run.write_results(results_dir, results)
    if split in test_splits:
      for path in paths:
        print(f"wrote {path}", flush=True)
  return results
