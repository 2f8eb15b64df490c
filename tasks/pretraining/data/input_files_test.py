"""Tests of opening and finding files: compressed, remote, damaged."""

from __future__ import annotations

import gzip
import pathlib
import re
import subprocess
import sys

import pytest
import zstandard

from tasks.pretraining.data import input_files

_DATA = b"one\ntwo\n\nthree"
_LINES = [
  (1, b"one\n", False),
  (2, b"two\n", False),
  (3, b"\n", False),
  (4, b"three", True),
]


def _gzip(data: bytes) -> bytes:
  # Without the time of day: test workers name these cases by their bytes, and
  # must find the same names.
  return gzip.compress(data, mtime=0)


def _zstd(data: bytes) -> bytes:
  return zstandard.ZstdCompressor().compress(data)


_PACKED = {
  "a.txt": _DATA,
  "a.GZ": _gzip(_DATA),
  # Both formats may be files laid end to end.
  "b.gz": _gzip(_DATA[:5]) + _gzip(_DATA[5:]),
  "a.zst": _zstd(_DATA),
  "b.zstd": _zstd(_DATA[:5]) + _zstd(b"") + _zstd(_DATA[5:]),
}


_LINE = re.compile(rb"\n")
_BLANK = re.compile(rb"\n *\n")


def _blocks(path, end=_LINE, size=1):
  with input_files.InputFile(str(path)) as file:
    return list(file.blocks(end, size))


@pytest.mark.parametrize("name", _PACKED)
def test_lines(tmp_path, name):
  path = tmp_path / name
  path.write_bytes(_PACKED[name])
  assert _blocks(path) == _LINES
  assert input_files.size_bytes(str(path)) == len(_PACKED[name])


@pytest.mark.parametrize("name", _PACKED)
def test_remote_lines_and_progress(name):
  import tensorflow as tf

  path = f"ram://input_files_test/{name}"
  with tf.io.gfile.GFile(path, "wb") as file:
    file.write(_PACKED[name])
  with input_files.InputFile(path) as file:
    assert list(file.blocks(_LINE, 1)) == _LINES
    assert file.bytes_read == len(_PACKED[name])
  assert input_files.size_bytes(path) == len(_PACKED[name])


def test_large_zstd_is_read_a_piece_at_a_time(tmp_path):
  line = b"x" * 999 + b"\n"
  path = tmp_path / "a.zst"
  size = 0
  with (
    open(path, "wb") as file,
    zstandard.ZstdCompressor(level=1).stream_writer(file) as writer,
  ):
    for number in range(3000):
      size += writer.write(b"%d" % number + line)
  with input_files.InputFile(str(path)) as file:
    text = b"".join(data for _, data, _ in file.blocks(_LINE, 5000))
  assert text == b"".join(b"%d" % number + line for number in range(3000))


@pytest.mark.parametrize("read_bytes", [1, 3, 1000])
@pytest.mark.parametrize(
  ("end", "size", "expected"),
  [
    (_LINE, 4, [(1, b"a\n\nb\n"), (4, b"cc\n  \n"), (6, b"\ndd\n")]),
    (_LINE, 11, [(1, b"a\n\nb\ncc\n  \n"), (6, b"\ndd\n")]),
    (_BLANK, 1, [(1, b"a\n\n"), (3, b"b\ncc\n  \n"), (6, b"\ndd\n")]),
    (_BLANK, 6, [(1, b"a\n\nb\ncc\n  \n"), (6, b"\ndd\n")]),
    (_BLANK, 12, [(1, b"a\n\nb\ncc\n  \n\ndd\n")]),
  ],
)
def test_blocks_end_where_they_may(
  tmp_path, monkeypatch, read_bytes, end, size, expected
):
  monkeypatch.setattr(input_files, "_READ_AHEAD_BYTES", read_bytes)
  (tmp_path / "a").write_bytes(b"a\n\nb\ncc\n  \n\ndd\n")
  found = _blocks(tmp_path / "a", end, size)
  assert [is_last for *_, is_last in found] == [False] * (len(found) - 1) + [
    True
  ]
  if not found[-1][1]:  # Where the file ends like a block.
    found.pop()
  assert [(line, data) for line, data, _ in found] == expected


def test_lines_before_the_damage_come_first(tmp_path):
  text = b"".join(b"%d\n" % number for number in range(40000))
  (tmp_path / "a.gz").write_bytes(_gzip(text)[:-5000])
  found = b""
  with (
    input_files.InputFile(str(tmp_path / "a.gz")) as file,
    pytest.raises(input_files.CorruptFileError) as error,
  ):
    for line, data, is_last in file.blocks(_LINE, 1000):
      assert line == found.count(b"\n") + 1 and not is_last
      found += data
  assert text.startswith(found) and found.endswith(b"\n")
  assert len(text) / 2 < len(found) < len(text)
  lines = found.count(b"\n")
  assert f"not a complete gzip file (after line {lines}:" in str(error.value)


