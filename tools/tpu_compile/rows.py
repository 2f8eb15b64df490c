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
from official_albert.settings import check, check_number, setting
from official_albert.tools.cli import command_line

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
    check_number("max_seq_length", self.max_seq_length, 3, most)
    if self.batch_size % self.gradient_accumulation_steps:
      raise ValueError(
        f"batch_size {self.batch_size} cannot be cut into "
        f"{self.gradient_accumulation_steps} equal micro-batches: choose a "
        "gradient_accumulation_steps that divides it."
      )


def find_environment() -> str:
  """Returns the interpreter of the compiler's environment."""
  # Its JAX has wheels for Python 3.11 to 3.14.
  return command_line.find_environment(VENV, _REQUIREMENTS, "3.12")


def compile_row(
  name: str, step: Step, lowered: str, topology: str, python: str
) -> dict[str, Any]:
  """Compiles the file `lowered` of a step's HloModuleProto by `python`.

  Raises ValueError if the compiler rejects the step, but not for its memory.
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
  answer = json.loads(done.stdout.splitlines()[-1])
  about = {"name": name, "step": dataclasses.asdict(step)}
  return {**about, "topology": topology, "compiled": answer}


def cells(row: Mapping[str, Any]) -> dict[str, str]:
  """Returns the cells of a table by the names of their columns."""
  step, answer = Step(**row["step"]), row["compiled"]
  name = row["name"] + ", recomputed" * step.recompute_activations
  flops = answer.get("flops", 0)
  if step.gradient_accumulation_steps > 1:
    name += f", {step.gradient_accumulation_steps} micro-batches"
    flops = 0  # The compiler counts the body of the loop over them once.
  return {
    "model": name,
    "task": step.task,
    "S": str(step.max_seq_length),
    "batch a device": str(step.batch_size),
    "topology": f"{row['topology']}, {answer['devices']} devices",
    "HBM used": f"{answer['used'] / 2**30:.2f} GiB",
    "of": f"{answer['available'] / 2**30:.2f} GiB",
    "TFLOP": f"{flops / 1e12:.2f}" if flops else "",
    "compiled in": f"{answer['seconds']:.0f} s",
    "fits": "yes" if answer["fits"] else "no",
  }
