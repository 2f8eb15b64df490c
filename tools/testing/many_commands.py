"""Runs a program many times in one process, for tests.

    python -m tools.testing.many_commands run_finetuning \\
      '[["--task=cola"], ["--x"]]'

Loading TensorFlow takes longer than most commands. Each command line is parsed
and ends as it would in a process of its own. Prints a JSON list of [exit code,
stdout, stderr]; `run` starts such a process.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import pathlib
import subprocess
import sys
from typing import NamedTuple, Sequence

from absl.testing import flagsaver

from tools.cli import child_programs, command_line

_ROOT = pathlib.Path(__file__).resolve().parents[2]


class Result(NamedTuple):
  """Exit code and output of a command."""

  code: int
  out: str
  err: str


def run(program: str, lines: Sequence[Sequence[str]]) -> list[Result]:
  """Runs `tools.PROGRAM` with each of the command lines, without GPUs.

  Raises:
    RuntimeError: a command ended with a traceback, which is a bug.
  """
  done = subprocess.run(
    [sys.executable, "-m", "tools.testing.many_commands", program]
    + [json.dumps(lines)],
    cwd=_ROOT,
    capture_output=True,
    text=True,
    env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
  )
  if done.returncode:
    raise RuntimeError(done.stderr)
  return [Result(*values) for values in json.loads(done.stdout)]


def _run_one(program, arguments: Sequence[str]) -> Result:
  out, err, code = io.StringIO(), io.StringIO(), 0
  sys.argv = [program.__name__.rsplit(".", 1)[-1], *arguments]
  saved = flagsaver.save_flag_values()
  try:
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
      command_line.run(program.main, getattr(program, "MAX_ARGUMENTS", 0))
  except SystemExit as exit_:
    code = exit_.code or 0
  finally:
    flagsaver.restore_flag_values(saved)
  return Result(code, out.getvalue(), err.getvalue())


def main() -> None:
  name, lines = child_programs.arguments("tests", str, json.loads)
  program = importlib.import_module(f"tools.{name}")
  print(json.dumps([_run_one(program, line) for line in lines]))


if __name__ == "__main__":
  main()
