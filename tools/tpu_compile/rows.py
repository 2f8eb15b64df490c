"""Steps, and the rows that a topology's compiler gives for them.

JAX's requirements conflict with TensorFlow's, so it runs in its own process and
virtual environment.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import subprocess
from typing import Any, Mapping

from official_albert import train_config
from official_albert.settings import check, setting
from official_albert.tasks.pretraining import data
from official_albert.tools.cli import child_programs
from official_albert.tools.tpu_compile.compiler import Compiled, generation

_ROOT = pathlib.Path(__file__).resolve().parents[2]
VENV = _ROOT / ".venv-tpu-compile"
_REQUIREMENTS = _ROOT / "requirements-tpu-compile.txt"

TASKS = (
  "pretraining",
  "classification",
  "regression",
  "squad",
  "squad2",
  "multiple_choice",
)
# The parts of a run that compute on the devices.
MODES = ("training", "evaluation", "prediction")


@dataclasses.dataclass(frozen=True)
class Step:
  """One training step of one replica, or one batch of held-out examples.

  `config` is `AlbertConfig.to_dict`. An example of multiple choice has four
  sequences.
  """

  config: Mapping[str, Any]
  task: str = setting("pretraining", "Objective.", TASKS)
  mode: str = setting("training", "Part of a run that is compiled.", MODES)
  batch_size: int = setting(
    32, "Examples per core (v2, v3) or chip in one update.", least=1
  )
  max_seq_length: int = setting(512, "Tokens per sequence.")
  optimizer: str = setting(
    "lamb", "Optimizer of the step.", train_config.OPTIMIZERS
  )
  precision: str = setting(
    "mixed_bfloat16",
    "Precision of the step.",
    ("mixed_bfloat16", "float32"),  # TPUs do not support float16.
  )
  recompute_activations: bool = setting(
    False, "Recompute activations in the gradient, to save memory."
  )
  gradient_accumulation_steps: int = setting(
    1, "Micro-batches in one update, to save memory.", least=1
  )
  random_depths: tuple[int, ...] = ()

  def __post_init__(self):
    check(self)
    most = self.config["max_position_embeddings"]
    if not 3 <= self.max_seq_length <= most:
      raise ValueError(
        f"max_seq_length must be from 3 to {most}, the model's position "
        f"embeddings, got {self.max_seq_length}."
      )
    if self.batch_size % self.gradient_accumulation_steps:
      raise ValueError(
        f"batch_size {self.batch_size} cannot be cut into "
        f"{self.gradient_accumulation_steps} equal micro-batches: choose a "
        "gradient_accumulation_steps that divides it."
      )
    if (self.task, self.mode) == ("pretraining", "prediction"):
      raise ValueError("pretraining predicts nothing: choose another mode.")
    # JSON has lists only.
    object.__setattr__(self, "random_depths", tuple(self.random_depths))

  @property
  def predictions(self) -> int:
    """Masked tokens per sequence, 15%."""
    return data.num_to_predict(self.max_seq_length)

  def to_json(self) -> str:
    """Returns the program's argument; equal steps give equal text."""
    return json.dumps(dataclasses.asdict(self), sort_keys=True)


HEAD = (
  *("model", "task", "S", "batch", "topology", "HBM used", "of", "TFLOP"),
  *("compiled in", "fits"),
)


def find_environment() -> str:
  """Returns the interpreter of the compiler's environment."""
  # Its JAX has wheels for Python 3.11 to 3.14.
  return child_programs.find_environment(VENV, _REQUIREMENTS, "3.12")


@dataclasses.dataclass(frozen=True)
class Row:
  """A step of a named model, a topology, and the compiler's answer."""

  name: str
  step: Step
  topology: str
  compiled: Compiled

  def to_json(self) -> str:
    """Returns one line."""
    return json.dumps(dataclasses.asdict(self), sort_keys=True)

  @classmethod
  def from_json(cls, text: str) -> Row:
    """Parses a line of `to_json`."""
    values = json.loads(text)
    step, compiled = Step(**values["step"]), Compiled(**values["compiled"])
    return cls(values["name"], step, values["topology"], compiled)

  def cells(self) -> tuple[str, ...]:
    """Returns the cells below `HEAD`."""
    step, answer = self.step, self.compiled
    depths = " ".join(map(str, step.random_depths))
    micro_batches = step.gradient_accumulation_steps
    model = {
      self.name: True,
      step.mode: step.mode != "training",
      "recomputed": step.recompute_activations,
      f"{micro_batches} micro-batches": micro_batches > 1,
      f"depths {depths}": depths,
    }
    device = generation(self.topology).device
    # The compiler counts the body of the loop over micro-batches once.
    flops = answer.flops if micro_batches == 1 else 0.0
    return (
      ", ".join(part for part, is_shown in model.items() if is_shown),
      step.task,
      str(step.max_seq_length),
      f"{step.batch_size} a {device}",
      f"{self.topology}, {answer.devices} {device}s",
      f"{answer.used / 2**30:.2f} GiB",
      f"{answer.available / 2**30:.2f} GiB",
      f"{flops / 1e12:.2f}" if flops else "",
      f"{answer.seconds:.0f} s",
      "yes" if answer.fits else "no",
    )


def compile_row(
  name: str, step: Step, lowered: str, topology: str, python: str
) -> Row:
  """Compiles a lowered step.

  Args:
    name: that of its model, for tables.
    step: the step.
    lowered: the file of its serialized HloModuleProto.
    topology: such as "v3:2x2".
    python: the interpreter that `find_environment` returns.

  Raises:
    ValueError: the compiler rejects the step for another reason than memory.
  """
  module = "official_albert.tools.tpu_compile.compiler"
  done = subprocess.run(
    [python, "-m", module, lowered, topology],
    cwd=_ROOT,
    capture_output=True,
    text=True,
  )
  if done.returncode < 0:
    raise ValueError(
      f"compiling for {topology} failed: signal {-done.returncode} ended the "
      "process, perhaps because this machine's memory ran out."
    )
  if done.returncode:
    lines = done.stderr.strip().splitlines() or ["no output"]
    raise ValueError(f"compiling for {topology} failed: {lines[-1]}")
  answer = Compiled(**json.loads(done.stdout.splitlines()[-1]))
  return Row(name, step, topology, answer)
