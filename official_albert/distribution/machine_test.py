from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from official_albert import distribution


def test_cpu_count(monkeypatch):
  monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {1, 4, 7})
  assert distribution.cpu_count() == 3
  line = distribution.describe_machine()
  assert line.startswith("3 cores, ")
  assert line.endswith(f", Python {platform.python_version()}")
  assert "\n" not in line and ", , " not in line


def test_tensorflow_is_not_loaded():
  code = (
    "import sys; from official_albert import distribution; "
    "distribution.cpu_count(); sys.exit('tensorflow' in sys.modules)"
  )
  subprocess.run([sys.executable, "-c", code], check=True)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
