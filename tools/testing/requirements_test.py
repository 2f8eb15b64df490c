"""Tests that the lists of packages agree with each other."""

from __future__ import annotations

import pathlib
import re
from importlib import metadata

import pytest

_ROOT = pathlib.Path(__file__).resolve().parents[2]


def _pins(name):
  lines = (_ROOT / name).read_text(encoding="utf-8").splitlines()
  return {line for line in lines if line and not line.startswith(("#", "-r"))}


def test_a_tpu_has_every_pin_but_tensorflow():
  missing = _pins("requirements.txt") ^ _pins("requirements-tpu.txt")
  assert missing == {"tensorflow==2.15.1"}


def test_no_package_replaces_the_tensorflow_of_a_tpu():
  asked = {}
  for line in _pins("requirements-tpu.txt"):
    name = line.split("==")[0]
    for text in metadata.requires(name) or ():
      wanted = re.match(r"tensorflow\b *\(?([^-)\w;][^); ]*)", text)
      if wanted and "extra" not in text:
        asked[name] = wanted[1]
  # Both admit the builds for TPU VMs, 2.15.0 and 2.15.1.
  assert asked == {
    "tensorflow-text": "<2.16,>=2.15.0",
    "tf_keras": "<2.16,>=2.15",
  }


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
