"""The settings of a training run, in one place."""

from __future__ import annotations

import dataclasses

from official_albert import optimization

ON_DIVERGENCE = ("stop", "rollback")


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
  # Whether XLA compiles forward and backward pass of a micro-batch as a whole.
  xla: bool = False
  eval_batch_size: int = 64
  # One of optimization.OPTIMIZERS, and its settings.
  optimizer: str = "lamb"
  weight_decay: float = 0.01
  beta_1: float = 0.9
  beta_2: float = 0.999
  bias_correction: bool = False
  # One of optimization.DECAYS.
  learning_rate_decay: str = "original"
  # Global norm to which gradients are clipped.
  clip_norm: float = 1.0
  # Updates between two looks at the loop from outside.
  steps_per_loop: int = 100
  # Updates between two evaluations; 0 evaluates at the end only.
  eval_steps: int = 1000
  save_checkpoints_steps: int = 1000
  keep_checkpoint_max: int = 5
  # Weights to start from when model_dir has no checkpoint of its own.
  init_checkpoint: str = ""
  # When a loss or gradient is not finite: "stop", or "rollback" to the last
  # checkpoint and leave out the batches since the last look.
  on_divergence: str = "stop"
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
    if self.clip_norm <= 0:
      raise ValueError(f"clip_norm must be positive, got {self.clip_norm}.")
    if self.eval_steps < 0:
      raise ValueError(f"eval_steps must not be negative: {self.eval_steps}.")
    if self.on_divergence not in ON_DIVERGENCE:
      raise ValueError(
        f"unknown on_divergence {self.on_divergence!r}; choose one of "
        f"{', '.join(ON_DIVERGENCE)}."
      )
    self.make_optimizer()

  def make_optimizer(self) -> optimization.AlbertOptimizer:
    """The optimizer with its schedule."""
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
