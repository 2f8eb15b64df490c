"""The machine that a program runs on. No TensorFlow here."""

from __future__ import annotations

import os
import platform


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
