"""The settings of a training run, in one place."""

from __future__ import annotations

import dataclasses
import itertools
import re
from typing import TYPE_CHECKING, Optional

from official_albert.training import DIRECTIONS

if TYPE_CHECKING:
  from official_albert.training import optimization

ON_DIVERGENCE = ("stop", "rollback")


@dataclasses.dataclass(frozen=True)
class Phase:
  """A stretch of a run that has data, batches or a depth of its own.

  Raises (when made):
    ValueError: a value out of range.
  """

  # Updates.
  steps: int
  # None: those of the run.
  train_batch_size: Optional[int] = None
  gradient_accumulation_steps: Optional[int] = None
  # How many times it applies the model's shared layers; None: as the model is.
  num_layers: Optional[int] = None
  # Whether it goes on in the data of the phase before.
  same_data: bool = False

  def __post_init__(self):
    for field in dataclasses.fields(self):
      value = getattr(self, field.name)
      if field.type != "bool" and value is not None and value < 1:
        raise ValueError(
          f"{field.name} of a phase must be at least 1, got {value}."
        )


@dataclasses.dataclass(frozen=True)
class TrainConfig:
  """How to train; checked when made.

  Raises (when made):
    ValueError: a value out of range, or values that contradict each other.
  """

  # Checkpoints, logs and run.json go here.
  model_dir: str
  num_train_steps: int
  num_warmup_steps: int
  # Peak learning rate.
  learning_rate: float
  # Examples in one update, over all micro-batches.
  train_batch_size: int
  # Micro-batches that one update is computed in, to save memory.
  gradient_accumulation_steps: int = 1
  # Stretches that follow each other, such as one of short and one of long
  # sequences, or of few and of many layers; () is one, of all steps.
  phases: tuple[Phase, ...] = ()
  # Layers that an update applies, drawn anew for each; (): the model's own.
  random_depths: tuple[int, ...] = ()
  # Whether XLA compiles forward and backward pass of a micro-batch as a whole.
  xla: bool = False
  eval_batch_size: int = 64
  # One of `training.OPTIMIZERS`, and its settings.
  optimizer: str = "lamb"
  weight_decay: float = 0.01
  beta_1: float = 0.9
  beta_2: float = 0.999
  bias_correction: bool = False
  # One of `training.DECAYS`.
  learning_rate_decay: str = "original"
  # Factor between the learning rates of a layer and of the one above it; the
  # model has to be made with the same one, see `optimization`.
  layerwise_lr_decay: float = 1.0
  # Global norm to which gradients are clipped.
  clip_norm: float = 1.0
  # Updates between two looks at the loop from outside.
  steps_per_loop: int = 100
  # Updates between two evaluations; 0 evaluates at the end only, and leaves
  # the best checkpoint to a process that evaluates continuously.
  eval_steps: int = 1000
  # The held-out number by which the best checkpoint is chosen, and which of
  # its values is the best, one of `training.DIRECTIONS`.
  best_metric: str = "loss"
  best_is: str = "lowest"
  # Scheduled evaluations in a row without a better one that end the run; 0:
  # it goes on to its last step.
  early_stopping_evaluations: int = 0
  save_checkpoints_steps: int = 1000
  keep_checkpoint_max: int = 5
  # Weights to start from when model_dir has no checkpoint of its own.
  init_checkpoint: str = ""
  # When a loss or gradient is not finite: "stop", or "rollback" to the last
  # checkpoint and leave out the batches since the last look.
  on_divergence: str = "stop"
  # "FROM,TO": the updates to profile; "" profiles none.
  profile_steps: str = ""
  # Seed of initial weights, data order and dropout.
  seed: int = 12345

  def __post_init__(self):
    for name in (
      "num_train_steps train_batch_size gradient_accumulation_steps "
      "eval_batch_size steps_per_loop save_checkpoints_steps "
      "keep_checkpoint_max"
    ).split():
      if getattr(self, name) < 1:
        raise ValueError(
          f"{name} must be at least 1, got {getattr(self, name)}."
        )
    if self.train_batch_size % self.gradient_accumulation_steps:
      raise ValueError(
        f"train_batch_size {self.train_batch_size} cannot be cut into "
        f"{self.gradient_accumulation_steps} equal micro-batches: choose a "
        "gradient_accumulation_steps that divides it."
      )
    total = sum(phase.steps for phase in self.phases)
    if self.phases and total != self.num_train_steps:
      raise ValueError(
        f"the phases have {total:,} steps together, but num_train_steps is "
        f"{self.num_train_steps:,}: give the sum, or leave it out."
      )
    for index in range(len(self.phases)):
      self.in_phase(index)
    if self.clip_norm <= 0:
      raise ValueError(f"clip_norm must be positive, got {self.clip_norm}.")
    if self.eval_steps < 0:
      raise ValueError(f"eval_steps must not be negative: {self.eval_steps}.")
    check_direction(self.best_is)
    self._check_early_stopping()
    _check_decay(self.layerwise_lr_decay)
    self._check_random_depths()
    if self.on_divergence not in ON_DIVERGENCE:
      raise ValueError(
        f"unknown on_divergence {self.on_divergence!r}; choose one of "
        f"{', '.join(ON_DIVERGENCE)}."
      )
    parse_profile_steps(self.profile_steps, self.num_train_steps)
    self.make_optimizer()

  def _check_early_stopping(self) -> None:
    count = self.early_stopping_evaluations
    if count < 0:
      raise ValueError(
        f"early_stopping_evaluations must not be negative, got {count}."
      )
    if count and not self.eval_steps:
      raise ValueError(
        f"early_stopping_evaluations {count} needs evaluations on the way, "
        "but eval_steps is 0: give the steps between two of them."
      )
    if count and self.phases:
      raise ValueError(
        f"early_stopping_evaluations {count} does not go with phases, be they "
        "of a depth schedule: the losses of two phases cannot be compared, and "
        "the schedule needs all."
      )

  def _check_random_depths(self) -> None:
    depths = self.random_depths
    if depths and min(depths) < 1:
      raise ValueError(f"random_depths must be at least 1, got {depths}.")
    if depths and any(phase.num_layers for phase in self.phases):
      raise ValueError(
        "random_depths do not go with a depth schedule, which says the depth "
        "of each step: give one of them."
      )
    if depths and self.layerwise_lr_decay != 1.0:
      raise ValueError(
        f"random_depths do not go with layerwise_lr_decay "
        f"{self.layerwise_lr_decay}, which needs a fixed number of layers: "
        "give one of them."
      )

  @property
  def phase_ends(self) -> tuple[int, ...]:
    """The step at which each phase ends."""
    steps = [phase.steps for phase in self.phases] or [self.num_train_steps]
    return tuple(itertools.accumulate(steps))

  def phase_after(self, step: int) -> int:
    """The index of the phase to which the update after `step` belongs.

    At the end of the run it is the last one.
    """
    ends = self.phase_ends
    return next((i for i, end in enumerate(ends) if step < end), len(ends) - 1)

  def phases_at(self, step: int) -> tuple[int, ...]:
    """The phases that begin, go on or end at `step`: at a border, two."""
    before = self.phase_after(max(step - 1, 0))
    return tuple(range(before, self.phase_after(step) + 1))

  def keeps_best_of(self, step: int, phase: int = -1) -> bool:
    """Whether an evaluation at `step` counts for the best checkpoint.

    Those that a resumed run makes where it happens to start do not: the
    uninterrupted run did not make them. Nor do those of a phase that applies
    fewer layers than the last one, which is how the model will be used.
    """
    if self.phases:
      depth = self.phases[phase].num_layers
      if depth != self.phases[-1].num_layers:
        return False
    scheduled = self.eval_steps and step % self.eval_steps == 0
    return bool(
      self.eval_steps and step and (scheduled or step in self.phase_ends)
    )

  def begins_data(self, step: int) -> bool:
    """Whether the update after `step` is the first one of its data."""
    phase = self.phase_after(step)
    goes_on = bool(self.phases) and self.phases[phase].same_data
    return step == (0, *self.phase_ends)[phase] and not goes_on

  def labels(self, phase: int) -> dict[str, int]:
    """What logs say of an evaluation besides numbers: which phase, how deep."""
    labels = {"phase": phase + 1} if len(self.phases) > 1 else {}
    if self.phases and self.phases[phase].num_layers:
      labels["depth"] = self.phases[phase].num_layers
    return labels

  def in_phase(self, index: int) -> TrainConfig:
    """The same settings with the batches of one phase."""
    if not self.phases:
      return self
    phase = self.phases[index]
    return dataclasses.replace(
      self,
      phases=(),
      train_batch_size=phase.train_batch_size or self.train_batch_size,
      gradient_accumulation_steps=(
        phase.gradient_accumulation_steps or self.gradient_accumulation_steps
      ),
    )

  def make_optimizer(self) -> optimization.AlbertOptimizer:
    """The optimizer with its schedule."""
    # Here, so that settings can be read and checked without TensorFlow.
    from official_albert.training import optimization

    schedule = optimization.WarmupPolynomialDecay(
      self.learning_rate,
      self.num_train_steps,
      self.num_warmup_steps,
      decay=self.learning_rate_decay,
    )
    return optimization.make_optimizer(
      self.optimizer,
      schedule,
      weight_decay=self.weight_decay,
      beta_1=self.beta_1,
      beta_2=self.beta_2,
      bias_correction=self.bias_correction,
    )


