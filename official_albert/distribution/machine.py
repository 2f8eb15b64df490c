"""The machine that a program runs on. No TensorFlow here."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
import tempfile
from typing import Iterator


def cpu_count() -> int:
  """The number of CPUs that this process may use."""
  if hasattr(os, "sched_getaffinity"):  # Not on macOS.
    return len(os.sched_getaffinity(0))
  return os.cpu_count() or 1


def describe_machine() -> str:
  """One line for measurements: CPUs, processor, Python."""
  model = platform.processor() or platform.machine()
  if os.path.exists("/proc/cpuinfo"):
    with open("/proc/cpuinfo", encoding="utf-8") as file:
      names = [line.split(":")[1] for line in file if "model name" in line]
    model = names[0].strip() if names else model
  return f"{cpu_count()} cores, {model}, Python {platform.python_version()}"


@contextlib.contextmanager
def hold_stderr() -> Iterator[None]:
  """Holds back what this process writes to stderr inside of the context.

  XLA and the TFLite converter write to file descriptor 2 through loggers that
  no setting of TensorFlow reaches.

  It is discarded at the end, or written after all if the context is left by an
  exception. An abort of the process loses it.
  """
  sys.stderr.flush()
  stderr = os.dup(2)
  with tempfile.TemporaryFile() as held:
    os.dup2(held.fileno(), 2)
    try:
      yield
    except BaseException:
      held.seek(0)
      os.write(stderr, held.read())
      raise
    finally:
      os.dup2(stderr, 2)
      os.close(stderr)
