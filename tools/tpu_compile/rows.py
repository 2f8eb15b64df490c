"""Stores compiled steps as rows of a file and shows them in tables."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Iterable, Optional, Sequence

from official_albert import files
from tools.cli import printing
from tools.tpu_compile.compiler import Compiled, generation
from tools.tpu_compile.step import Step

HEAD = (
  *("model", "task", "S", "batch", "topology", "HBM used", "of", "TFLOP"),
  *("compiled in", "fits"),
)


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
  def model(self) -> str:
    """The name of the model for tables."""
    recomputed = self.step.recompute_activations
    return f"{self.name}, recomputed" if recomputed else self.name

  def cells(self) -> tuple[str, ...]:
    """Returns the cells below `HEAD`."""
    step, answer = self.step, self.compiled
    device = generation(self.topology).device
    return (
      self.model,
      step.task,
      str(step.max_seq_length),
      f"{step.batch_size} a {device}",
      f"{self.topology}, {answer.devices} {device}s",
      f"{_gib(answer.used)} GiB",
      f"{_gib(answer.available)} GiB",
      f"{answer.flops / 1e12:.2f}" if answer.flops else "",
      f"{answer.seconds:.0f} s",
      "yes" if answer.fits else "no",
    )


class Store:
  """Rows in a file of JSON lines, so an interruption loses no work."""

  def __init__(self, path: str = ""):
    """Reads the file if there is one; "" stores nothing."""
    self._path = path
    self._rows: dict[tuple[str, str], Row] = {}
    if not path:
      return
    content = b""
    if os.path.exists(path):
      with open(path, "rb") as file:
        content = file.read()
    for number, line in enumerate(content.splitlines(), 1):
      try:
        self._remember(Row.from_json(line.decode("utf-8")))
      except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
          f"{path}, line {number}: not a row of this program ({error!r}): "
          "choose a file that this program wrote, or a new one."
        ) from error
    self._write()  # Tests that it is writable before minutes are spent.

  def _remember(self, row: Row) -> None:
    self._rows[row.step.to_json(), row.topology] = row

  def _write(self) -> None:
    lines = (row.to_json() + "\n" for row in self._rows.values())
    files.write_text(self._path, "".join(lines))

  def find(self, step: Step, topology: str) -> Optional[Row]:
    """Returns the row of a step and topology, if it is known."""
    return self._rows.get((step.to_json(), topology))

  def add(self, row: Row) -> None:
    """Stores a row."""
    self._remember(row)
    if self._path:
      self._write()


def matrix(
  rows: Iterable[Row], topologies: Sequence[str], searched: bool
) -> str:
  """Returns a table with a column per topology.

  Args:
    rows: of one task; a line per model and length, in their order.
    topologies: the columns.
    searched: show the largest batch that fits, instead of the memory of each
      row's batch.
  """
  lines: dict[tuple, dict[str, Row]] = {}
  for row in rows:
    key: tuple = (row.model, row.step.max_seq_length)
    if not searched:
      key += (row.step.batch_size,)
    line = lines.setdefault(key, {})
    line[row.topology] = max(line.get(row.topology, row), row, key=_rank)
  heads = ["model", "S"] + ([] if searched else ["batch"])
  for topology in topologies:
    kind = generation(topology)
    name = topology.partition(":")[0]
    heads.append(f"{name} {kind.device}, {kind.hbm_gib:.2f} GiB")
  table = [
    [*key, *(_cell(line.get(topology), searched) for topology in topologies)]
    for key, line in lines.items()
  ]
  return printing.table(heads, table)


def _gib(size: int) -> str:
  return f"{size / 2**30:.2f}"


def _rank(row: Row) -> tuple[bool, int]:
  """Ranks the largest batch that fits first, then the smallest other one."""
  fits, batch = row.compiled.fits, row.step.batch_size
  return fits, batch if fits else -batch


def _cell(row: Optional[Row], searched: bool) -> str:
  if row is None:
    return "not tried"
  size, batch = _gib(row.compiled.used), row.step.batch_size
  if row.compiled.fits:
    return f"{batch} ({size})" if searched else size
  return f"not {batch}: {size}" if searched else f"no: {size}"
