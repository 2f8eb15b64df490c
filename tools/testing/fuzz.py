"""Gives damaged files to the functions and programs that read them.

    python -m tools.testing.fuzz --inputs=100000 --random_seed=0
    python -m tools.testing.fuzz --inputs=1000 --targets=texts,records.manifest

An input must be accepted, or refused with an error that
`tools.cli.command_line` shows as one line of at most 300 characters that names
the user's file. Anything else is a failure: another exception, the end of the
process, more than 20 s, more than 2 GiB, or files left by a refused input. The
table has the resident memory of each target's process after a tenth and half of
its inputs and at the end, which should be level. More than one process means
that others ran out of memory or got stuck.

The targets are in `tools/testing/fuzz_AREA.py`. Each one runs in a process of
its own. Hypothesis draws the inputs from the seed and shrinks the first one
of each failure; --output_dir gets these. With failures, the exit code is 1.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import faulthandler
import gc
import importlib
import os
import pickle  # noqa: TID251
import pkgutil
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from typing import Any, Callable, Iterator, Optional, Sequence

from absl import flags

from official_albert import files
from official_albert.tools import testing
from official_albert.tools.cli import command_line, path_flags, printing
from official_albert.tools.testing import many_commands

# The targets import this module, and programs in their processes have flags of
# the same names.
_AGAIN = {"allow_override": True}
_INPUTS = flags.DEFINE_integer(
  "inputs", 1000, "Inputs of all targets.", lower_bound=1, **_AGAIN
)
_RANDOM_SEED = flags.DEFINE_integer(
  "random_seed", 0, "Seed of the inputs.", **_AGAIN
)
_TARGETS = flags.DEFINE_list(
  "targets", [], "Beginnings of AREA.NAME; by default, all targets.", **_AGAIN
)
_OUTPUT_DIR = path_flags.define(
  "output_dir", "", "Folder for the inputs that failed.", **_AGAIN
)

_ROOT = str(many_commands.ROOT)
_SECONDS = 20
_SHRINK_SECONDS = 30
_MEMORY_BYTES = 2 << 30
_MESSAGE_CHARACTERS = 300
# Hypothesis remembers what it has drawn, which takes memory.
_CHUNK = 200
_ERROR_CHARACTERS = 1000  # Of a failure, to print.
_M_MMAP_THRESHOLD = -3  # malloc.h
_NO_ANSWER = f"no answer within {_SECONDS} s"


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
    weight: the number of inputs relative to other targets.
    requests: how many requests a call makes at once, each of which may take
      2 GiB.
  """

  name: str
  prepare: Callable[[str], Optional[Sequence[Any]]]
  damage: Callable[[Any], Any]
  call: Callable[[str, Any], Any]
  file: str = ""
  named: str = ""
  weight: float = 1.0
  requests: int = 1


@dataclasses.dataclass
class Failure:
  """A kind of failure: how many inputs, the smallest of them, and its error."""

  count: int
  content: Any
  error: str


@dataclasses.dataclass
class Report:
  """The answers of a target, named AREA.NAME.

  Attributes:
    processes: the number of processes that were started.
    chunk: the number of chunks that have been drawn.
    seconds: the time of all chunks, with drawing and shrinking.
    slowest: the longest time of an answer in seconds.
    memory: the largest growth of resident memory in bytes.
    resident: the resident memory in bytes after each chunk.
    failures: by a description of their kind.
  """

  target: str
  processes: int = 0
  chunk: int = 0
  seconds: float = 0.0
  accepted: int = 0
  refused: int = 0
  slowest: float = 0.0
  memory: int = 0
  resident: list[int] = dataclasses.field(default_factory=list)
  failures: dict[str, Failure] = dataclasses.field(default_factory=dict)

  @property
  def failed(self) -> int:
    return sum(failure.count for failure in self.failures.values())

  @property
  def inputs(self) -> int:
    return self.accepted + self.refused + self.failed


class _TooSlow(BaseException):
  """Raised by the alarm; passes through `except Exception`."""


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


def _load_area(area: str):
  return importlib.import_module(f"{testing.__name__}.fuzz_{area}")


def run(name: str, inputs: int, seed: int) -> Report:
  """Gives `inputs` inputs to the target AREA.NAME."""
  report = Report(name)
  while report.inputs < inputs:
    report.processes += 1
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
      receiver, sender = many_commands.SERVER.Pipe(duplex=False)
      process = many_commands.SERVER.Process(
        target=_work, args=(sender, folder, report, inputs, seed)
      )
      process.start()
      sender.close()
      with contextlib.suppress(EOFError):
        while not isinstance(received := receiver.recv(), str):
          report = received
        raise RuntimeError(received)
      process.join()
      if not process.exitcode:
        continue
      with open(os.path.join(folder, "latest"), "rb") as file:
        content = pickle.load(file)
      kind = f"the process ended with exit code {process.exitcode}"
      _add(report, kind, content, "")
      report.chunk += 1
  return report


