"""Gives damaged files to the functions and programs that read them.

    timeout 10m python -m tools.testing.fuzz
    timeout 10m python -m tools.testing.fuzz texts records.manifest

An input must be accepted, or refused with an error that
`tools.cli.command_line` shows as one line of at most 300 characters that
names the user's file. Anything else is a failure: another exception, the
end of the process, more than 20 s, more than 2 GiB, or files left by a
refused input.

The targets are in `tools/testing/fuzz_AREA.py`; arguments are beginnings
of AREA.NAME. Each runs in a process of its own, where hypothesis draws the
inputs and shrinks one that fails. The program tries other inputs until one
fails.
"""

from __future__ import annotations

import ctypes
import dataclasses
import faulthandler
import importlib
import itertools
import os
import pickle  # noqa: TID251
import pkgutil
import re
import resource
import shutil
import sys
import tempfile
import time
import traceback
from typing import Any, Callable, Mapping, Optional, Sequence

from absl import flags

from official_albert import files
from official_albert.tools import testing
from official_albert.tools.cli import command_line
from official_albert.tools.testing import many_commands

MAX_ARGUMENTS = 999  # Targets.
_INPUTS = 200  # Of a target before the next one. Hypothesis remembers them.
_SECONDS = 20
_MEMORY_BYTES = 2 << 30
_MESSAGE_CHARACTERS = 300
_LOG_CHARACTERS = 3000  # Of a failure, to print.
_M_MMAP_THRESHOLD = -3  # malloc.h


@dataclasses.dataclass(frozen=True)
class Target:
  """A function or a program that reads a user's file.

  Attributes:
    name: the name within the area.
    prepare: writes what the call needs to a new folder, and returns valid
      contents; None if that is what it has written to `file`.
    damage: returns a hypothesis strategy of contents close to a valid one.
    call: called with the folder and a content, which was written to the file.
    file: the name of the user's file in the folder; "" if contents are not
      bytes of a file.
    named: what each refusal must contain; by default, the path of the file.
    requests: how many requests a call makes at once, each of which may take
      2 GiB.
  """

  name: str
  prepare: Callable[[str], Optional[Sequence[Any]]]
  damage: Callable[[Any], Any]
  call: Callable[[str, Any], Any]
  file: str = ""
  named: str = ""
  requests: int = 1


class InputFailed(AssertionError):
  """An input failed.

  Attributes:
    content: the input, the smallest one that hypothesis found; None if the
      target could not be prepared.
  """

  def __init__(self, message: str, content: Any):
    super().__init__(f"{message}\nThe input: {content!r:.1000}")
    self.content = content


def run_program(name: str, *arguments: str) -> None:
  """Runs `tools.NAME` in this process; raises its error as a ValueError.

  A target runs one program, as programs define flags of the same names.
  """
  if f"official_albert.tools.{name}" not in sys.modules:
    # Of programs that a target has imported, as toy_runs does.
    for module, defined in flags.FLAGS.flags_by_module_dict().items():
      if re.fullmatch(r"official_albert\.tools\.\w+", module):
        for flag in list(defined):
          delattr(flags.FLAGS, flag.name)
  program = importlib.import_module(f"official_albert.tools.{name}")
  result = many_commands.run_here(program, arguments)
  if result.code:
    _, start, message = result.err.rpartition(f"{name}: error: ")
    assert start and result.code in (1, 2), result
    assert message.endswith("\n") and message.count("\n") == 1, message
    raise ValueError(message[:-1])


def load_area(area: str) -> Mapping[str, Target]:
  """Returns the targets of `fuzz_AREA.py` by AREA.NAME."""
  module = importlib.import_module(f"{testing.__name__}.fuzz_{area}")
  return {f"{area}.{target.name}": target for target in module.TARGETS}


def find(prefixes: Sequence[str] = ()) -> list[str]:
  """Returns the targets whose AREA.NAME begins with a prefix, or all."""
  found: list[str] = []
  for module in pkgutil.iter_modules(testing.__path__):
    area = module.name.removeprefix("fuzz_")
    if area != module.name and not area.endswith("test"):
      found += load_area(area)
  for prefix in prefixes:
    if not any(name.startswith(prefix) for name in found):
      raise ValueError(
        f"there is no target {prefix!r}; the targets are {', '.join(found)}."
      )
  return [name for name in found if name.startswith(tuple(prefixes) or "")]


def run(name: str, inputs: int, seed: int) -> str:
  """Gives about `inputs` inputs to the target AREA.NAME.

  Returns:
    How many were accepted and refused, and the longest time of an answer.

  Raises:
    InputFailed: one of them failed; those after it were not tried.
  """
  with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
    process = many_commands.SERVER.Process(
      target=_work, args=(folder, name, inputs, seed)
    )
    process.start()
    process.join()
    log = files.read_bytes(f"{folder}/log").decode("utf-8", "replace").strip()
    if not process.exitcode:
      return log.rpartition("\n")[2]
    content = None
    if files.exists(f"{folder}/latest"):
      with open(f"{folder}/latest", "rb") as file:
        content = pickle.load(file)
    raise InputFailed(
      f"{name}: an input ended the process with exit code {process.exitcode}:\n"
      + log[-_LOG_CHARACTERS:],
      content,
    )


