"""Runs programs for tests, most of them where TensorFlow is loaded.

Loading TensorFlow takes longer than most commands. A server process, which
loads it once and starts no thread, is forked for each call of `run`. There,
each command line is parsed and ends as it would in a process of its own, as
those of `start` do.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import importlib
import io
import json
import multiprocessing
import os
import pathlib
import subprocess
import sys
import tempfile
import traceback
from typing import Any, Mapping, NamedTuple, Optional, Sequence

from absl import flags
from absl.testing import flagsaver

from official_albert.tools.cli import command_line

ROOT = pathlib.Path(__file__).resolve().parents[2]
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(
  # The first one sets variables that TensorFlow reads while it is loaded.
  ["official_albert", "tensorflow", "tensorflow_text"]
)


class Result(NamedTuple):
  """Exit code and output of a command."""

  code: int
  out: str
  err: str


def start(*arguments: str, **options: Any) -> Result:
  """Runs Python in a new process; `options` are those of `subprocess.run`."""
  done = subprocess.run(
    [sys.executable, *arguments],
    cwd=ROOT,
    capture_output=True,
    text=True,
    **options,
  )
  return Result(done.returncode, done.stdout, done.stderr)


def run(
  program: str,
  lines: Sequence[Sequence[str]],
  environment: Optional[Mapping[str, str]] = None,
  cwd: str = str(ROOT),
  codes: Sequence[int] = (0,),
) -> list[Result]:
  """Runs `tools.PROGRAM` with each of the command lines, without GPUs.

  `environment` has variables besides those of this process. All exit codes must
  be in `codes`. Raises RuntimeError if a command ended with a traceback, which
  is a bug.
  """
  variables = {**os.environ, "CUDA_VISIBLE_DEVICES": "", **(environment or {})}
  receiver, sender = SERVER.Pipe(duplex=False)
  process = SERVER.Process(
    target=_run_all, args=(sender, program, lines, variables, cwd)
  )
  process.start()
  sender.close()
  try:
    results = receiver.recv()
  except EOFError:
    results = f"the process of {program} has ended"
  process.join()
  if isinstance(results, str):
    raise RuntimeError(results)
  for line, result in zip(lines, results, strict=True):
    assert result.code in codes, (line, result)
  return results


def check_refusals(
  program: str, cases: Sequence[tuple], most_lines: int = 1
) -> list[Result]:
  """Runs commands that have to end with one sentence; returns the results.

  A case is the arguments, what the sentence names (a flag, a file, a key), and,
  where it is not 1, the exit code. Before the sentence there may be notes, so
  that stderr has `most_lines`.
  """
  results = run(program, [line for line, *_ in cases], codes=(1, 2))
  for result, (line, named, *code) in zip(results, cases, strict=True):
    *notes, error = result.err.splitlines()
    assert result.code == (code or [1])[0], (line, result)
    assert error.startswith(f"{program}: error: "), (line, result)
    assert len(notes) < most_lines and named in error, (line, result)
  return results


def _run_all(
  sender,
  name: str,
  lines: Sequence[Sequence[str]],
  environment: Mapping[str, str],
  cwd: str,
) -> None:
  """Sends the results, or a traceback."""
  os.chdir(cwd)
  os.environ.clear()
  os.environ.update(environment)
  tempfile.tempdir = None  # The server has read its TMPDIR.
  try:
    program = importlib.import_module(f"official_albert.tools.{name}")
    sender.send([run_here(program, line) for line in lines])
  except Exception:
    sender.send(traceback.format_exc())
  # They remove temporary files. A forked process would skip them.
  atexit._run_exitfuncs()


def run_here(program, arguments: Sequence[str]) -> Result:
  """Runs the main of a module in this process."""
  out, err, code = io.StringIO(), io.StringIO(), 0
  sys.argv = [program.__name__.rsplit(".", 1)[-1], *arguments]
  saved = flagsaver.save_flag_values()
  try:
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
      command_line.run(program.main)
  except SystemExit as exit_:
    code = exit_.code or 0
  finally:
    flagsaver.restore_flag_values(saved)
  return Result(code, out.getvalue(), err.getvalue())


def evaluate_flags(setup, *cases):
  """Returns `answer(x)`, or the error, for each case (x, flags).

  `setup` defines `answer` in a process of its own, where TensorFlow is loaded:
  flags are global.
  """
  receiver, sender = SERVER.Pipe(duplex=False)
  arguments = sender, setup, json.dumps(cases)
  process = SERVER.Process(target=_evaluate_flags, args=arguments)
  process.start()
  sender.close()
  found = receiver.recv()
  process.join()
  return json.loads(found)


def _evaluate_flags(sender, setup, cases):
  names, found = {"dataclasses": dataclasses, "flags": flags}, []
  exec(setup, names)
  for x, line in json.loads(cases):
    with flagsaver.flagsaver():
      try:
        flags.FLAGS(["program", *line])
        found.append(names["answer"](x))
      except (ValueError, OSError, flags.Error) as error:
        found.append(str(error))
  sender.send(json.dumps(found))


def check_flags(setup, *cases):
  """Checks the messages of cases (x, flags, message)."""
  found = evaluate_flags(setup, *[(x, line) for x, line, _ in cases])
  for error, (_, line, message) in zip(found, cases):
    assert message in error, line
