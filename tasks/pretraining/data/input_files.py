"""Finds and reads input files: local or remote, compressed or not.

Files that end in `.gz`, `.zst` or `.zstd` are decompressed. A path with `://`,
such as `gs://bucket/corpus-*.jsonl.gz`, is opened by tf.io.gfile; TensorFlow is
imported only then.
"""

from __future__ import annotations

import glob
import gzip
import os
import re
import types
import zlib
from typing import Any, BinaryIO, Iterator

_COMPRESSED = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd"}
_READ_BYTES = 1 << 20
# Compressed bytes; their decompressed content is held in memory.
_ZSTD_READ_BYTES = 1 << 16
# The largest window of `zstd --long=31`; the default limit is 2^27.
_ZSTD_MAX_WINDOW_BYTES = 1 << 31

_LOCAL = types.SimpleNamespace(
  exists=os.path.exists,
  isdir=os.path.isdir,
  glob=glob.glob,
  open=lambda path: open(path, "rb"),
)


def _file_system(path: str) -> types.SimpleNamespace:
  if "://" not in path:
    return _LOCAL
  import tensorflow as tf

  gfile = tf.io.gfile
  try:
    gfile.exists(path)
  except tf.errors.UnimplementedError as error:
    scheme = path.split("://")[0]
    raise ValueError(
      f"TensorFlow cannot read {scheme}:// addresses such as {path!r}, but "
      "gs:// ones: copy the files there or to a local disk."
    ) from error
  return types.SimpleNamespace(
    exists=gfile.exists,
    isdir=gfile.isdir,
    glob=gfile.glob,
    open=lambda path: gfile.GFile(path, "rb"),
  )


def find_files(patterns: str) -> list[str]:
  """Finds the files of a comma-separated list of names and globs.

  Returns:
    Paths in the order of the list, sorted within a glob, without repetitions.

  Raises:
    FileNotFoundError: no file matches one of the patterns.
    ValueError: the list is empty, or TensorFlow cannot read such an address.
  """
  names = [name.strip() for name in patterns.split(",") if name.strip()]
  if not names:
    raise ValueError("input_files is empty: name at least one text file.")
  found: dict[str, None] = {}
  for name in names:
    system = _file_system(name)
    matches = [name] if system.exists(name) else sorted(system.glob(name))
    matches = [path for path in matches if not system.isdir(path)]
    if not matches:
      hint = ""
      if system.isdir(name):
        hint = f", which is a folder: use {os.path.join(name, '*')}"
      raise FileNotFoundError(f"no input file matches {name!r}{hint}.")
    found.update(dict.fromkeys(matches))
  return list(found)


def size_and_time(path: str) -> tuple[int, int]:
  """Returns a file's size as it is stored and its time of change in ns."""
  if "://" not in path:
    found = os.stat(path)
    return found.st_size, found.st_mtime_ns
  import tensorflow as tf

  found = tf.io.gfile.stat(path)
  return int(found.length), int(found.mtime_nsec)


def name_without_compression(path: str) -> str:
  """Returns, for example, "a.jsonl" for "a.JSONL.gz"."""
  root, ending = os.path.splitext(path.lower())
  return root if ending in _COMPRESSED else path.lower()


def read_blocks(
  path: str, end: re.Pattern[bytes], size: int
) -> Iterator[tuple[int, bytes, bool, int]]:
  """Cuts the decompressed content of a file into blocks.

  Args:
    path: the file.
    end: pattern that all blocks but the last end with. It must end with a line
      break.
    size: least number of bytes of all blocks but the last, above 0.

  Yields:
    The number of the block's first line (from 1), its content, which may be
    empty, whether it is the last block, and how many bytes of the file as it is
    stored have been read.

  Raises:
    ValueError: a compressed file is cut or damaged, and its rest cannot be
      read. The lines before the damage have been yielded.
  """
  kind = _COMPRESSED.get(os.path.splitext(path.lower())[1], "")
  with _file_system(path).open(path) as file:
    parts = _read_parts(file, kind)
    buffer, line, is_more = bytearray(), 1, True
    while is_more:
      wanted = 2 * max(size, len(buffer))
      try:
        while is_more and len(buffer) < wanted:
          part = next(parts, b"")
          buffer += part
          is_more = bool(part)
      except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        yield line, bytes(buffer[: buffer.rfind(b"\n") + 1]), False, file.tell()
        line += buffer.count(b"\n")
        raise ValueError(
          f"{path} is not a complete {kind} file (after line {line - 1}: "
          f"{error}): copy it again, or remove the suffix from its name if it "
          "is not compressed."
        ) from error
      while found := end.search(buffer, size - 1):
        yield line, bytes(buffer[: found.end()]), False, file.tell()
        line += buffer.count(b"\n", 0, found.end())
        del buffer[: found.end()]
    yield line, bytes(buffer), True, file.tell()


def _read_parts(file: BinaryIO, kind: str) -> Iterator[bytes]:
  """Yields the decompressed content in parts that are not empty."""
  if kind == "zstd":
    yield from _decompress_zstd(file)
    return
  read: Any = file.read
  if kind == "gzip":
    # `read1` returns what comes before a damaged place before it raises.
    read = gzip.GzipFile(fileobj=file).read1
  while data := read(_READ_BYTES):
    yield data


def _decompress_zstd(file: BinaryIO) -> Iterator[bytes]:
  """Decompresses zstd frames.

  zstandard's own `stream_reader` does not notice that a file was cut.
  """
  import zstandard  # Few inputs need it, and every worker would load it.

  decompressor = zstandard.ZstdDecompressor(
    max_window_size=_ZSTD_MAX_WINDOW_BYTES
  )
  frame = None
  while data := file.read(_ZSTD_READ_BYTES):
    while data:
      frame = frame or decompressor.decompressobj()
      try:
        output = frame.decompress(data)
      except zstandard.ZstdError as error:
        raise EOFError(str(error)) from error
      if output:
        yield output
      data = b""
      if frame.eof:
        data, frame = frame.unused_data, None
  if frame:
    raise EOFError("it ends in the middle of a frame")
