"""Asks the TPU's compiler about steps: one process lowers, another compiles.

The two need environments of their own, and neither gives its memory back.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import Sequence

from tools.tpu_compile import compiler as tpu_compiler
from tools.tpu_compile import environment as tpu_venv
from tools.tpu_compile import rows as tpu_rows
from tools.tpu_compile.step import Step

# Many times what the slowest takes.
_SECONDS = 3600
# Lowered steps, about 5 MB each: a search for several topologies comes back to
# the batch that it started from.
_KEPT = 16


class Witness:
  """Knows rows, and finds out about others; a context manager."""

  def __init__(self, python: pathlib.Path, store: tpu_rows.Store):
    """Keeps its arguments.

    Args:
      python: the interpreter of the compiler's environment.
      store: of rows that are known, and those to come.
    """
    self._python = str(python)
    self._store = store
    self._folder = tempfile.TemporaryDirectory(prefix="compile_for_tpu")
    self._numbers = itertools.count()
    self._lowered: dict[str, str] = {}

  def __enter__(self) -> Witness:
    return self

  def __exit__(self, *unused) -> None:
    self._folder.cleanup()

  def ask(self, name: str, step: Step, topology: str) -> tpu_rows.Row:
    """The row of a step; compiled now unless it is known.

    Args:
      name: of the model, for tables.
      step: what to compile.
      topology: what for, one that `tpu_compiler.generation` knows.

    Raises:
      ValueError: the step cannot be lowered, or the compiler refuses it for
        another reason than memory.
    """
    known = self._store.find(step, topology)
    if known:
      return dataclasses.replace(known, name=name)
    path = self._lower(step)
    answer = _run(
      [self._python, "-m", "tools.tpu_compile.compiler", path, topology],
      f"compiling for {topology}",
      {**os.environ, **tpu_compiler.ENVIRONMENT},
    )
    compiled = tpu_compiler.Compiled(**json.loads(answer.splitlines()[-1]))
    row = tpu_rows.Row(name, step, topology, compiled)
    self._store.add(row)
    return row

  def _lower(self, step: Step) -> str:
    """The file of the lowered step; those of the last few are kept."""
    text = step.to_json()
    if text not in self._lowered:
      path = os.path.join(self._folder.name, f"{next(self._numbers)}.hlo")
      _run(
        [sys.executable, "-m", "tools.tpu_compile.step", text, path],
        "lowering the step",
        dict(os.environ),
      )
      if len(self._lowered) == _KEPT:
        os.remove(self._lowered.pop(next(iter(self._lowered))))
      self._lowered[text] = path
    return self._lowered[text]


def _run(command: Sequence[str], what: str, environment: dict[str, str]) -> str:
  """What the command printed.

  Raises:
    ValueError: it failed; with its last line.
  """
  try:
    done = subprocess.run(
      list(command),
      cwd=tpu_venv.ROOT,
      env=environment,
      capture_output=True,
      text=True,
      timeout=_SECONDS,
      check=False,
    )
  except subprocess.TimeoutExpired as error:
    raise ValueError(f"{what} took over {_SECONDS} s.") from error
  if done.returncode < 0:
    raise ValueError(
      f"{what} failed: the process was ended by signal {-done.returncode}; "
      "that may be for want of memory on this machine."
    )
  if done.returncode:
    lines = done.stderr.strip().splitlines() or ["it said nothing"]
    raise ValueError(f"{what} failed: {lines[-1]}")
  return done.stdout
