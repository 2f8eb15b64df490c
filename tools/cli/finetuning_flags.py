"""Flags of fine-tuning: how long, and settings of the model.

Defaults come from the recipe of the task (Table 14 of the paper). The default
learning rate is higher for models smaller than those of the paper.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from absl import flags

from official_albert import training
from tasks import common
from tools import finetuning
from tools.cli import training_flags

# Evaluations in a run by default.
_EVALUATIONS = 10
# Help of the flags whose default depends on the task.
_TASK_DEFAULTS = {
  "best_metric": "Held-out metric that selects the best checkpoint; by default "
  "that of the task.",
  "eval_steps": "Updates between two evaluations; by default a tenth of all.",
  "learning_rate": "Peak learning rate; by default that of Table 14, higher "
  "for small models, see above.",
  "num_train_steps": "Number of updates; by default those of Table 14, or 3 "
  "epochs for your own data.",
  "num_warmup_steps": "Updates over which the learning rate rises from 0; by "
  "default those of Table 14, or a tenth of all.",
  "save_checkpoints_steps": "Updates between two checkpoints; by default "
  "--eval_steps.",
  "steps_per_loop": "Updates between two log lines; by default --eval_steps, "
  "at most 100.",
  "train_batch_size": "Examples in one update; by default those of Table 14.",
}
for _name, _help in _TASK_DEFAULTS.items():
  flags.FLAGS[_name].help = _help
  flags.FLAGS.set_default(_name, None)
flags.FLAGS.set_default("optimizer", "adamw")
flags.FLAGS.set_default("best_is", "highest")
flags.FLAGS.set_default("keep_checkpoint_max", 1)

_EPOCHS = flags.DEFINE_float(
  "num_train_epochs",
  0.0,
  "Passes over the training data, instead of --num_train_steps.",
  lower_bound=0.0,
)
_DROPOUTS = {
  name: flags.DEFINE_float(name, None, help_text)
  for name, help_text in (
    ("albert_dropout", "Dropout of hidden states and attention."),
    ("classifier_dropout", "Dropout before the head."),
  )
}
_LAYERWISE_DECAY = flags.DEFINE_float(
  "layerwise_lr_decay",
  1.0,
  "Learning rate of each application of the shared block, as a share of that "
  "of the one above it.",
)
_RECOMPUTE = flags.DEFINE_bool(
  "recompute_activations",
  False,
  "Keep only the input of each block for the gradient: less memory, more time.",
)


def model_settings(recipe: Any) -> common.ModelSettings:
  """Returns the model settings of the flags, with defaults of the recipe."""
  dropouts = {
    name: getattr(recipe, name) if flag.value is None else flag.value
    for name, flag in _DROPOUTS.items()
  }
  return common.ModelSettings(
    **dropouts,
    recompute_activations=_RECOMPUTE.value,
    layerwise_lr_decay=_LAYERWISE_DECAY.value,
  )


def train_config(
  job: finetuning.jobs.Job, hidden_size: int, model_dir: str, do_train: bool
) -> tuple[training.TrainConfig, list[str]]:
  """Returns the settings of a run, and lines about them for the log.

  Args:
    job: the task, whose recipe gives the defaults.
    hidden_size: the model's hidden size, for the default learning rate.
    model_dir: the folder of the run.
    do_train: whether the run trains; otherwise no data is read.
  """
  training_flags.refuse_phases()
  given, recipe = flags.FLAGS, job.recipe
  if _EPOCHS.value and given["num_train_steps"].present:
    raise ValueError(
      "--num_train_epochs and --num_train_steps exclude each other: give one."
    )
  batch_size = recipe.train_batch_size
  if given["train_batch_size"].present:
    text = given["train_batch_size"].value
    batch_size = training_flags.whole_numbers("train_batch_size", text)[0]
  epochs = _EPOCHS.value or getattr(recipe, "num_train_epochs", 0)
  if given["num_train_steps"].present:
    steps = given["num_train_steps"].value
  elif not epochs:
    steps = recipe.num_train_steps
  elif not do_train:
    steps = 1  # Not used.
  else:
    steps = max(math.ceil(epochs * job.num_train_examples() / batch_size), 1)
  warmup = steps // 10
  if hasattr(recipe, "num_warmup_steps"):
    warmup = steps * recipe.num_warmup_steps // recipe.num_train_steps
  every = max(steps // _EVALUATIONS, 1)
  rate, reason = training.for_finetuning(recipe.learning_rate, hidden_size)
  if given["learning_rate"].present:
    reason = "as given"
  defaults = {
    "learning_rate": rate,
    "train_batch_size": batch_size,
    "num_train_steps": steps,
    "num_warmup_steps": warmup,
    "best_metric": job.best_metric,
    "eval_steps": every,
    "save_checkpoints_steps": every,
    "steps_per_loop": min(every, 100),
  }
  for name, value in defaults.items():
    # Does not change flags that the user gave.
    flags.FLAGS.set_default(name, str(value))
  config, _ = training_flags.train_config(model_dir)
  decay = _LAYERWISE_DECAY.value
  return dataclasses.replace(config, layerwise_lr_decay=decay), [
    f"{job.name}: {config.num_train_steps:,} steps of "
    f"{config.train_batch_size}, peak rate {config.learning_rate:g}, {reason}"
  ]
