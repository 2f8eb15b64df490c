"""Compiles steps into rows, keeps rows in a file and shows them in tables.

Lowering needs TensorFlow and compiling needs JAX, whose requirements conflict.
So each runs in its own process, and JAX in its own virtual environment.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
from typing import Callable, Iterable, Sequence

from official_albert import files
from official_albert.tools.cli import child_programs, printing
from official_albert.tools.tpu_compile.compiler import Compiled, generation
from official_albert.tools.tpu_compile.step import Step

_ROOT = pathlib.Path(__file__).resolve().parents[2]
VENV = _ROOT / ".venv-tpu-compile"
REQUIREMENTS = _ROOT / "requirements-tpu-compile.txt"
# The versions of Python for which this JAX has wheels.
_OLDEST, _NEWEST = (3, 11), (3, 14)
# Large batches are multiples of it, like the TPU's lanes.
_BATCH_MULTIPLE = 8
_SMALL_BATCHES = (4, 2, 1)
_LARGEST_BATCH = 4096

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

  @property
  def key(self) -> tuple[str, str]:
    """What was compiled, whatever the name of the model."""
    return self.step.to_json(), self.topology

  @property
  def model(self) -> str:
    """The name of the model for tables, with what is special about the step."""
    step, notes = self.step, [self.name]
    if step.mode != "training":
      notes.append(step.mode)
    if step.recompute_activations:
      notes.append("recomputed")
    if step.gradient_accumulation_steps > 1:
      notes.append(f"{step.gradient_accumulation_steps} micro-batches")
    if step.random_depths:
      notes.append(f"depths {' '.join(map(str, step.random_depths))}")
    return ", ".join(notes)

  def cells(self) -> tuple[str, ...]:
    """Returns the cells below `HEAD`."""
    step, answer = self.step, self.compiled
    device = generation(self.topology).device
    # The compiler counts the body of the loop over micro-batches once.
    flops = answer.flops if step.gradient_accumulation_steps == 1 else 0.0
    return (
      self.model,
      step.task,
      str(step.max_seq_length),
      f"{step.batch_size} a {device}",
      f"{self.topology}, {answer.devices} {device}s",
      f"{_gib(answer.used)} GiB",
      f"{_gib(answer.available)} GiB",
      f"{flops / 1e12:.2f}" if flops else "",
      f"{answer.seconds:.0f} s",
      "yes" if answer.fits else "no",
    )


def compile_row(
  name: str, step: Step, topology: str, python: str, folder: str
) -> Row:
  """Lowers and compiles a step; `name` is its model's for tables.

  `folder` holds the lowered step for each batch size, so that it is lowered
  once for all topologies. Steps that differ otherwise need other folders.
  """
  lowered = os.path.join(folder, f"{step.batch_size}.hlo")
  module = "official_albert.tools.tpu_compile"
  if not files.exists(lowered):
    command = [sys.executable, "-m", f"{module}.step", step.to_json(), lowered]
    _run(command, "lowering the step")
  answer = _run(
    [python, "-m", f"{module}.compiler", lowered, topology],
    f"compiling for {topology}",
  )
  compiled = Compiled(**json.loads(answer.splitlines()[-1]))
  return Row(name, step, topology, compiled)


def _run(command: Sequence[str], what: str) -> str:
  """Returns the standard output of a command."""
  done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True)
  if done.returncode < 0:
    raise ValueError(
      f"{what} failed: signal {-done.returncode} ended the process, perhaps "
      "because this machine's memory ran out."
    )
  if done.returncode:
    lines = done.stderr.strip().splitlines() or ["no output"]
    raise ValueError(f"{what} failed: {lines[-1]}")
  return done.stdout


def largest_batch(fits: Callable[[int], bool], start: int) -> int:
  """Finds the largest batch that fits, at most 4,096.

  Doubles or halves `start` until one batch fits and another does not, then
  bisects. Batches are multiples of 8, or 4, 2 and 1. Returns 0 if not even 1
  fits.
  """
  step, limit = _BATCH_MULTIPLE, _LARGEST_BATCH
  low, high = 0, limit + step  # The largest that fits, the smallest that fails.
  batch = min(max(start // step * step, step), limit)
  while high - low > step:
    if fits(batch):
      low = batch
    else:
      high = batch
    if high > limit:
      batch = min(2 * low, limit)
    else:
      batch = max((low + high) // 2 // step, 1) * step
  return low or next(filter(fits, _SMALL_BATCHES), 0)


def read(path: str) -> dict[tuple[str, str], Row]:
  """Returns the rows of a file by `Row.key`, none if there is no file."""
  lines = []
  with contextlib.suppress(FileNotFoundError):
    lines = files.read_bytes(path).splitlines()
  found = {}
  for number, line in enumerate(lines, 1):
    try:
      row = Row.from_json(line.decode("utf-8"))
    except (KeyError, TypeError, ValueError) as error:
      raise ValueError(
        f"{path}, line {number}: not a row of this program ({error!r}): "
        "choose a file that this program wrote, or a new one."
      ) from error
    found[row.key] = row
  return found


def write(path: str, rows: Iterable[Row]) -> None:
  """Replaces a file of rows."""
  files.write_text(path, "".join(f"{row.to_json()}\n" for row in rows))


def matrix(rows: Iterable[Row], topologies: Sequence[str]) -> str:
  """Returns a table with a line per model and length, a column per topology.

  A cell has a batch size and the memory that it uses, in GiB: the largest batch
  that fits, or the smallest one that does not.
  """
  rows = list(rows)
  lines: dict[tuple, dict[str, str]] = {
    (row.model, row.step.max_seq_length): {} for row in rows
  }
  # The smallest that fails comes after the others, then the largest that fits.
  for row in sorted(
    rows, key=lambda x: x.step.batch_size * (1 if x.compiled.fits else -1)
  ):
    cell = f"{row.step.batch_size} ({_gib(row.compiled.used)})"
    lines[row.model, row.step.max_seq_length][row.topology] = (
      cell if row.compiled.fits else f"not {cell}"
    )
  heads = ["model", "S"]
  for topology in topologies:
    kind, name = generation(topology), topology.partition(":")[0]
    heads.append(f"{name} {kind.device}, {kind.hbm_gib:.2f} GiB")
  table = [
    [*key, *(line[topology] for topology in topologies)]
    for key, line in lines.items()
  ]
  return printing.table(heads, table)


def _gib(size: int) -> str:
  return f"{size / 2**30:.2f}"