def _add(report: Report, kind: str, content: Any, error: str) -> None:
  failure = report.failures.setdefault(kind, Failure(0, content, error))
  failure.count += 1


def _work(sender, folder: str, report: Report, inputs: int, seed: int) -> None:
  """Continues a report, and sends it after each chunk."""
  output = os.open(os.devnull, os.O_WRONLY)
  os.dup2(output, sys.stdout.fileno())
  os.dup2(output, sys.stderr.fileno())
  # Large blocks return to the system when they are freed, so that growth is
  # what the target keeps. By default, glibc may keep blocks of up to 32 MiB.
  libc = ctypes.CDLL(None)
  libc.mallopt(_M_MMAP_THRESHOLD, 1 << 20)
  area, _, name = report.target.partition(".")
  try:
    (target,) = (t for t in _load_area(area).TARGETS if t.name == name)
    trial = _Trial(target, folder, report)
    while report.inputs < inputs:
      started = time.monotonic()
      trial.run_chunk(min(_CHUNK, inputs - report.inputs), seed)
      report.seconds += time.monotonic() - started
      libc.malloc_trim(0)
      report.resident.append(_status("VmRSS"))
      report.chunk += 1
      sender.send(report)
      if trial.is_stuck:
        os._exit(0)  # Without waiting for threads.
  except Exception:  # Of this module.
    sender.send(traceback.format_exc())


class _Trial:
  """Calls a target in this process and reports the answers."""

  def __init__(self, target: Target, folder: str, report: Report):
    from hypothesis import strategies

    self._target, self._report = target, report
    # Whether to go on in another process: an input was interrupted, which may
    # have left threads behind, or programs that ended have left memory behind.
    self.is_stuck = False
    self._latest = os.path.join(folder, "latest")
    self._folder = os.path.join(folder, "files")
    os.mkdir(self._folder)
    contents = target.prepare(self._folder)
    if contents is None:
      contents = [files.read_bytes(os.path.join(self._folder, target.file))]
    self._inputs = strategies.one_of(*map(target.damage, contents))
    for content in contents:
      kind, error = self._answer(content)
      assert kind == "accepted", f"a valid input: {kind} {error}"
    self._memory = _status("VmHWM")
    growth = target.requests * _MEMORY_BYTES
    self._most_data = _status("VmData") + growth // 2
    limit = self._most_data + growth
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))

  def run_chunk(self, count: int, seed: int) -> None:
    """Draws inputs; of a new kind of failure, the first one is shrunk."""
    import hypothesis

    report, sought, stop = self._report, "", 0.0
    end = report.inputs + count

    def is_sought(content: Any) -> bool:
      nonlocal sought, stop, end
      if time.monotonic() > stop if sought else report.inputs >= end:
        return False
      started = time.monotonic()
      kind, error = self._answer(content)
      report.slowest = max(report.slowest, time.monotonic() - started)
      report.memory = max(report.memory, _status("VmHWM") - self._memory)
      if _status("VmData") > self._most_data:
        self.is_stuck, end = True, report.inputs + (not sought)
      if sought:
        if kind == sought:
          report.failures[kind].content = content
          report.failures[kind].error = error
      elif kind in ("accepted", "refused"):
        setattr(report, kind, getattr(report, kind) + 1)
      else:
        is_new = kind not in report.failures
        _add(report, kind, content, error)
        if kind == _NO_ANSWER:
          self.is_stuck, end = True, report.inputs
        elif is_new:
          sought, stop = kind, time.monotonic() + _SHRINK_SECONDS
      return kind == sought

    while report.inputs < end:
      sought = ""
      settings = hypothesis.settings(
        max_examples=end - report.inputs,
        database=None,
        deadline=None,
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
        verbosity=hypothesis.Verbosity.quiet,
      )
      place = f"{seed} {report.target} {report.chunk} {report.inputs}"
      errors = hypothesis.errors
      with contextlib.suppress(errors.NoSuchExample, errors.Flaky):
        hypothesis.find(
          self._inputs,
          is_sought,
          settings=settings,
          random=random.Random(place),
        )
    # Python counts objects, not their bytes: inputs and errors that refer to
    # each other would fill the memory.
    gc.collect()

  def _answer(self, content: Any) -> tuple[str, str]:
    """Calls the target; returns the kind of its answer, and its error."""
    target, folder = self._target, self._folder
    with open(self._latest, "wb") as file:
      pickle.dump(content, file)
    if target.file:
      files.write_bytes(os.path.join(folder, target.file), content)
    before = _entries(folder)
    # Ends the process if the alarm is not handled, as in a loop in C++.
    faulthandler.dump_traceback_later(2 * _SECONDS, exit=True)
    signal.signal(signal.SIGALRM, _raise_too_slow)
    signal.alarm(_SECONDS)
    kind, error = "accepted", ""
    try:
      target.call(folder, content)
    except _TooSlow:
      kind, error = _NO_ANSWER, traceback.format_exc()
    except BaseException as raised:
      place = _place(raised)
      if command_line.is_user_error(raised):
        kind, error = "refused", command_line.describe(raised)
        if problem := self._problem(error):
          kind = f"{place}: {problem}"
      else:
        kind = f"{place}: {type(raised).__name__}"
        error = traceback.format_exc()
    finally:
      signal.alarm(0)
      faulthandler.cancel_dump_traceback_later()
    after = _entries(folder)
    changed = [path for path in after if after[path] != before.get(path)]
    # Names of unfinished work begin with a dot.
    left = [path for path in changed if not path.startswith(".")]
    if kind == "refused" and left:
      kind = f"left behind: {min(left)}"
    for path in after.keys() - before.keys():
      path = os.path.join(folder, path)
      if files.is_dir(path):
        shutil.rmtree(path)
      elif files.exists(path):
        os.remove(path)
    return kind, error

  def _problem(self, message: str) -> str:
    """Returns what is wrong with an error message, or ""."""
    target = self._target
    path = target.file and os.path.join(self._folder, target.file)
    if len(message.splitlines()) != 1:
      return "a message of several lines"
    # The folder's own name is no longer than a user's.
    if len(message.replace(self._folder, "")) > _MESSAGE_CHARACTERS:
      return "a long message"
    if (target.named or path) not in message:
      return "a message without the file"
    return ""


