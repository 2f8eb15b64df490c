"""Lowers and compiles steps in two processes, and finds the largest batch.

Lowering needs TensorFlow and compiling needs JAX, whose requirements conflict.
Neither process returns its memory before it ends.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import subprocess
import sys
import tempfile
from typing import Callable, Mapping, Sequence

from tools.tpu_compile import compiler, environment, rows
from tools.tpu_compile.step import Step

# Much longer than the slowest step takes.
_TIMEOUT_SECONDS = 3600
# Lowered steps, about 5 MB each: a search for several topologies needs the
# first batches again.
_KEPT = 16
# Large batches are multiples of it, like the TPU's lanes.
BATCH_MULTIPLE = 8
_SMALL_BATCHES = (4, 2, 1)
_LARGEST_BATCH = 4096


class StepCompiler:
  """Compiles steps that are not stored yet; a context manager."""

  def __init__(self, python: str, store: rows.Store):
    """Compiles nothing yet; `python` is the environment's interpreter."""
    self._python = python
    self._store = store
    self._folder = tempfile.TemporaryDirectory(prefix="compile_for_tpu")
    self._numbers = itertools.count()
    self._lowered: dict[str, str] = {}

  def __enter__(self) -> StepCompiler:
    return self

  def __exit__(self, *unused) -> None:
    self._folder.cleanup()

  def compile(self, name: str, step: Step, topology: str) -> rows.Row:
    """Returns the row of a step; `name` is that of the model in tables."""
    known = self._store.find(step, topology)
    if known:
      return dataclasses.replace(known, name=name)
    text = step.to_json()
    if text not in self._lowered:
      path = os.path.join(self._folder.name, f"{next(self._numbers)}.hlo")
      _run(
        [sys.executable, "-m", "tools.tpu_compile.step", text, path],
        "lowering the step",
        {},
      )
      if len(self._lowered) == _KEPT:
        os.remove(self._lowered.pop(next(iter(self._lowered))))
      self._lowered[text] = path
    path = self._lowered[text]
    answer = _run(
      [self._python, "-m", "tools.tpu_compile.compiler", path, topology],
      f"compiling for {topology}",
      compiler.ENVIRONMENT,
    )
    compiled = compiler.Compiled(**json.loads(answer.splitlines()[-1]))
    row = rows.Row(name, step, topology, compiled)
    self._store.add(row)
    return row


def _run(command: Sequence[str], what: str, variables: Mapping) -> str:
  """Returns the output of a command, run with additional variables."""
  try:
    done = subprocess.run(
      command,
      cwd=environment.ROOT,
      env={**os.environ, **variables},
      capture_output=True,
      text=True,
      timeout=_TIMEOUT_SECONDS,
    )
  except subprocess.TimeoutExpired as error:
    raise ValueError(f"{what} took over {_TIMEOUT_SECONDS} s.") from error
  if done.returncode < 0:
    raise ValueError(
      f"{what} failed: signal {-done.returncode} ended the process, perhaps "
      "because this machine's memory ran out."
    )
  if done.returncode:
    lines = done.stderr.strip().splitlines() or ["no output"]
    raise ValueError(f"{what} failed: {lines[-1]}")
  return done.stdout


def largest_batch(
  fits: Callable[[int], bool], start: int = 32, limit: int = _LARGEST_BATCH
) -> int:
  """Finds the largest batch that fits.

  Doubles or halves `start` until one batch fits and another does not, then
  bisects. Batches are multiples of `BATCH_MULTIPLE`, or 4, 2 and 1. Returns 0
  if not even 1 fits.
  """
  step = BATCH_MULTIPLE
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
