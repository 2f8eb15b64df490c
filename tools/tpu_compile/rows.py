"""What was compiled for which TPU: kept in a file, and shown as tables."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Iterable, Optional, Sequence

from tools.cli import markdown
from tools.tpu_compile import compiler as tpu_compiler
from tools.tpu_compile.step import Step

HEAD = (
  *("model", "task", "S", "batch", "topology", "HBM used", "of", "TFLOP"),
  *("compiled in", "fits"),
)


@dataclasses.dataclass(frozen=True)
class Row:
  """A step, where it was to run, and what the compiler said.

  Attributes:
    name: of the model, for tables.
    step: what was compiled.
    topology: such as "v3:2x2".
    compiled: the compiler's answer.
  """

  name: str
  step: Step
  topology: str
  compiled: tpu_compiler.Compiled

  def to_json(self) -> str:
    """One line."""
    return json.dumps(dataclasses.asdict(self), sort_keys=True)

  @classmethod
  def from_json(cls, text: str) -> Row:
    """Of `to_json`.

    Raises:
      ValueError: not such a line.
    """
    try:
      values = json.loads(text)
      return cls(
        values["name"],
        Step(**values["step"]),
        values["topology"],
        tpu_compiler.Compiled(**values["compiled"]),
      )
    except (KeyError, TypeError, ValueError) as error:
      raise ValueError(f"not a row of this program ({error!r})") from error


# What every line begins with.
_START = b'{"compiled": {"'


def _is_cut(line: bytes) -> bool:
  """Whether an interruption while a row was written may have left this."""
  if not (line.startswith(_START) or _START.startswith(line)):
    return False
  try:
    json.loads(line)
  except ValueError:
    return True
  return False  # It is whole, a row or not.


class Store:
  """Rows that are kept in a file of JSON lines, so that no work is lost."""

  def __init__(self, path: str = ""):
    """Reads the file, if there is one, and drops a row that was cut off.

    Args:
      path: "" keeps nothing.

    Raises:
      OSError: the file cannot be written.
      ValueError: it holds something else, and is left as it is.
    """
    self._path = path
    self._rows: dict[tuple[str, str], Row] = {}
    if not path:
      return
    content = b""
    if os.path.exists(path):
      with open(path, "rb") as file:
        content = file.read()
    *lines, rest = content.split(b"\n")
    for number, line in enumerate(lines, 1):
      self._take(line, number)
    kept = content
    if rest and _is_cut(rest):
      kept = content[: -len(rest)]
    elif rest:
      self._take(rest, len(lines) + 1)
      kept += b"\n"
    with open(path, "ab") as file:
      if len(kept) < len(content):
        file.truncate(len(kept))
      file.write(kept[len(content) :])

  def _take(self, line: bytes, number: int) -> None:
    """Remembers a line of the file."""
    try:
      self._remember(Row.from_json(line.decode("utf-8")))
    except ValueError as error:
      reason = "not text" if isinstance(error, UnicodeDecodeError) else error
      raise ValueError(
        f"{self._path}, line {number}: {reason}: name a file that this program "
        "wrote, or a new one."
      ) from error

  def _remember(self, row: Row) -> None:
    self._rows[row.step.to_json(), row.topology] = row

  def find(self, step: Step, topology: str) -> Optional[Row]:
    """The row of a step and topology, if it is known."""
    return self._rows.get((step.to_json(), topology))

  def add(self, row: Row) -> None:
    """Keeps a row, at once."""
    self._remember(row)
    if self._path:
      with open(self._path, "a", encoding="utf-8") as file:
        file.write(row.to_json() + "\n")


def cells(row: Row) -> tuple[str, ...]:
  """Returns the cells of a row below `HEAD`."""
  step, answer = row.step, row.compiled
  kind = tpu_compiler.generation(row.topology)
  recomputed = ", recomputed" if step.recompute_activations else ""
  return (
    f"{row.name}{recomputed}",
    step.task,
    str(step.max_seq_length),
    f"{step.batch_size} a {kind.device}",
    f"{row.topology}, {answer.devices} {kind.device}s",
    f"{_gib(answer.used)} GiB",
    f"{_gib(answer.available)} GiB",
    f"{answer.flops / 1e12:.2f}" if answer.flops else "",
    f"{answer.seconds:.0f} s",
    "yes" if answer.fits else "no",
  )


def _gib(size: int) -> str:
  return f"{size / 2**30:.2f}"


def matrix(
  rows: Iterable[Row], topologies: Sequence[str], searched: bool
) -> str:
  """A table with a column for each topology.

  Args:
    rows: of one task; a line for each model and length, in the order in which
      they come first.
    topologies: the columns.
    searched: whether the largest batch that fits is shown, or the memory that
      each row's batch takes.
  """
  found: dict[tuple, dict[str, Row]] = {}
  for row in rows:
    step = row.step
    key = (row.name, step.max_seq_length, step.recompute_activations)
    if not searched:
      key += (step.batch_size,)
    by_topology = found.setdefault(key, {})
    known = by_topology.get(row.topology)
    if known is None or _rank(row) > _rank(known):
      by_topology[row.topology] = row
  heads = []
  for topology in topologies:
    kind = tpu_compiler.generation(topology)
    heads.append(
      f"{topology.partition(':')[0]} {kind.device}, {kind.hbm_gib:.2f} GiB"
    )
  first = ["model", "S"] + ([] if searched else ["batch"])
  lines = []
  for (name, length, recomputed, *batch), by_topology in found.items():
    start = [name + (", recomputed" if recomputed else ""), length, *batch]
    lines.append(
      start + [_cell(by_topology.get(t), searched) for t in topologies]
    )
  return markdown.table(first + heads, lines)


def _rank(row: Row) -> tuple[bool, int]:
  """The largest that fits is best; else the smallest that does not."""
  fits, batch = row.compiled.fits, row.step.batch_size
  return fits, batch if fits else -batch


def _cell(row: Optional[Row], searched: bool) -> str:
  if row is None:
    return "not tried"
  answer = row.compiled
  size = f"{_gib(answer.used)}"
  if not answer.fits:
    return f"not {row.step.batch_size}: {size}" if searched else f"no: {size}"
  return f"{row.step.batch_size} ({size})" if searched else size
