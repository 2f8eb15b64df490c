"""Flags of a training run for any task: duration and optimization.

Most are generated from the fields of `TrainConfig`, which define their
help and defaults. A program that trains imports this module and calls
`train_config`.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from absl import flags

from official_albert.config import AlbertConfig
from official_albert.tools.cli import device_flags, path_flags
from official_albert.train_config import Phase, TrainConfig, whole_numbers

if TYPE_CHECKING:
  import tensorflow as tf

# With phases, these flags may hold a value for each phase.
_LISTS = ("train_batch_size", "gradient_accumulation_steps")
_SETTINGS = path_flags.define_settings(
  TrainConfig, **{name: str(getattr(TrainConfig, name)) for name in _LISTS}
)
INIT_CHECKPOINT = path_flags.define(
  "init_checkpoint",
  None,
  "Weights to start from: a run, or anything that AlbertModel.from_checkpoint "
  "reads.",
)
_PHASE_STEPS = flags.DEFINE_string(
  "phase_steps",
  "",
  "Updates of each phase, such as 112500,12500; the schedule spans all phases.",
)
_RANDOM_DEPTHS = flags.DEFINE_string(
  "random_depths",
  "",
  "Depths such as 3,6,12: each update draws how many times to apply the shared "
  "layers, so that the model can be used at all of these depths.",
)
_ADAPTER_RANK = flags.DEFINE_integer(
  "adapter_rank",
  None,
  "Rank of the difference (LoRA) that each application of a shared block gets, "
  "if --init_checkpoint has none; 0: none; by default as configured.",
  lower_bound=0,
)
ALLOW_CHANGED_SETTINGS = flags.DEFINE_bool(
  "allow_changed_settings",
  False,
  "Resume a run although settings that shape the result have changed, such as "
  "the learning rate or the number of steps. By default that is refused.",
)
RANDOM_SEED = flags.DEFINE_integer(
  "random_seed", 12345, "Seed of initial weights, data order and dropout."
)


def train_config(model_dir: str) -> tuple[TrainConfig, str]:
  """Returns the settings, and a line about the learning rate for the log."""
  device = device_flags.DISTRIBUTION.value
  if (device, device_flags.PRECISION.value) == ("tpu", "mixed_float16"):
    raise ValueError(
      "TPUs multiply in bfloat16, not in float16: use --precision=auto or "
      "mixed_bfloat16."
    )
  values = {name: flag.value for name, flag in _SETTINGS.items()}
  lists = {name: whole_numbers(name, values[name]) for name in _LISTS}
  values.update({name: numbers[0] for name, numbers in lists.items()})
  phases = _phases(lists)
  if phases and not _SETTINGS["num_train_steps"].present:
    values["num_train_steps"] = sum(phase.steps for phase in phases)
  config = TrainConfig(
    model_dir=model_dir,
    phases=phases,
    init_checkpoint=INIT_CHECKPOINT.value or "",
    seed=RANDOM_SEED.value,
    **values,
  )
  reason = "as given"
  if values["learning_rate"] is None:
    reason = f"= 0.00176 * sqrt({config.train_batch_size} / 4096), as for LAMB"
  return config, f"learning rate {config.learning_rate:.4g} {reason}"


def _phases(lists: dict[str, tuple[int, ...]]) -> tuple[Phase, ...]:
  """Returns the phases of --phase_steps; () without the flag.

  `lists` has one value, or one for each phase, of the settings in `_LISTS`.
  """
  steps = whole_numbers("phase_steps", _PHASE_STEPS.value or "1")
  for flag, values in lists.items():
    if len(values) not in (1, len(steps)):
      raise ValueError(
        f"--{flag} has {len(values)} values for {len(steps)} phases: give one "
        "for all, or one for each of --phase_steps."
      )
  if not _PHASE_STEPS.value:
    return ()
  own = {name: values for name, values in lists.items() if len(values) > 1}
  return tuple(
    Phase(count, **{name: own[name][index] for name in own})
    for index, count in enumerate(steps)
  )


def with_adapters(model: AlbertConfig) -> AlbertConfig:
  """Returns the model to train, with the rank of --adapter_rank."""
  if _ADAPTER_RANK.value is None:
    return model
  return dataclasses.replace(model, adapter_rank=_ADAPTER_RANK.value)


def with_random_depths(config: TrainConfig, model: AlbertConfig) -> TrainConfig:
  """Returns the settings with --random_depths, which the model must have."""
  if not _RANDOM_DEPTHS.value:
    return config
  depths = whole_numbers("random_depths", _RANDOM_DEPTHS.value)
  for depth in depths:
    model.at_depth(depth)  # Raises if the model cannot have it.
  return dataclasses.replace(config, random_depths=depths)


def settings(
  config: TrainConfig, strategy: tf.distribute.Strategy, precision: str
) -> dict[str, Any]:
  """Returns the settings for run.json."""
  return {
    **dataclasses.asdict(config),
    "num_replicas": strategy.num_replicas_in_sync,
    "precision": precision,
    "distribution": device_flags.DISTRIBUTION.value,
  }
