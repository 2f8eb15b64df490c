"""Compiles a lowered step for a topology, which gives a row of a table.

JAX's requirements conflict with TensorFlow's, so it runs in its own process and
virtual environment.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import subprocess

from official_albert.tools.cli import child_programs
from official_albert.tools.tpu_compile.compiler import Compiled, generation
from official_albert.tools.tpu_compile.step import Step

_ROOT = pathlib.Path(__file__).resolve().parents[2]
VENV = _ROOT / ".venv-tpu-compile"
REQUIREMENTS = _ROOT / "requirements-tpu-compile.txt"
# The versions of Python for which this JAX has wheels.
_OLDEST, _NEWEST = (3, 11), (3, 14)

HEAD = (
  *("model", "task", "S", "batch", "topology", "HBM used", "of", "TFLOP"),
  *("compiled in", "fits"),
)


def make_environment(folder: pathlib.Path = VENV) -> str:
  """Creates the compiler's environment if needed; returns its interpreter."""
  return child_programs.make_environment(folder, REQUIREMENTS, _OLDEST, _NEWEST)


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
    model = [self.name]
    if step.mode != "training":
      model.append(step.mode)
    if step.recompute_activations:
      model.append("recomputed")
    if step.gradient_accumulation_steps > 1:
      model.append(f"{step.gradient_accumulation_steps} micro-batches")
    if step.random_depths:
      model.append(f"depths {' '.join(map(str, step.random_depths))}")
    device = generation(self.topology).device
    # The compiler counts the body of the loop over micro-batches once.
    flops = answer.flops if step.gradient_accumulation_steps == 1 else 0.0
    return (
      ", ".join(model),
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
    python: the interpreter that `make_environment` returns.

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
