"""Flags of fine-tuning: what data, which settings of the model."""

from __future__ import annotations

import dataclasses
import math
import os
from typing import Any, Optional, Sequence

from absl import flags

from official_albert import tokenization
from official_albert import train_config as train_config_lib
from tasks import finetuning_task
from tasks.glue import benchmark
from tools import (
  finetuning_jobs,
  race_job,
  squad_job,
  text_jobs,
  training_flags,
)

TASKS = (
  "glue",
  *benchmark.TASKS,
  *squad_job.TASKS,
  *race_job.TASKS,
  *text_jobs.OWN_TASKS,
)
# Evaluations in a run, unless flags say otherwise.
_EVALUATIONS = 10

_DATA_DIR = flags.DEFINE_string(
  "data_dir",
  "",
  "Folder of the task, or one that holds it: GLUE's, SQuAD's, RACE's.",
)
_CACHE_DIR = flags.DEFINE_string(
  "cache_dir",
  "",
  "Folder for records; by default the folder records in --output_dir.",
)
_FILES = {
  split: flags.DEFINE_string(
    f"{split}_file", "", f"The {split} data, if it has no official name."
  )
  for split in ("train", "dev", "test")
}
_COLUMNS = {
  "text": flags.DEFINE_string("text_column", "text", "Column of the text."),
  "text_b": flags.DEFINE_string(
    "text_b_column", "text_b", "Column of the second text of a pair."
  ),
  "label": flags.DEFINE_string("label_column", "label", "Column of the label."),
  "id": flags.DEFINE_string(
    "id_column", "", "Column of the ids; by default the rows' numbers."
  ),
}
_MAX_SEQ_LENGTH = flags.DEFINE_integer(
  "max_seq_length", 0, "Tokens of an example at most; 0: as in the paper."
)
_EPOCHS = flags.DEFINE_float(
  "num_train_epochs",
  0.0,
  "Passes over the training data, a tenth of them to warm up; 0: the steps.",
)
_MAX_TRAIN = flags.DEFINE_integer(
  "max_train_examples",
  0,
  "Train on so many, evenly spaced in the data; 0: all.",
)
_MAX_EVAL = flags.DEFINE_integer(
  "max_eval_examples",
  0,
  "Evaluate and predict so many, evenly spaced in the data; 0: all.",
)
_ALBERT_DROPOUT = flags.DEFINE_float(
  "albert_dropout", None, "Of hidden states and attention in the encoder."
)
_CLASSIFIER_DROPOUT = flags.DEFINE_float(
  "classifier_dropout", None, "Of what the head sees."
)
_LAYERWISE_DECAY = flags.DEFINE_float(
  "layerwise_lr_decay",
  1.0,
  "Learning rate of each application of the shared block, as a share of that "
  "of the one above it.",
)
_RECOMPUTE = flags.DEFINE_bool(
  "recompute_activations",
  False,
  "Keep only each block's input for the gradient: less memory, more time.",
)
_BUCKETS = flags.DEFINE_bool(
  "length_bucketing",
  True,
  "Batches of examples of similar length; off: all padded to the longest.",
)
_NULL_THRESHOLD = flags.DEFINE_float(
  "null_score_diff_threshold",
  None,
  "SQuAD 2.0: null odds over it mean no answer; by default what is best for "
  "the dev file.",
)


def make_job(
  name: str,
  tokenizer: tokenization.Tokenizer,
  labels: Optional[Sequence[str]],
) -> finetuning_jobs.Job:
  """The task `name` on the data that the flags name.

  Args:
    name: one of `TASKS` but glue.
    tokenizer: the encoder's.
    labels: the classes of a trained model, if one is used.

  Raises:
    ValueError, OSError: the data is not there, or not as it should be.
  """
  options = finetuning_jobs.Options(
    data_dir=_DATA_DIR.value,
    cache_dir=_CACHE_DIR.value
    or os.path.join(flags.FLAGS["output_dir"].value, "records"),
    tokenizer=tokenizer,
    max_seq_length=_MAX_SEQ_LENGTH.value,
    max_train_examples=_MAX_TRAIN.value,
    max_eval_examples=_MAX_EVAL.value,
    files={split: flag.value for split, flag in _FILES.items()},
    columns={role: flag.value for role, flag in _COLUMNS.items()},
    length_bucketing=_BUCKETS.value,
    null_score_diff_threshold=_NULL_THRESHOLD.value,
    labels=labels,
  )
  if name in text_jobs.OWN_TASKS:
    return text_jobs.OwnJob(name, options)
  if not options.data_dir:
    raise ValueError(f"--task={name} needs --data_dir, the folder of its data.")
  if name in squad_job.TASKS:
    return squad_job.SquadJob(name, options)
  if name in race_job.TASKS:
    return race_job.RaceJob(name, options)
  return text_jobs.GlueJob(name, options)


def model_settings(recipe: Any) -> finetuning_task.ModelSettings:
  """The recipe's dropouts, unless flags say otherwise; and the rest."""
  return finetuning_task.ModelSettings(
    albert_dropout=_or(_ALBERT_DROPOUT.value, recipe.albert_dropout),
    classifier_dropout=_or(
      _CLASSIFIER_DROPOUT.value, recipe.classifier_dropout
    ),
    recompute_activations=_RECOMPUTE.value,
    layerwise_lr_decay=_LAYERWISE_DECAY.value,
  )


def _or(value: Optional[float], default: float) -> float:
  return default if value is None else value


def _given(name: str) -> Any:
  """The value of a flag that the user gave, else None."""
  flag = flags.FLAGS[name]
  return flag.value if flag.present else None


def train_config(
  job: finetuning_jobs.Job, model_dir: str, do_train: bool
) -> tuple[train_config_lib.TrainConfig, list[str]]:
  """The settings of a run: flags, where none is given the recipe.

  Args:
    job: the task.
    model_dir: the run's folder.
    do_train: whether it trains; the data is not looked at otherwise.

  Returns:
    Settings, and what is to be said of them.
  """
  defaults = {"optimizer": "adamw", "best_is": "highest", **job.flags}
  defaults["best_metric"] = job.best_metric
  epochs = _EPOCHS.value or getattr(job.recipe, "num_train_epochs", 0)
  if epochs and do_train:
    batch = _given("train_batch_size") or defaults["train_batch_size"]
    steps = max(math.ceil(epochs * job.num_train_examples() / int(batch)), 1)
    defaults.update(num_train_steps=steps, num_warmup_steps=steps // 10)
  # Without training nothing depends on the steps.
  steps = _given("num_train_steps") or defaults.get("num_train_steps", 1)
  every = max(steps // _EVALUATIONS, 1)
  defaults.update(
    eval_steps=every,
    save_checkpoints_steps=every,
    keep_checkpoint_max=1,
    steps_per_loop=min(every, 100),
  )
  for name, value in defaults.items():
    # Does nothing to flags that the user gave.
    flags.FLAGS.set_default(name, str(value))
  config, _ = training_flags.train_config(model_dir)
  return dataclasses.replace(
    config, layerwise_lr_decay=_LAYERWISE_DECAY.value
  ), [
    f"{job.name}: {config.num_train_steps:,} steps of "
    f"{config.train_batch_size}, peak rate {config.learning_rate:g}"
  ]
