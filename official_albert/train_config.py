"""The settings of a training run, with their documentation and defaults.

tools/cli/training_flags.py generates flags from these fields, and run.json
stores their values. Does not load TensorFlow.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from typing import Any, Optional

from official_albert.settings import check, check_number, setting

OPTIMIZERS = ("lamb", "adamw", "muon")
# With "original", the rate drops when the warm-up ends.
DECAYS = ("original", "continuous")
# How attention is computed; see `modeling.attention_as`.
ATTENTIONS = ("plain", "compiled", "fused")
# Which value of a held-out metric is the best.
DIRECTIONS = ("lowest", "highest")

# Peak learning rate of the paper and its batch size (section 4.1).
_PAPER_RATE, _PAPER_BATCH = 0.00176, 4096
# The smallest model of the paper is `albert_base`. For hidden_size 128, 5e-4
# was measured with bias correction, docs/results/data/finetuning_defaults.json.
# Without it, the first updates are up to 6.6 times the rate, and some seeds die
# of them: all texts get the same vector. In an earlier measurement without it,
# 3e-4 was too high for 256, but not for 128: so the rate is proportional to 1 /
# hidden_size.
_PAPER_HIDDEN_SIZE = 768
_MEASURED_HIDDEN_SIZE, _MEASURED_RATE = 128, 5e-4

# Larger batches exhaust memory or take forever; the largest in use have tens of
# thousands of examples.
_MOST_EXAMPLES = 2**20


@dataclasses.dataclass(frozen=True)
class Phase:
  """A part of a run that has its own data and batch size.

  Attributes:
    steps: the number of updates.
    train_batch_size: None uses the value of the run.
    gradient_accumulation_steps: None uses the value of the run.

  Raises (in the constructor):
    ValueError: a number is less than 1.
  """

  steps: int
  train_batch_size: Optional[int] = None
  gradient_accumulation_steps: Optional[int] = None

  def __post_init__(self):
    for name, value in dataclasses.asdict(self).items():
      if name == "steps" or value is not None:
        check_number(f"{name} of a phase", value, least=1, whole=True)


@dataclasses.dataclass(frozen=True)
class TrainConfig:
  """The settings of a training run.

  Attributes (only those without a flag of the same name):
    model_dir: the folder for checkpoints, logs and run.json.
    phases: the parts of the run, in order; () is one part with all steps.
    random_depths: numbers of layers, of which each update draws one; () always
      uses the depth of the model.
    beta_1: the decay of the first moment.
    init_checkpoint: the weights to start from if model_dir has no checkpoint.
    seed: the seed of initial weights, data order and dropout.

  Raises (in the constructor):
    ValueError: a value is out of range, or two values contradict each other.
  """

  model_dir: str
  num_train_steps: int = setting(125000, "Number of updates.", least=1)
  num_warmup_steps: int = setting(
    3125, "Updates over which the learning rate rises from 0.", least=0
  )
  learning_rate: Optional[float] = setting(
    None,
    "Peak learning rate; by default 0.00176 * sqrt(train_batch_size / 4096), "
    "for LAMB.",
    above=0,
  )
  train_batch_size: int = setting(
    4096,
    "Examples in one update; with --phase_steps, one value or a list.",
    least=1,
    most=_MOST_EXAMPLES,
  )
  gradient_accumulation_steps: int = setting(
    1,
    "Micro-batches in one update, to save memory; with --phase_steps, one "
    "value or a list.",
    least=1,
  )
  phases: tuple[Phase, ...] = ()
  random_depths: tuple[int, ...] = ()
  xla: bool = setting(
    False,
    "Compile the forward and backward pass with XLA; slower on CPUs. Dropout "
    "draws different masks than without.",
  )
  compile_chains: bool = setting(
    True,
    "Compile chains of element-wise operations with XLA. --nocompile_chains is "
    "for devices that XLA cannot compile for.",
  )
  attention: str = setting(
    "plain",
    "How attention without dropout is computed: by single operations; "
    "compiled, as one program of XLA, which keeps no scores for the backward "
    "pass; or fused, by cuDNN's kernel in half precision on GPUs. On TPUs, XLA "
    "compiles the whole step anyway.",
    ATTENTIONS,
  )
  eval_batch_size: int = setting(
    64, "Held-out examples in one batch.", least=1, most=_MOST_EXAMPLES
  )
  optimizer: str = setting(
    "lamb", "How weights are updated; see docs/training.md.", OPTIMIZERS
  )
  weight_decay: float = setting(0.01, "Weight decay.", least=0)
  beta_1: float = setting(0.9, least=0, below=1)
  beta_2: float = setting(
    0.999, "Decay of the second moment.", least=0, below=1
  )
  bias_correction: bool = setting(
    False, "Correct the bias of the moments toward zero."
  )
  learning_rate_decay: str = setting(
    "original",
    "Decay from step 0, as in the original (the rate drops when the warm-up "
    "ends), or continuously from the end of the warm-up.",
    DECAYS,
  )
  freeze_encoder: bool = setting(
    False, "Train only the heads, the pooler and the adapters."
  )
  clip_norm: float = setting(1.0, "Global norm to clip gradients to.", above=0)
  steps_per_loop: int = setting(100, "Updates between two log lines.", least=1)
  eval_steps: int = setting(
    1000,
    "Updates between two evaluations; 0 evaluates only at each start, between "
    "phases and after the last update, and keeps no best checkpoint.",
    least=0,
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
    least=0,
  )
  save_checkpoints_steps: int = setting(
    1000, "Updates between two checkpoints.", least=1
  )
  keep_checkpoint_max: int = setting(
    5, "How many checkpoints to keep.", least=1
  )
  init_checkpoint: str = ""
  profiler_port: int = setting(
    0,
    "Port at which TensorBoard can capture profiles; 0: none.",
    least=0,
    most=65535,
  )
  seed: int = setting(12345, least=0, most=2**32 - 1)  # NumPy's limits.

  def __post_init__(self):
    if re.search(r"[*?[]", self.model_dir):
      raise ValueError(
        f"the folder {self.model_dir!r} cannot be that of a run, because "
        "TensorFlow finds no checkpoint in it again: choose a name without "
        "*, ? and [."
      )
    check(self)
    if self.learning_rate is None:
      # Scaling by the square root of the batch size keeps the noise of an
      # update constant (arXiv 1904.00962). Without, the loss at small batches
      # jumps and stays high (google-research/albert issues 29 and 111).
      rate = _PAPER_RATE * math.sqrt(self.train_batch_size / _PAPER_BATCH)
      object.__setattr__(self, "learning_rate", rate)
    batch, parts = self.train_batch_size, self.gradient_accumulation_steps
    if batch % parts:
      raise ValueError(
        f"train_batch_size {batch} cannot be cut into {parts} equal "
        "micro-batches: choose a gradient_accumulation_steps that divides it."
      )
    self._check_phases()
    if self.attention != "plain" and not self.compile_chains:
      raise ValueError(
        f"attention {self.attention!r} is compiled by XLA, which "
        "--nocompile_chains avoids: leave out one of both."
      )
    if self.freeze_encoder and not self.init_checkpoint:
      raise ValueError(
        "freeze_encoder would keep random weights: give an init_checkpoint."
      )
    if self.num_warmup_steps > self.num_train_steps:
      raise ValueError(
        f"num_warmup_steps {self.num_warmup_steps} must be between 0 and "
        f"num_train_steps {self.num_train_steps}."
      )

  def _check_phases(self) -> None:
    for depth in self.random_depths:
      check_number("random_depths", depth, least=1, whole=True)
    patience = self.early_stopping_evaluations
    if patience and not self.eval_steps:
      raise ValueError(
        f"early_stopping_evaluations {patience} needs evaluations during the "
        "run, but eval_steps is 0."
      )
    if patience and self.phases:
      raise ValueError(
        f"early_stopping_evaluations {patience} cannot be used with phases: "
        "losses of different phases cannot be compared."
      )
    total = self.phase_ends[-1]
    if total != self.num_train_steps:
      raise ValueError(
        f"the phases have {total:,} steps together, but num_train_steps is "
        f"{self.num_train_steps:,}: give the sum, or leave it out."
      )
    for index in range(len(self.phases)):
      self.in_phase(index)  # Checks the batch size of the phase.

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

  def keeps_best_of(self, step: int) -> bool:
    """Returns whether an evaluation at `step` counts for the best checkpoint.

    Evaluations at the start of a resumed run do not count, because the
    uninterrupted run does not make them.
    """
    if not self.eval_steps or not step:
      return False
    return step % self.eval_steps == 0 or step in self.phase_ends

  def in_phase(self, index: int) -> TrainConfig:
    """Returns the settings of one phase."""
    if not self.phases:
      return self
    own = {
      name: getattr(self.phases[index], name) or getattr(self, name)
      for name in ("train_batch_size", "gradient_accumulation_steps")
    }
    return dataclasses.replace(self, phases=(), **own)


def whole_numbers(name: str, text: str) -> tuple[int, ...]:
  """Parses the value of a setting such as "112500,12500"."""
  try:
    return tuple(int(part) for part in text.split(","))
  except ValueError:
    raise ValueError(
      f"{name} must be integers separated by commas, got {text!r:.60}."
    ) from None


def for_finetuning(
  paper_rate: float, hidden_size: int
) -> tuple[dict[str, Any], str]:
  """Returns the default settings that depend on the size, and the reason.

  They are fields of `TrainConfig`. Models of the paper's sizes have its rate
  and its optimizer; smaller models have a higher rate, for which the moments
  must be corrected.
  """
  size = _PAPER_HIDDEN_SIZE
  if hidden_size >= size:
    reason = f"the default for hidden_size {size} and more"
    return {"learning_rate": paper_rate}, reason
  share = min(_MEASURED_HIDDEN_SIZE / hidden_size, 1.0)
  rate = max(float(f"{_MEASURED_RATE * share:.2g}"), paper_rate)
  return {"learning_rate": rate, "bias_correction": True}, (
    f"with bias correction, the default for hidden_size {hidden_size}; "
    f"{paper_rate:g} is for {size} and more"
  )
