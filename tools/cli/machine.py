"""What figures were measured with."""

from __future__ import annotations

import os
import platform


def describe() -> str:
  """One line: cores, processor, Python."""
  model = platform.processor() or platform.machine()
  if os.path.exists("/proc/cpuinfo"):
    with open("/proc/cpuinfo", encoding="utf-8") as file:
      names = [line.split(":")[1] for line in file if "model name" in line]
    model = names[0].strip() if names else model
  return f"{os.cpu_count()} cores, {model}, Python {platform.python_version()}"