def _raise_too_slow(*unused: Any) -> None:
  raise _TooSlow


def _status(name: str) -> int:
  """Returns a number of bytes that Linux reports about this process."""
  with open("/proc/self/status", encoding="ascii") as file:
    found = re.search(rf"{name}:\s*(\d+) kB", file.read())
  return 1024 * int(found[1])


def _place(error: BaseException) -> str:
  """Returns the file and line of this repository at which an error passed."""
  lines = [
    f"{os.path.relpath(frame.filename, _ROOT)}:{frame.lineno}"
    for frame in traceback.extract_tb(error.__traceback__)
    if frame.filename.startswith(_ROOT)
    and "/site-packages/" not in frame.filename
  ]
  return lines[-1]


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


def run_all(
  prefixes: Sequence[str], inputs: int, seed: int
) -> Iterator[Report]:
  """Yields a report of each target whose AREA.NAME begins with a prefix.

  Without prefixes, these are all targets. Together they get about `inputs`
  inputs.
  """
  found = {}
  for module in pkgutil.iter_modules(testing.__path__):
    area = module.name.removeprefix("fuzz_")
    if area != module.name and not area.endswith("test"):
      found.update({f"{area}.{t.name}": t for t in _load_area(area).TARGETS})
  for prefix in prefixes:
    if not any(name.startswith(prefix) for name in found):
      raise ValueError(
        f"--targets has {prefix!r}, but the targets are {', '.join(found)}."
      )
  wanted = tuple(prefixes) or ""
  targets = {name: t for name, t in found.items() if name.startswith(wanted)}
  total = sum(target.weight for target in targets.values())
  for name, target in targets.items():
    yield run(name, max(1, round(inputs * target.weight / total)), seed)


def save(report: Report, output_dir: str) -> None:
  """Prints the failures of a target and writes their inputs to a folder."""
  for number, (kind, failure) in enumerate(report.failures.items()):
    path = os.path.join(output_dir, f"{report.target}-{number}")
    content = failure.content
    if not isinstance(content, bytes):
      content = repr(content).encode()
    files.write_bytes(path, content)
    print(f"{report.target}: {failure.count} times {kind}; see {path}")
    print(failure.error.strip()[-_ERROR_CHARACTERS:])


def main(argv: Sequence[str]) -> None:
  del argv
  # Read before a target's module defines these flags again.
  inputs, seed, prefixes = _INPUTS.value, _RANDOM_SEED.value, _TARGETS.value
  output_dir = _OUTPUT_DIR.value or tempfile.mkdtemp(prefix="fuzz-")
  files.make_folder(output_dir)
  columns = (
    "target|share|inputs|accepted|refused|failures|inputs/s|slowest|memory|"
    "after a tenth|after half|at the end|processes"
  ).split("|")
  print(printing.table_head(columns), flush=True)
  failed = 0
  for report in run_all(prefixes, inputs, seed):
    save(report, output_dir)
    failed += report.failed
    resident = report.resident or [0]  # None if the first chunk was the last.
    after = [resident[max(len(resident) // x, 1) - 1] for x in (10, 2, 1)]
    cells = (
      *(report.target, f"{report.inputs / inputs:.2%}", report.inputs),
      *(report.accepted, report.refused, report.failed),
      f"{report.inputs / max(report.seconds, 1e-3):.0f}",
      f"{report.slowest:.1f} s",
      f"{report.memory / 2**20:.0f} MiB",
      *(f"{x / 2**20:.0f} MiB" for x in after),
      report.processes,
    )
    print(printing.table_row(cells), flush=True)
  if failed:
    raise ValueError(f"{failed} inputs failed: see {output_dir}.")


if __name__ == "__main__":
  command_line.run(main)
