"""Tests of file_lock.py."""

from __future__ import annotations

import errno
import fcntl
import subprocess
import sys

import pytest

from official_albert import file_lock


def test_one_holds_it_until_it_is_closed(tmp_path):
  path = str(tmp_path / "lock")
  held = file_lock.hold(path, "taken")
  with pytest.raises(OSError, match="^taken$"):
    file_lock.hold(path, "taken")
  held.close()
  file_lock.hold(path, "taken").close()


def test_a_process_that_it_was_passed_to_holds_it_too(tmp_path):
  path = str(tmp_path / "lock")
  with file_lock.hold(path, "taken") as held:
    child = subprocess.Popen(
      [sys.executable, "-c", "input()"],
      stdin=subprocess.PIPE,
      pass_fds=[held.fileno()],
    )
  with pytest.raises(OSError, match="taken"):
    file_lock.hold(path, "taken")
  child.communicate(b"\n")
  file_lock.hold(path, "taken").close()


def test_a_file_system_without_locks(tmp_path, monkeypatch):
  def no_locks(file, how):
    raise OSError(errno.ENOLCK, "No locks available")

  monkeypatch.setattr(fcntl, "flock", no_locks)
  file_lock.hold(str(tmp_path / "lock"), "taken").close()


def test_a_folder_that_is_not_there(tmp_path):
  with pytest.raises(FileNotFoundError):
    file_lock.hold(str(tmp_path / "none" / "lock"), "taken")


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
