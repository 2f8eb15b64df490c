"""Tests of archives: what is in them, and that their bytes repeat."""

from __future__ import annotations

import os
import stat
import tarfile

import pytest

from tools.hub import archive as hub_archive

_FILES = {
  "saved_model.pb": b"graph" * 1000,
  "variables/variables.index": b"i",
  "variables/variables.data-00000-of-00001": b"data",
  "assets/tokenizer.model": b"pieces",
}


def _write(folder, order):
  for name in order:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_FILES[name])
  return str(folder)


def test_bytes_are_those_of_the_content_alone(tmp_path):
  one = _write(tmp_path / "one", _FILES)
  two = _write(tmp_path / "two", reversed(_FILES))
  for name in _FILES:
    os.utime(os.path.join(two, name), (7, 7))
    os.chmod(os.path.join(two, name), 0o600)
  hub_archive.write(one, str(tmp_path / "one.tar.gz"))
  hub_archive.write(two, str(tmp_path / "other.tar.gz"))
  packed = (tmp_path / "one.tar.gz").read_bytes()
  assert packed == (tmp_path / "other.tar.gz").read_bytes()
  assert len(packed) < 1000
  assert packed[4:8] == b"\0\0\0\0"  # The time, in gzip's header.


def test_entries_lie_at_the_root_and_folders_come_first(tmp_path):
  folder = _write(tmp_path / "module", _FILES)
  (tmp_path / "module" / "empty").mkdir()
  hub_archive.write(folder, str(tmp_path / "m.tar.gz"))
  with tarfile.open(tmp_path / "m.tar.gz") as archive:
    entries = archive.getmembers()
    assert [entry.name for entry in entries] == [
      "assets",
      "assets/tokenizer.model",
      "saved_model.pb",
      "variables",
      "variables/variables.data-00000-of-00001",
      "variables/variables.index",
    ]
    for entry in entries:
      assert (entry.uid, entry.gid, entry.mtime) == (0, 0, 0)
      assert entry.mode & stat.S_IROTH
      if entry.isfile():
        content = archive.extractfile(entry).read()
        assert content == _FILES[entry.name]


@pytest.mark.parametrize("name", ["fingerprint.pb", ".hidden", "notes/a.txt"])
def test_other_files_are_refused(name, tmp_path):
  folder = _write(tmp_path / "module", _FILES)
  path = tmp_path / "module" / name
  path.parent.mkdir(exist_ok=True)
  path.write_bytes(b"")
  with pytest.raises(ValueError, match="no file of a SavedModel"):
    hub_archive.write(folder, str(tmp_path / "m.tar.gz"))
  assert sorted(os.listdir(tmp_path)) == ["module"]


def test_nothing_half_written_is_left(tmp_path, monkeypatch):
  folder = _write(tmp_path / "module", _FILES)

  def fail(*unused):
    raise OSError("disk full")

  monkeypatch.setattr(hub_archive, "_write_entries", fail)
  with pytest.raises(OSError, match="disk full"):
    hub_archive.write(folder, str(tmp_path / "m.tar.gz"))
  assert sorted(os.listdir(tmp_path)) == ["module"]


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
