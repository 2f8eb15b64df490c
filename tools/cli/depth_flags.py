"""Flags of a model's depth, which one with shared layers may choose freely."""

from __future__ import annotations

import dataclasses

from absl import flags

from official_albert import modeling, training

_SCHEDULE = flags.DEFINE_string(
  "depth_schedule",
  "",
  "DEPTH:SHARE of the steps, such as 3:0.5,6:0.25,12:0.25: few applications of "
  "the shared layers at first. The last depth is the model's.",
)

_RANDOM = flags.DEFINE_string(
  "random_depths",
  "",
  "Depths such as 3,6,12: each update applies the shared layers a number of "
  "times that is drawn from these, so that the model is of use at all of them.",
)


def refuse_schedule() -> None:
  """Says that fine-tuning has no depth schedule.

  Raises:
    ValueError: the flag is given.
  """
  if _SCHEDULE.value:
    raise ValueError(
      "--depth_schedule is for pretraining: give --num_hidden_layers or "
      "--random_depths."
    )


def with_random_depths(
  config: training.TrainConfig, model: modeling.AlbertConfig
) -> training.TrainConfig:
  """The settings with --random_depths.

  Raises:
    ValueError: they are no depths, not of this model, or go with a schedule.
  """
  if not _RANDOM.value:
    return config
  depths = training.parse_depths(_RANDOM.value)
  for depth in depths:
    model.at_depth(depth)  # It says what is wrong.
  return dataclasses.replace(config, random_depths=depths)


def with_schedule(
  config: training.TrainConfig,
) -> training.TrainConfig:
  """The settings with a phase for each stretch of --depth_schedule.

  Raises:
    ValueError: the flag is no schedule, or there are phases already.
  """
  if not _SCHEDULE.value:
    return config
  if config.phases:
    raise ValueError(
      "--depth_schedule does not go with --phase_steps: give one of them."
    )
  stretches = training.parse_depth_schedule(
    _SCHEDULE.value, config.num_train_steps
  )
  return dataclasses.replace(
    config,
    phases=tuple(
      training.Phase(
        stretch.steps, num_layers=stretch.num_layers, same_data=index > 0
      )
      for index, stretch in enumerate(stretches)
    ),
  )


def scheduled_depths(config: training.TrainConfig) -> tuple[int, ...]:
  """The depth of each stretch; () if there is no schedule."""
  depths = tuple(phase.num_layers for phase in config.phases)
  return depths if any(depths) else ()
