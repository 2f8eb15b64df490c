"""What is made, and what is said of paths that cannot be."""

from __future__ import annotations

import os
import re

import pytest

from official_albert import output_paths


def test_folders_are_made(tmp_path):
  for path in (tmp_path / "a" / "b", tmp_path / "a", tmp_path / "a" / "c"):
    output_paths.make_folder(str(path))
    assert path.is_dir()


def test_a_check_makes_nothing(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  for path in ("", "a", "a/b", f"{tmp_path}/a"):
    output_paths.check_folder(path)
  for path in ("a.png", f"{tmp_path}/a.png"):
    output_paths.check_file(path)
  assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
  "refuse",
  [
    output_paths.check_local,
    output_paths.check_folder,
    output_paths.make_folder,
    output_paths.check_file,
  ],
)
@pytest.mark.parametrize(
  "path", ["gs://bucket/a", "file:///a", "a.txt,s3://bucket/*.txt"]
)
def test_remote_addresses_are_refused(tmp_path, monkeypatch, refuse, path):
  monkeypatch.chdir(tmp_path)
  scheme = path.split("//")[0].split(",")[-1]
  with pytest.raises(ValueError, match=f"not a local path, and {scheme}// add"):
    refuse(path)
  assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
  "refuse", [output_paths.check_folder, output_paths.make_folder]
)
def test_a_file_is_no_folder(tmp_path, monkeypatch, refuse):
  monkeypatch.chdir(tmp_path)
  (tmp_path / "a.txt").write_text("text")
  for path, message in (
    ("a.txt", "a.txt is a file: name a folder."),
    (
      "a.txt/b/c",
      "a.txt is a file, and so a.txt/b/c cannot be made: name a folder.",
    ),
  ):
    with pytest.raises(NotADirectoryError, match=f"^{re.escape(message)}$"):
      refuse(path)
  assert (tmp_path / "a.txt").read_text() == "text"


def test_files(tmp_path):
  (tmp_path / "a.txt").write_text("text")
  output_paths.check_file(str(tmp_path / "a.txt"))  # It may be replaced.
  for path, kind, message in (
    ("", IsADirectoryError, "is a folder: name a file"),
    ("b/x.png", FileNotFoundError, "there is no folder .*b: make it, or name"),
    ("a.txt/x.png", NotADirectoryError, "a.txt is a file: name a folder"),
  ):
    with pytest.raises(kind, match=message):
      output_paths.check_file(str(tmp_path / path))


def test_a_folder_that_is_read_only(tmp_path, monkeypatch):
  # Root may write everywhere.
  monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
  with pytest.raises(PermissionError) as caught:
    output_paths.check_file(str(tmp_path / "x.png"))
  assert caught.value.filename == str(tmp_path)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
