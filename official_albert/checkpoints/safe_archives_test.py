"""Tests of archives, malicious ones too."""

from __future__ import annotations

import gzip
import io
import os
import tarfile

import pytest

from official_albert.checkpoints import safe_archives


def _archive(path, members):
  """Writes an archive; members are names with contents, or TarInfos."""
  with tarfile.open(path, "w:gz") as archive:
    for name, content in members:
      if isinstance(name, tarfile.TarInfo):
        archive.addfile(name)
        continue
      info = tarfile.TarInfo(name)
      info.size = len(content)
      archive.addfile(info, io.BytesIO(content))
  return str(path)


def _special(kind, name="link", target="/etc/passwd"):
  info = tarfile.TarInfo(name)
  info.type, info.linkname = kind, target
  return info


@pytest.fixture
def folder(tmp_path):
  (tmp_path / "inside").mkdir()
  return str(tmp_path / "inside")


def test_an_archive_with_one_folder(folder, tmp_path):
  path = _archive(
    tmp_path / "a.tar.gz",
    [
      (_special(tarfile.DIRTYPE, "base"), None),
      ("base/assets/x", b"one"),
      ("base/y", b""),
    ],
  )
  assert safe_archives.is_archive(path)
  assert not safe_archives.is_archive(folder)
  root = safe_archives.extract(path, folder)
  assert root == os.path.join(folder, "base")
  with open(os.path.join(root, "assets", "x"), "rb") as file:
    assert file.read() == b"one"
  assert os.path.getsize(os.path.join(root, "y")) == 0


def test_an_archive_without_a_folder(folder, tmp_path):
  path = _archive(tmp_path / "a.tgz", [("./x", b"1"), ("./y", b"2")])
  assert safe_archives.extract(path, folder) == folder
  assert sorted(os.listdir(folder)) == ["x", "y"]


@pytest.mark.parametrize(
  "name, message",
  [
    ("../x", "outside the destination"),
    ("a/../../x", "outside the destination"),
    (_special(tarfile.SYMTYPE), "neither a file nor a folder"),
    (_special(tarfile.LNKTYPE), "neither a file nor a folder"),
    (_special(tarfile.FIFOTYPE), "neither a file nor a folder"),
    (_special(tarfile.CHRTYPE), "neither a file nor a folder"),
  ],
  ids=["up", "up_later", "symlink", "hardlink", "fifo", "device"],
)
def test_unsafe_members_are_refused(name, message, folder, tmp_path):
  path = _archive(tmp_path / "a.tar.gz", [("good", b"1"), (name, b"2")])
  with pytest.raises(ValueError, match=message):
    safe_archives.extract(path, folder)
  assert set(os.listdir(tmp_path)) == {"a.tar.gz", "inside"}
  assert set(os.listdir(folder)) <= {"good"}


def test_an_absolute_path_stays_in_the_folder(folder, tmp_path):
  path = _archive(tmp_path / "a.tgz", [("/etc/x", b"1"), ("y", b"2")])
  assert safe_archives.extract(path, folder) == folder
  assert os.path.exists(os.path.join(folder, "etc", "x"))


def test_a_python_without_the_data_filter(folder, tmp_path, monkeypatch):
  path = _archive(tmp_path / "a.tgz", [("x", b"1")])
  monkeypatch.delattr(tarfile, "data_filter")
  with pytest.raises(ValueError, match="use 3.10.12, 3.11.4 or newer"):
    safe_archives.extract(path, folder)


def test_archives_that_unpack_to_too_much(folder, tmp_path):
  zeros = _archive(tmp_path / "a.tar.gz", [("x", bytes(3_000_000))])
  assert os.path.getsize(zeros) < 10_000
  with pytest.raises(ValueError, match="unpacks to more than 1,000,000 bytes"):
    safe_archives.extract(zeros, folder, max_bytes=1_000_000)
  assert not os.listdir(folder)  # The header names the size.
  many = _archive(tmp_path / "b.tar.gz", [(f"f{i}", b"") for i in range(1001)])
  with pytest.raises(ValueError, match="or 1000 files"):
    safe_archives.extract(many, folder)


def test_a_header_of_gigabytes(folder, tmp_path):
  info = tarfile.TarInfo("PaxHeaders/x")
  info.type, info.size = tarfile.XHDTYPE, 5 * 2**30
  path = tmp_path / "a.tar.gz"
  path.write_bytes(gzip.compress(info.tobuf() + bytes(2**20)))
  with pytest.raises(ValueError, match="a header claims 5,368,709,120 bytes"):
    safe_archives.extract(str(path), folder)


def test_damaged_archives(folder, tmp_path):
  path = tmp_path / "a.tar.gz"
  path.write_bytes(b"not gzip at all")
  with pytest.raises(ValueError, match="damaged, truncated or not a .tar.gz"):
    safe_archives.extract(str(path), folder)
  _archive(path, [("x", os.urandom(5000))])
  path.write_bytes(path.read_bytes()[:-2500])
  with pytest.raises(ValueError, match="damaged, truncated or not a .tar.gz"):
    safe_archives.extract(str(path), folder)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
