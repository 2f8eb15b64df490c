"""Tests of unpacking archives from untrusted sources."""

from __future__ import annotations

import errno
import gzip
import io
import os
import tarfile
import tempfile
import tracemalloc
from unittest import mock

import pytest

from official_albert import AlbertModel, archives, files


def archive_of(path, members):
  """Writes an archive; members are names with contents, or TarInfos."""
  with tarfile.open(path, "w:gz") as archive:
    for name, content in members:
      if isinstance(name, tarfile.TarInfo):
        is_gnu = not name.pax_headers  # Then sizes may be negative.
        kind = tarfile.GNU_FORMAT if is_gnu else tarfile.PAX_FORMAT
        # From Python 3.13 on, `addfile` refuses a size without its content.
        archive.fileobj.write(name.tobuf(kind))
        continue
      info = tarfile.TarInfo(name)
      info.size = len(content)
      archive.addfile(info, io.BytesIO(content))
  return str(path)


def special(kind, size=0, name="link"):
  info = tarfile.TarInfo(name)
  info.type, info.linkname, info.size = kind, "/etc/passwd", size
  return info


def of_numbers(**headers):
  """Returns a member whose further headers say what tarfile cannot read."""
  info = tarfile.TarInfo("x")
  info.pax_headers = {name.replace("_", "."): x for name, x in headers.items()}
  return info


def test_an_absolute_path_stays_in_the_folder(tmp_path):
  path = archive_of(tmp_path / "a.tgz", [("./x", b"1"), ("/etc/y", b"2")])
  with archives.unpacked(path) as folder:
    assert sorted(os.listdir(folder)) == ["etc", "x"]
  assert not os.path.exists(folder)


@pytest.mark.parametrize(
  "names",
  [
    ["a/../../x"],
    *([special(kind)] for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE)),
    *([special(kind)] for kind in (tarfile.CHRTYPE, tarfile.FIFOTYPE)),
    *([special(kind, 2**40)] for kind in (b"Z", tarfile.REGTYPE)),
    # Files and folders of one name.
    ["good"],
    ["good/x"],
    ["x/y", "x"],
    ["/good"],
    ["x/y", special(tarfile.DIRTYPE, name="x"), "./x/y"],
    # tarfile would read these headers at once.
    *([special(kind, 2**33)] for kind in (tarfile.XHDTYPE, tarfile.XGLTYPE)),
    [special(tarfile.GNUTYPE_LONGNAME, 2**33)],
    [special(tarfile.XHDTYPE, -1024)],
    [of_numbers(size="-5120")],
    [of_numbers(GNU_sparse_size="a")],
    [of_numbers(GNU_sparse_map="0,1", GNU_sparse_size="9" * 12)],
    [of_numbers(GNU_sparse_map="0,1", GNU_sparse_size="9")],
    [of_numbers(path="x\0y")],
    [of_numbers(path="../x")],
  ],
)
def test_unsafe_members_are_refused(names, tmp_path, monkeypatch):
  members = [("good", b"1"), *((name, b"2") for name in names)]
  path = archive_of(tmp_path / "a.tar.gz", members)
  (tmp_path / "scratch").mkdir()
  monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
  tracemalloc.start()
  try:
    with pytest.raises((ValueError, OSError)) as caught:
      AlbertModel.from_checkpoint(path)
    assert tracemalloc.get_traced_memory()[1] < 2**24
  finally:
    tracemalloc.stop()
  text = str(caught.value)
  assert text.startswith(path) and len(text) < 350 and "/x" not in text
  assert sorted(os.listdir(tmp_path)) == ["a.tar.gz", "scratch"]
  assert not os.listdir(tmp_path / "scratch")


def test_errors_in_an_archive_name_the_archive(tmp_path):
  path = archive_of(tmp_path / "a.tar.gz", [("x", b"1")])
  with pytest.raises(FileNotFoundError) as caught:
    AlbertModel.from_checkpoint(path)
  assert str(caught.value) == f"the folder {path} holds no checkpoint."
  archive_of(path, [("._hf", b""), ("hf/config.json", b"{")])
  with pytest.raises(ValueError, match=f"^{path}/hf/config.json is not"):
    AlbertModel.from_checkpoint(path)
  with (
    pytest.raises(FileNotFoundError) as caught,
    archives.unpacked(path) as folder,
  ):
    files.read_bytes(f"{folder}/y")
  assert caught.value.filename == f"{path}/hf/y"


def test_a_full_disk_is_not_the_fault_of_the_archive(tmp_path, monkeypatch):
  path = archive_of(tmp_path / "a.tar.gz", [("x", b"1")])
  full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
  monkeypatch.setattr(
    tarfile.TarFile, "extractall", mock.Mock(side_effect=full)
  )
  with pytest.raises(
    OSError, match="cannot be unpacked into .*: No space left"
  ):
    AlbertModel.from_checkpoint(path)


def refusal(path):
  opened = archives.unpacked(str(path))
  with pytest.raises(ValueError) as caught, opened:
    pass
  return str(caught.value)


def test_archives_that_are_not_of_a_checkpoint(tmp_path, monkeypatch):
  path = tmp_path / "a.tar.gz"
  monkeypatch.setattr(archives, "_FREE_BYTES", 1_000_000)
  archive_of(path, [("x", bytes(3_000_000))])
  assert path.stat().st_size < 10_000
  assert "more than 1,000,000 bytes" in refusal(path)
  # Zeros behind the end of the archive, as after other archives.
  path.write_bytes(gzip.compress(bytes(10**7), 1))
  assert "it has more than 1,000,000 bytes" in refusal(path)
  # Thousands of headers for headers.
  header = special(tarfile.XHDTYPE).tobuf()
  path.write_bytes(gzip.compress(header * 1900))
  assert "recursion" in refusal(path)
  archive_of(path, [(f"f{i}", b"") for i in range(1001)])
  assert "1,000 files" in refusal(path)
  path.write_bytes(b"not gzip at all")
  assert "is not a .tar.gz of a checkpoint, or is damaged" in refusal(path)
  archive_of(path, [("x", os.urandom(5000))])
  whole = path.read_bytes()
  for damaged in (whole[:-2500], whole[:-5], whole[:-8] + bytes(8)):
    path.write_bytes(damaged)
    assert "is not a .tar.gz of a checkpoint, or is damaged" in refusal(path)
  monkeypatch.delattr(tarfile, "data_filter")
  assert "use 3.10.12, 3.11.4 or newer" in refusal(path)
