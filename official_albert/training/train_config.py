"""The settings of a training run, each documented and defaulted here.

Flags are generated from these fields (tools/cli/training_flags.py), and
run.json holds their values.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from typing import TYPE_CHECKING, Any, Optional, Sequence

from official_albert.training import DECAYS, DIRECTIONS, OPTIMIZERS

if TYPE_CHECKING:
  from official_albert.training import optimization

ON_DIVERGENCE = ("stop", "rollback")


def setting(default: Any, help_text: str, choices: Sequence[str] = ()) -> Any:
  """Returns a dataclass field that a flag is generated from.

  Args:
    default: value if the flag is not given.
    help_text: of the flag.
    choices: the allowed values of a string; () allows any.
  """
  metadata = {"help": help_text, "choices": tuple(choices)}
  return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class Phase:
  """A part of a run that has its own data, batch size or depth.

  Attributes:
    steps: number of updates.
    train_batch_size: None uses that of the run.
    gradient_accumulation_steps: None uses that of the run.
    num_layers: how many times the shared layers are applied; None uses the
      depth of the model.
    same_data: continue with the data of the phase before.

  Raises (in the constructor):
    ValueError: a number is less than 1.
  """

  steps: int
  train_batch_size: Optional[int] = None
  gradient_accumulation_steps: Optional[int] = None
  num_layers: Optional[int] = None
  same_data: bool = False

  def __post_init__(self):
    for field in dataclasses.fields(self):
      value = getattr(self, field.name)
      if field.name != "same_data" and value is not None and value < 1:
        raise ValueError(
          f"{field.name} of a phase must be at least 1, got {value}."
        )


@dataclasses.dataclass(frozen=True)
class TrainConfig:
  """How to train.

  Attributes (of those without a flag of the same name):
    model_dir: folder for checkpoints, logs and run.json.
    phases: parts of the run, in order; () is one part with all steps.
    random_depths: numbers of layers, of which each update draws one; () always
      uses the depth of the model.
    beta_1: decay of the first moment.
    layerwise_lr_decay: ratio between the learning rates of a layer and of the
      layer above it; the model is created with the same ratio (see
      `optimization.rate_multipliers`).
    init_checkpoint: weights to start from if model_dir has no checkpoint.
    seed: of initial weights, data order and dropout.

  Raises (in the constructor):
    ValueError: a value is out of range, or two values contradict each other.
  """

  model_dir: str
  num_train_steps: int = setting(125000, "Number of updates.")
  num_warmup_steps: int = setting(
    3125, "Updates over which the learning rate rises from 0."
  )
  learning_rate: float = setting(
    0.00176,
    "Peak learning rate; by default 0.00176 * sqrt(train_batch_size / 4096), "
    "for LAMB.",
  )
  train_batch_size: int = setting(
    4096, "Examples in one update; with --phase_steps, one value or a list."
  )
  gradient_accumulation_steps: int = setting(
    1,
    "Micro-batches in one update, to save memory; with --phase_steps, one "
    "value or a list.",
  )
  phases: tuple[Phase, ...] = ()
  random_depths: tuple[int, ...] = ()
  xla: bool = setting(
    False,
    "Compile the forward and backward pass with XLA; slower on CPUs. Dropout "
    "draws different masks than without.",
  )
  eval_batch_size: int = setting(64, "Held-out examples in one batch.")
  optimizer: str = setting("lamb", "How weights are updated.", OPTIMIZERS)
  weight_decay: float = setting(0.01, "Weight decay.")
  beta_1: float = 0.9
  beta_2: float = setting(0.999, "Decay of the second moment.")
  bias_correction: bool = setting(
    False, "Correct the bias of the moments toward zero."
  )
  learning_rate_decay: str = setting(
    "original",
    "Decay from step 0, as in the original (the rate drops when the warm-up "
    "ends), or continuously from the end of the warm-up.",
    DECAYS,
  )
  layerwise_lr_decay: float = 1.0
  clip_norm: float = setting(1.0, "Global norm to clip gradients to.")
  steps_per_loop: int = setting(100, "Updates between two log lines.")
  eval_steps: int = setting(
    1000,
    "Updates between two evaluations; 0 evaluates only at the end and leaves "
    "the best checkpoint to --mode=evaluate_continuously.",
  )
  best_metric: str = setting(
    "loss",
    "Held-out metric that selects the best checkpoint; loss is the sum of all "
    "objectives.",
  )
  best_is: str = setting(
    "lowest",
    "Which --best_metric is best: lowest for losses, highest for accuracies.",
    DIRECTIONS,
  )
  early_stopping_evaluations: int = setting(
    0,
    "Stop after this many evaluations, --eval_steps apart, without a better "
    "--best_metric; 0 trains to the last step.",
  )
  save_checkpoints_steps: int = setting(
    1000, "Updates between two checkpoints."
  )
  keep_checkpoint_max: int = setting(5, "How many checkpoints to keep.")
  init_checkpoint: str = ""
  on_divergence: str = setting(
    "stop",
    "If a loss or gradient is not finite: stop, or return to the latest "
    "checkpoint and skip those batches, at most three times.",
    ON_DIVERGENCE,
  )
  profile_steps: str = setting(
    "",
    "FROM,TO: profile the updates after step FROM up to step TO.",
  )
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
    for name in ("eval_steps", "early_stopping_evaluations"):
      if getattr(self, name) < 0:
        raise ValueError(
          f"{name} must not be negative, got {getattr(self, name)}."
        )
    for field in dataclasses.fields(self):
      choices, value = field.metadata.get("choices"), getattr(self, field.name)
      if choices and value not in choices:
        raise ValueError(
          f"unknown {field.name} {value!r}; choose one of {', '.join(choices)}."
        )
    if self.train_batch_size % self.gradient_accumulation_steps:
      raise ValueError(
        f"train_batch_size {self.train_batch_size} cannot be cut into "
        f"{self.gradient_accumulation_steps} equal micro-batches: choose a "
        "gradient_accumulation_steps that divides it."
      )
    if self.clip_norm <= 0:
      raise ValueError(f"clip_norm must be positive, got {self.clip_norm}.")
    if not 0 < self.layerwise_lr_decay <= 1:
      raise ValueError(
        f"layerwise_lr_decay must be in (0, 1], got {self.layerwise_lr_decay}: "
        "1 is off, and 0.9 makes the rate of each layer 10% lower than that of "
        "the layer above it."
      )
    self._check_phases()
    self._check_random_depths()
    self.profiled_steps()
    self.make_optimizer()

  def _check_phases(self) -> None:
    count = self.early_stopping_evaluations
    if count and not self.eval_steps:
      raise ValueError(
        f"early_stopping_evaluations {count} needs evaluations during the run, "
        "but eval_steps is 0: give the steps between two of them."
      )
    if not self.phases:
      return
    total = sum(phase.steps for phase in self.phases)
    if total != self.num_train_steps:
      raise ValueError(
        f"the phases have {total:,} steps together, but num_train_steps is "
        f"{self.num_train_steps:,}: give the sum, or leave it out."
      )
    if count:
      raise ValueError(
        f"early_stopping_evaluations {count} cannot be used with phases or a "
        "depth schedule: losses of different phases cannot be compared."
      )
    for index in range(len(self.phases)):
      self.in_phase(index)

  def _check_random_depths(self) -> None:
    depths = self.random_depths
    if depths and min(depths) < 1:
      raise ValueError(f"random_depths must be at least 1, got {depths}.")
    if depths and any(phase.num_layers for phase in self.phases):
      raise ValueError(
        "random_depths cannot be used with a depth schedule, which sets the "
        "depth of each step: give one of them."
      )
    if depths and self.layerwise_lr_decay != 1.0:
      raise ValueError(
        f"random_depths cannot be used with layerwise_lr_decay "
        f"{self.layerwise_lr_decay}, which needs a fixed number of layers: "
        "give one of them."
      )

  @property
  def phase_ends(self) -> tuple[int, ...]:
    """The step at which each phase ends."""
    steps = [phase.steps for phase in self.phases] or [self.num_train_steps]
    return tuple(itertools.accumulate(steps))

  def phase_after(self, step: int) -> int:
    """Returns the index of the phase of the update after `step`.

    At the end of the run it is the last phase.
    """
    ends = self.phase_ends
    return next((i for i, end in enumerate(ends) if step < end), len(ends) - 1)

  def phases_at(self, step: int) -> tuple[int, ...]:
    """Returns the phases that `step` belongs to: two at a border."""
    before = self.phase_after(max(step - 1, 0))
    return tuple(range(before, self.phase_after(step) + 1))

  def keeps_best_of(self, step: int, phase: int = -1) -> bool:
    """Returns whether an evaluation at `step` counts for the best checkpoint.

    Evaluations at the start of a resumed run do not count, because the
    uninterrupted run does not make them. Neither do those of a phase that is
    shallower than the last phase, whose depth is the one that will be used.
    """
    if self.phases:
      depth = self.phases[phase].num_layers
      if depth != self.phases[-1].num_layers:
        return False
    if not self.eval_steps or not step:
      return False
    return step % self.eval_steps == 0 or step in self.phase_ends

  def begins_data(self, step: int) -> bool:
    """Returns whether the update after `step` starts its data from the top."""
    phase = self.phase_after(step)
    continues = bool(self.phases) and self.phases[phase].same_data
    return step == (0, *self.phase_ends)[phase] and not continues

  def labels(self, phase: int) -> dict[str, int]:
    """Returns the phase (from 1) and depth of an evaluation, for logs."""
    labels = {"phase": phase + 1} if len(self.phases) > 1 else {}
    if self.phases and self.phases[phase].num_layers:
      labels["depth"] = self.phases[phase].num_layers
    return labels

  def in_phase(self, index: int) -> TrainConfig:
    """Returns the settings of one phase."""
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

  def profiled_steps(self) -> Optional[tuple[int, int]]:
    """Returns FROM and TO of `profile_steps`; None if it is "".

    Raises:
      ValueError: it is not two numbers, or no updates are between them.
    """
    if not self.profile_steps:
      return None
    match = re.fullmatch(r"\s*(\d+)\s*,\s*(\d+)\s*", self.profile_steps)
    if not match:
      raise ValueError(
        "profile_steps must be two steps FROM,TO such as 100,110, got "
        f"{self.profile_steps!r}."
      )
    first, last = int(match[1]), int(match[2])
    if not first < last <= self.num_train_steps:
      raise ValueError(
        f"profile_steps {first},{last} must be 0 <= FROM < TO <= "
        f"{self.num_train_steps}, the number of training steps."
      )
    return first, last

  def make_optimizer(self) -> optimization.AlbertOptimizer:
    """Returns a new optimizer with its learning-rate schedule."""
    # Here, so that flags can be generated without loading TensorFlow.
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
