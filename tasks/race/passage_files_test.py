"""Tests of finding passages: folders, archives, orders, nothing there."""

from __future__ import annotations

import io
import tarfile

import pytest

from tasks.race import passage_files

FILES = {
  "train/middle/1.txt": b"t1",
  "dev/middle/10.txt": b"ten",
  "dev/middle/9.txt": b"nine",
  "dev/middle/extra.txt": b"extra",
  "dev/middle/._9.txt": b"a resource fork",
  "dev/middle/notes.md": b"not a passage",
  "dev/high/3.txt": b"three",
}


def write_tree(folder, files=None):
  for name, data in (files or FILES).items():
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def write_archive(path, prefix="RACE/", files=None):
  with tarfile.open(path, "w:gz") as archive:
    for name, data in (files or FILES).items():
      member = tarfile.TarInfo(prefix + name)
      member.size = len(data)
      archive.addfile(member, io.BytesIO(data))


def read(*arguments):
  return [
    (p.level, p.name, p.data) for p in passage_files.read(*map(str, arguments))
  ]


DEV = [
  ("middle", "9.txt", b"nine"),
  ("middle", "10.txt", b"ten"),
  ("middle", "extra.txt", b"extra"),
  ("high", "3.txt", b"three"),
]


def test_folder_parent_and_archive_hold_the_same(tmp_path):
  write_tree(tmp_path / "a" / "RACE")
  (tmp_path / "b").mkdir()
  write_archive(tmp_path / "b" / "RACE.tar.gz")
  write_archive(tmp_path / "bare.tgz", prefix="./")
  for place in ("a", "a/RACE", "b", "b/RACE.tar.gz", "bare.tgz"):
    assert read(tmp_path / place, "dev") == DEV, place
    assert read(tmp_path / place, "dev", "high") == DEV[3:], place
    assert read(tmp_path / place, "dev", "middle") == DEV[:3], place


def test_all_txt_is_read_by_the_line_and_alone(tmp_path):
  files = {"dev/high/all.txt": b"one\n\n two\r\n", "dev/high/1.txt": b"one"}
  write_tree(tmp_path, files)
  first, second = passage_files.read(str(tmp_path), "dev")
  assert (first.name, first.data) == ("1", b"one")
  assert (second.name, second.data.strip()) == ("3", b"two")
  assert second.where == f"{tmp_path}/dev/high/all.txt line 3"
  write_archive(tmp_path / "RACE.tar.gz", files=files)
  in_archive = passage_files.read(str(tmp_path / "RACE.tar.gz"), "dev")
  assert [passage.data for passage in in_archive] == [first.data, second.data]


def test_a_message_names_a_file_inside_the_archive(tmp_path):
  archive = tmp_path / "RACE.tar.gz"
  write_archive(archive)
  passage = next(passage_files.read(str(archive), "train"))
  assert passage.where == f"{archive}/train/middle/1.txt"


def test_what_is_not_there_is_named(tmp_path):
  with pytest.raises(FileNotFoundError, match="no RACE in .*: name the"):
    read(tmp_path, "dev")
  write_tree(tmp_path)
  with pytest.raises(FileNotFoundError, match=r"of test \(middle and high\)"):
    read(tmp_path, "test")
  with pytest.raises(FileNotFoundError, match=r"of train \(high\): .*train/hi"):
    read(tmp_path, "train", "high")
  with pytest.raises(ValueError, match="'valid' is none of train, dev, test"):
    read(tmp_path, "valid")
  with pytest.raises(ValueError, match="'low' is none of all, middle, high"):
    read(tmp_path, "dev", "low")


def test_a_damaged_archive_is_refused(tmp_path):
  whole, cut = tmp_path / "whole.tar.gz", tmp_path / "cut.tar.gz"
  write_archive(whole)
  cut.write_bytes(whole.read_bytes()[:-60])
  with pytest.raises(ValueError, match="cut.tar.gz is not a whole tar"):
    read(cut, "dev")
  broken = bytearray(whole.read_bytes())
  broken[-6] ^= 1  # Of the checksum.
  cut.write_bytes(broken)
  with pytest.raises(ValueError, match="cut.tar.gz is not a whole tar"):
    read(cut, "dev")
  cut.write_bytes(b"<html>not found</html>")
  with pytest.raises(ValueError, match="cut.tar.gz is not a whole tar"):
    read(cut, "dev")


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
