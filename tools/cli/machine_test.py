"""Tests of machine.py."""

from __future__ import annotations

import os
import platform

import pytest

from tools.cli import machine


def test_one_line():
  told = machine.describe()
  assert told.startswith(f"{os.cpu_count()} cores, ")
  assert told.endswith(f", Python {platform.python_version()}")
  assert "\n" not in told and ", , " not in told


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