def check_direction(best_is: str) -> None:
  """Refuses a direction that is none of `DIRECTIONS`.

  Raises:
    ValueError: it is none.
  """
  if best_is not in DIRECTIONS:
    raise ValueError(
      f"unknown best_is {best_is!r}; choose one of {', '.join(DIRECTIONS)}."
    )


def _check_decay(decay: float) -> None:
  """Refuses a factor that is not in (0, 1].

  Raises:
    ValueError: it is not.
  """
  if not 0 < decay <= 1:
    raise ValueError(
      f"layerwise_lr_decay must be in (0, 1], got {decay}: 1 is off, and 0.9 "
      "makes the rate of each layer 10% lower than that of the one above it."
    )


def parse_profile_steps(
  text: str, num_train_steps: int
) -> Optional[tuple[int, int]]:
  """The two numbers of "FROM,TO", or None for "".

  Raises:
    ValueError: not two numbers, or no updates of the run between them.
  """
  if not text:
    return None
  match = re.fullmatch(r"\s*(\d+)\s*,\s*(\d+)\s*", text)
  if not match:
    raise ValueError(
      f"profile_steps must be two steps FROM,TO such as 100,110, got {text!r}."
    )
  first, last = int(match[1]), int(match[2])
  if not first < last <= num_train_steps:
    raise ValueError(
      f"profile_steps {first},{last} must be 0 <= FROM < TO <= "
      f"{num_train_steps}, the number of training steps."
    )
  return first, last