def _work(folder: str, name: str, inputs: int, seed: int) -> None:
  """Gives inputs to a target, in a process whose output is FOLDER/log."""
  log = os.open(f"{folder}/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
  os.dup2(log, sys.stdout.fileno())
  os.dup2(log, sys.stderr.fileno())
  # Large blocks return to the system when they are freed, so that growth is
  # what the target keeps. By default, glibc may keep blocks of up to 32 MiB.
  ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, 1 << 20)
  try:
    trial = _Trial(load_area(name.partition(".")[0])[name], folder)
    trial.run(inputs, seed)
    print(
      f"{name}: {trial.accepted} accepted, {trial.refused} refused, "
      f"at most {trial.slowest:.1f} s",
      flush=True,
    )
  except BaseException as error:
    error.__notes__ = []  # Hypothesis shows the input, which may be long.
    traceback.print_exception(error)
    sys.stderr.flush()
    os._exit(1)  # Without waiting for threads.


class _Trial:
  """Calls a target in this process, and raises the first failure."""

  def __init__(self, target: Target, folder: str):
    """Prepares the target and checks that it accepts valid inputs."""
    from hypothesis import strategies

    self._target, self._latest = target, os.path.join(folder, "latest")
    self._folder = os.path.join(folder, "files")
    self.accepted, self.refused, self.slowest = 0, 0, 0.0
    os.mkdir(self._folder)
    contents = target.prepare(self._folder)
    if contents is None:
      contents = [files.read_bytes(os.path.join(self._folder, target.file))]
    self._inputs = strategies.one_of(*map(target.damage, contents))
    for content in contents:
      self._answer(content)
    assert not self.refused, "a valid input is refused"
    self.accepted = 0
    with open("/proc/self/status", encoding="ascii") as file:
      data = 1024 * int(re.search(r"VmData:\s*(\d+) kB", file.read())[1])
    # What earlier inputs have left counts, up to half as much again.
    limit = data + target.requests * _MEMORY_BYTES * 3 // 2
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))

  def run(self, inputs: int, seed: int) -> None:
    """Draws inputs; raises the failure of the smallest one that fails."""
    import hypothesis

    settings = hypothesis.settings(
      max_examples=inputs,
      database=None,
      deadline=None,
      phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
      report_multiple_bugs=False,
      suppress_health_check=list(hypothesis.HealthCheck),
      verbosity=hypothesis.Verbosity.quiet,
    )

    def answer(content: Any) -> None:
      self._answer(content)

    trial = settings(hypothesis.given(content=self._inputs)(answer))
    hypothesis.seed(seed)(trial)()

  def _answer(self, content: Any) -> None:
    """Calls the target; raises an error if the answer is a failure."""
    target, folder = self._target, self._folder
    with open(self._latest, "wb") as file:
      pickle.dump(content, file)
    if target.file:
      files.write_bytes(os.path.join(folder, target.file), content)
    before, begin = _entries(folder), time.monotonic()
    # Shows where each thread is, even if it is in a loop of C++.
    faulthandler.dump_traceback_later(_SECONDS, exit=True)
    try:
      target.call(folder, content)
      refusal = ""
    except BaseException as error:
      if not command_line.is_user_error(error):
        raise AssertionError(
          f"{type(error).__name__} instead of a sentence"
        ) from error
      refusal = command_line.describe(error)
      self._check(refusal)
    finally:
      faulthandler.cancel_dump_traceback_later()
    self.slowest = max(self.slowest, time.monotonic() - begin)
    self.refused += bool(refusal)
    self.accepted += not refusal
    after = _entries(folder)
    changed = [path for path in after if after[path] != before.get(path)]
    for path in after.keys() - before.keys():
      path = os.path.join(folder, path)
      if files.is_dir(path):
        shutil.rmtree(path)
      elif files.exists(path):
        os.remove(path)
    # Names of unfinished work begin with a dot.
    left = [path for path in changed if not path.startswith(".")]
    assert not (refusal and left), f"left behind: {min(left)}"

  def _check(self, message: str) -> None:
    """Raises AssertionError if a refusal is no help to users."""
    target = self._target
    path = target.file and os.path.join(self._folder, target.file)
    assert len(message.splitlines()) == 1, (
      f"a message of several lines: {message}"
    )
    # The folder's own name is no longer than a user's. A message that names
    # several faults separates them by semicolons.
    parts = message.replace(self._folder, "").split("; ")
    longest = max(map(len, parts))
    assert longest <= _MESSAGE_CHARACTERS, f"a long message: {message}"
    named = target.named or path
    assert named in message, f"a message without the file: {message}"


def _entries(folder: str) -> dict[str, int]:
  """Returns the paths below a folder, with the times of files."""
  found = {}
  for parent, folders, names in os.walk(folder):
    below = os.path.relpath(parent, folder)
    found.update({os.path.normpath(os.path.join(below, x)): 0 for x in folders})
    for name in names:
      path = os.path.normpath(os.path.join(below, name))
      found[path] = os.lstat(os.path.join(folder, path)).st_mtime_ns
  return found


def main(argv: Sequence[str]) -> None:
  names = find(argv[1:])
  for seed in itertools.count():
    for name in names:
      try:
        print(run(name, _INPUTS, seed), flush=True)
      except InputFailed as failure:
        path = os.path.join(tempfile.mkdtemp(prefix="fuzz-"), name)
        content = failure.content
        if not isinstance(content, bytes):
          content = repr(content).encode()
        files.write_bytes(path, content)
        print(failure, flush=True)
        raise ValueError(f"{name} failed; its input is {path}.") from failure


if __name__ == "__main__":
  command_line.run(main, MAX_ARGUMENTS)
