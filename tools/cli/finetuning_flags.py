"""Flags of fine-tuning: how long, and settings of the model.

Defaults come from the recipe of the task (Table 14 of the paper). The default
learning rate is higher for models smaller than those of the paper.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Optional

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


def model_settings(recipe: Any) -> common.ModelSettings:
  """The recipe's dropouts, unless flags say otherwise; and the rest."""
  return common.ModelSettings(
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
  job: finetuning.jobs.Job, hidden_size: int, model_dir: str, do_train: bool
) -> tuple[training.TrainConfig, list[str]]:
  """The settings of a run: flags, where none is given the recipe.

  Args:
    job: the task.
    hidden_size: the model's, which the default rate depends on.
    model_dir: the run's folder.
    do_train: whether it trains; the data is not looked at otherwise.

  Returns:
    Settings, and what is to be said of them.

  Raises:
    ValueError: a flag is out of range, or two contradict each other.
    OSError: the training data, whose examples are counted, cannot be read.
  """
  _check()
  steps = _num_train_steps(job, do_train)
  every = max(steps // _EVALUATIONS, 1)
  rate, reason = training.for_finetuning(job.recipe.learning_rate, hidden_size)
  if _given("learning_rate") is not None:
    reason = "as given"
  defaults = {
    "learning_rate": rate,
    "train_batch_size": job.recipe.train_batch_size,
    "num_train_steps": steps,
    "num_warmup_steps": _num_warmup_steps(job.recipe, steps),
    "best_metric": job.best_metric,
    "eval_steps": every,
    "save_checkpoints_steps": every,
    "steps_per_loop": min(every, 100),
  }
  for name, value in defaults.items():
    # Does nothing to flags that the user gave.
    flags.FLAGS.set_default(name, str(value))
  config, _ = training_flags.train_config(model_dir)
  return dataclasses.replace(
    config, layerwise_lr_decay=_LAYERWISE_DECAY.value
  ), [
    f"{job.name}: {config.num_train_steps:,} steps of "
    f"{config.train_batch_size}, peak rate {config.learning_rate:g}, {reason}"
  ]


def _num_train_steps(job: finetuning.jobs.Job, do_train: bool) -> int:
  """What the user says, in steps or epochs; else what the recipe says."""
  given = _given("num_train_steps")
  if given is not None:
    return given
  epochs = _EPOCHS.value or getattr(job.recipe, "num_train_epochs", 0)
  if not epochs:
    return job.recipe.num_train_steps
  if not do_train:
    return 1  # Nothing depends on it.
  batch_size = int(_given("train_batch_size") or job.recipe.train_batch_size)
  return max(math.ceil(epochs * job.num_train_examples() / batch_size), 1)


def _num_warmup_steps(recipe: Any, steps: int) -> int:
  """The recipe's share of the steps; a tenth if it has none."""
  if not hasattr(recipe, "num_warmup_steps"):
    return steps // 10
  return steps * recipe.num_warmup_steps // recipe.num_train_steps


def _check() -> None:
  training_flags.refuse_phases()
  if _EPOCHS.value < 0:
    raise ValueError(
      f"--num_train_epochs must not be negative, got {_EPOCHS.value}."
    )
  if _EPOCHS.value and _given("num_train_steps") is not None:
    raise ValueError(
      "--num_train_epochs and --num_train_steps say the same thing: give one."
    )
