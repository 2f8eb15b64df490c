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
from official_albert.tools.tpu_compile import compiler

_ROOT = pathlib.Path(__file__).resolve().parents[2]
VENV = _ROOT / ".venv-tpu-compile"
_REQUIREMENTS = _ROOT / "requirements-tpu-compile.txt"

# A fine-tuning task with the head of each kind; classification has two classes.
TASKS = {
  "pretraining": "",
  "classification": "mrpc",
  "regression": "stsb",
  "squad": "squad_v1",
  "squad2": "squad_v2",
  "multiple_choice": "race",
}


@dataclasses.dataclass(frozen=True)
class Step:
  """One training step of one replica.

  `config` is `AlbertConfig.to_dict`. An example of multiple choice has four
  sequences.
  """

  config: Mapping[str, Any]
  task: str = setting("pretraining", "Objective.", [*TASKS])
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

  @property
  def predictions(self) -> int:
    """Masked tokens per sequence, 15%."""
    return data.num_to_predict(self.max_seq_length)


def find_environment() -> str:
  """Returns the interpreter of the compiler's environment."""
  # Its JAX has wheels for Python 3.11 to 3.14.
  return child_programs.find_environment(VENV, _REQUIREMENTS, "3.12")


def compile_row(
  name: str, step: Step, lowered: str, topology: str, python: str
) -> dict[str, Any]:
  """Compiles a lowered step.

  Args:
    name: that of its model, for tables.
    step: the step.
    lowered: the file of its serialized HloModuleProto.
    topology: such as "v3:2x2".
    python: the interpreter that `find_environment` returns.

  Returns:
    The name, step and topology, and `compiled`: see `compiler.compile_step`.

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
  if done.returncode:
    reason = (done.stderr.strip().splitlines() or ["no output"])[-1]
    if done.returncode == -9:
      reason = "it was killed, perhaps because this machine's memory ran out."
    raise ValueError(f"compiling for {topology} failed: {reason}")
  return {
    "name": name,
    "step": dataclasses.asdict(step),
    "topology": topology,
    "compiled": json.loads(done.stdout.splitlines()[-1]),
  }


def cells(row: Mapping[str, Any]) -> dict[str, str]:
  """Returns the cells of a table by the names of their columns."""
  step, answer = Step(**row["step"]), row["compiled"]
  micro_batches = step.gradient_accumulation_steps
  name = row["name"] + ", recomputed" * step.recompute_activations
  # The compiler counts the body of the loop over micro-batches once.
  flops = answer.get("flops") if micro_batches == 1 else 0
  if micro_batches > 1:
    name += f", {micro_batches} micro-batches"
  device = compiler.generation(row["topology"]).device
  return {
    "model": name,
    "task": step.task,
    "S": str(step.max_seq_length),
    "batch": f"{step.batch_size} a {device}",
    "topology": f"{row['topology']}, {answer['devices']} {device}s",
    "HBM used": f"{answer['used'] / 2**30:.2f} GiB",
    "of": f"{answer['available'] / 2**30:.2f} GiB",
    "TFLOP": f"{flops / 1e12:.2f}" if flops else "",
    "compiled in": f"{answer['seconds']:.0f} s",
    "fits": "yes" if answer["fits"] else "no",
  }
