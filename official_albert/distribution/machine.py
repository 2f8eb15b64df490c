"""The machine that a program runs on. Does not load TensorFlow."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
import tempfile
from typing import Iterator


def cpu_count() -> int:
  """Returns the number of CPUs that this process may use."""
  if hasattr(os, "sched_getaffinity"):  # Not on macOS.
    return len(os.sched_getaffinity(0))
  return os.cpu_count() or 1


def describe_machine() -> str:
  """Returns the CPUs, processor and Python version in one line."""
  model = platform.processor() or platform.machine()
  if os.path.exists("/proc/cpuinfo"):
    with open("/proc/cpuinfo", encoding="utf-8") as file:
      names = [line.split(":")[1] for line in file if "model name" in line]
    model = names[0].strip() if names else model
  return f"{cpu_count()} cores, {model}, Python {platform.python_version()}"


@contextlib.contextmanager
def hold_stderr() -> Iterator[None]:
  """Discards what the process writes to stderr, unless the body raises.

  XLA and the TFLite converter write to file descriptor 2 through loggers that
  TensorFlow's settings do not reach. If the body raises, the output is written
  at the end; if the process aborts, it is lost.
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
