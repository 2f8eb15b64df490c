"""Tests of settings_file.py."""

from __future__ import annotations

import os

import pytest

from official_albert import files
from tools.cli import settings_file


def test_what_is_written_is_read(tmp_path):
  path = str(tmp_path / "settings.json")
  assert settings_file.read(path) == {}
  files.write_json(path, {"scale": "tiny", "data": {"seed": 3}})
  assert settings_file.read(path) == {"scale": "tiny", "data": {"seed": 3}}
  assert os.listdir(tmp_path) == ["settings.json"]


@pytest.mark.parametrize("written", [b"{", b"[]", b"", b"\xff\xfe"])
def test_something_else_is_named_and_left_alone(tmp_path, written):
  path = tmp_path / "settings.json"
  path.write_bytes(written)
  with pytest.raises(ValueError, match="settings.json is not what this progr"):
    settings_file.read(str(path))
  assert path.read_bytes() == written


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
