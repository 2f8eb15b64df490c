"""Gives damaged files to the functions that read them.

    timeout 10m python -m tools.testing.fuzz
    timeout 10m python -m tools.testing.fuzz texts records.manifest

An input must be accepted, or refused with an error that
`tools.cli.command_line` shows as one line of at most 300 characters that
names the user's file. Anything else is a failure: another exception, the
end of the process, more than 20 s, more than 2 GiB, or files left by a
refused input.

The targets are in `tools/testing/fuzz_AREA.py`; arguments are parts of
the names of tests, such as AREA.NAME. pytest runs them, and hypothesis
draws the inputs and shrinks one that fails. The program tries other
inputs until one fails.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import re
import resource
import shutil
from typing import Any, Callable, Iterator, Sequence

import hypothesis
import pytest

from official_albert import files
from official_albert.tools.cli import command_line

MAX_ARGUMENTS = 999  # Targets.
_MEMORY_BYTES = 2 << 30
_MESSAGE_CHARACTERS = 300
_TESTS = ("fuzz_test.py", "fuzz_requests_test.py")


@dataclasses.dataclass(frozen=True)
class Target:
  """A function that reads a user's file.

  Attributes:
    file: the name of the file in a folder.
    prepare: writes a valid file, and what belongs to it, to a new folder.
    damage: returns a hypothesis strategy of contents close to a valid one.
    read: called with the folder.
    named: what each refusal must contain; by default, the path of the file.
  """

  file: str
  prepare: Callable[[str], None]
  damage: Callable[[bytes], hypothesis.strategies.SearchStrategy[bytes]]
  read: Callable[[str], Any]
  named: str = ""


def check(target: Target, folder: str) -> None:
  """Gives inputs to a target; raises the failure of the smallest that fails."""
  target.prepare(folder)
  path = os.path.join(folder, target.file)
  valid = files.read_bytes(path)
  refusal = _answer(target, folder)
  assert not refusal, f"a valid input is refused: {refusal}"

  @hypothesis.given(target.damage(valid))
  def answer(content: bytes) -> None:
    files.write_bytes(path, content)
    _answer(target, folder)

  answer()


def _answer(target: Target, folder: str) -> str:
  """Returns the refusal of a file, or "". Raises an error for a failure."""
  before = {*files.list_dir(folder)}
  refusal = ""
  try:
    with limited_memory():
      target.read(folder)
  except Exception as error:
    if not command_line.is_user_error(error):
      raise
    refusal = command_line.describe(error)
  new = {*files.list_dir(folder)} - before
  for name in new:
    path = os.path.join(folder, name)
    shutil.rmtree(path) if files.is_dir(path) else os.remove(path)
  if refusal:
    named = target.named or os.path.join(folder, target.file)
    assert named in refusal, f"a message without the file: {refusal}"
    assert len(refusal.splitlines()) == 1, f"several lines: {refusal}"
    # The folder's own name is no longer than a user's. A message that names
    # several faults separates them by semicolons.
    parts = refusal.replace(folder, "").split("; ")
    longest = max(map(len, parts))
    assert longest <= _MESSAGE_CHARACTERS, f"a long message: {refusal}"
    # Names of unfinished work begin with a dot.
    left = [name for name in new if not name.startswith(".")]
    assert not left, f"left behind: {left[0]}"
  return refusal


@contextlib.contextmanager
def limited_memory(calls: int = 1) -> Iterator[None]:
  """Lets the data of this process grow by no more than `calls` may need."""
  status = pathlib.Path("/proc/self/status").read_text("ascii")
  data = 1024 * int(re.search(r"VmData:\s*(\d+) kB", status)[1])
  _, most = resource.getrlimit(resource.RLIMIT_DATA)
  limits = data + calls * _MEMORY_BYTES, most
  resource.setrlimit(resource.RLIMIT_DATA, limits)
  try:
    yield
  finally:
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def main(argv: Sequence[str]) -> None:
  tests = [str(pathlib.Path(__file__).with_name(name)) for name in _TESTS]
  options = ["--quiet", "--exitfirst", "-m", "", "--hypothesis-profile=fuzz"]
  names = ["-k", " or ".join(argv[1:])]
  while not (code := pytest.main([*tests, *options, *names])):
    pass
  raise ValueError(
    f"an input failed, or no target has the name (pytest {code})."
  )


if __name__ == "__main__":
  command_line.run(main, MAX_ARGUMENTS)
