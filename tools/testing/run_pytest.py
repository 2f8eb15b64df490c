"""Runs pytest as Bazel's tests do: python tools/testing/run_pytest.py FILE."""

import sys

import pytest

# Processes that a test starts import this file again.
if __name__ == "__main__":
  code = pytest.main(sys.argv[1:])
  # A file may have only heavy tests, or tests of packages that are missing.
  sys.exit(0 if code == pytest.ExitCode.NO_TESTS_COLLECTED else code)