@pytest.mark.parametrize(
  ("name", "content", "message"),
  [
    (
      "a.gz",
      b"not compressed\n",
      r"a\.gz is not a complete gzip file \(after li",
    ),
    ("a.gz", _gzip(b"x\n" * 99)[:-9], "is not a complete gzip file"),
    ("a.gz", _gzip(b"x\n")[:12] + b"\xff" * 9, "not a complete gzip"),
    ("a.gz", _gzip(b"x\n") + b"rest", "after line 1: Not a gzipped"),
    (
      "a.zst",
      b"not compressed\n",
      r"a\.zst is not a complete zstd file \(after",
    ),
    ("a.zst", _zstd(_DATA * 9)[:-3], "zstd file .* in the middle of a frame"),
    ("a.zst", _zstd(b"x\n") + _zstd(b"y\n")[:-1], "not a complete zstd file"),
    ("a.zst", _zstd(b"x\n") + b"rest", "not a complete zstd file"),
  ],
)
def test_damage(tmp_path, name, content, message):
  path = tmp_path / name
  path.write_bytes(content)
  with pytest.raises(input_files.CorruptFileError, match=message):
    _blocks(path)


def test_name_without_compression():
  for name in ("a.jsonl", "A.JSONL.GZ", "a.jsonl.zst", "a.jsonl.zstd"):
    assert input_files.name_without_compression(name) == "a.jsonl"


def test_find_files(tmp_path):
  for name in ("b.txt", "a.txt", "c.jsonl", "odd[1].txt"):
    (tmp_path / name).write_text("x")
  (tmp_path / "sub").mkdir()

  def find(*patterns):
    found = input_files.find_files(
      ",".join(f"{tmp_path}/{p}" for p in patterns)
    )
    return [path[len(str(tmp_path)) + 1 :] for path in found]

  assert find("c.jsonl", "*.txt", "a.txt") == [
    "c.jsonl",
    "a.txt",
    "b.txt",
    "odd[1].txt",
  ]
  assert find("odd[1].txt") == ["odd[1].txt"]
  assert find("*") == ["a.txt", "b.txt", "c.jsonl", "odd[1].txt"]
  with pytest.raises(FileNotFoundError, match=r"no input file matches .*\.md"):
    find("a.txt", "*.md")
  with pytest.raises(FileNotFoundError, match="which is a folder"):
    find("sub")
  for empty in ("", " , "):
    with pytest.raises(ValueError, match="input_files is empty"):
      input_files.find_files(empty)


def test_find_remote_files():
  import tensorflow as tf

  folder = "ram://find_remote_files_test"
  for name in ("b.txt", "a.txt", "c.jsonl"):
    with tf.io.gfile.GFile(f"{folder}/{name}", "w") as file:
      file.write("x")
  assert input_files.find_files(f"{folder}/c.jsonl, {folder}/*.txt") == [
    f"{folder}/{name}" for name in ("c.jsonl", "a.txt", "b.txt")
  ]
  with pytest.raises(FileNotFoundError, match="no input file matches 'ram://"):
    input_files.find_files(f"{folder}/*.md")
  with pytest.raises(FileNotFoundError, match="which is a folder"):
    input_files.find_files(folder)
  with pytest.raises(ValueError, match="cannot read nonsense:// addresses"):
    input_files.find_files("nonsense://bucket/*.txt")


def test_local_files_by_address(tmp_path):
  (tmp_path / "a.txt").write_bytes(_DATA)
  (found,) = input_files.find_files(f"file://{tmp_path}/*.txt")
  assert _blocks(found) == _LINES


def test_neither_tensorflow_nor_the_rest_is_loaded_for_plain_files(tmp_path):
  (tmp_path / "a.txt").write_text("x")
  code = (
    "import sys; from tasks.pretraining.data import documents as d; "
    f"list(d.DocumentReader(d.find_files({str(tmp_path / 'a.txt')!r}))); "
    "print([m for m in ('tensorflow', 'zstandard', 'sentencex') "
    "if m in sys.modules])"
  )
  done = subprocess.run(
    [sys.executable, "-c", code],
    cwd=pathlib.Path(__file__).resolve().parents[3],
    capture_output=True,
    text=True,
    check=True,
  )
  assert done.stdout == "[]\n"


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
