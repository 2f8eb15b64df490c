"""Finds and reads input files: local or remote, compressed or not.

`find_files` turns names and globs into paths, and `InputFile` reads a file in
blocks. Files that end in `.gz`, `.zst` or `.zstd` are decompressed. A path with
`://`, such as `gs://bucket/corpus-*.jsonl.gz`, is opened by tf.io.gfile;
TensorFlow is imported only then.
"""

from __future__ import annotations

import glob
import gzip
import io
import os
import re
import zlib
from typing import Any, BinaryIO, Iterator, Union

_COMPRESSED = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd"}
_READ_AHEAD_BYTES = 1 << 20
# Compressed bytes; their decompressed content is held in memory.
_ZSTD_CHUNK_BYTES = 1 << 16
# The largest window of `zstd --long=31`; the default limit is 2^27.
_ZSTD_MAX_WINDOW_BYTES = 1 << 31


class CorruptFileError(ValueError):
  """A compressed file is cut or damaged, and its rest cannot be read."""


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
    system = _system(name)
    matches = [name] if system.is_file(name) else sorted(system.glob(name))
    matches = [path for path in matches if system.is_file(path)]
    if not matches:
      hint = ""
      if system.is_folder(name):
        hint = f", which is a folder: use {os.path.join(name, '*')}"
      raise FileNotFoundError(f"no input file matches {name!r}{hint}.")
    found.update(dict.fromkeys(matches))
  return list(found)


def size_bytes(path: str) -> int:
  """Returns the size of a file as it is stored, compressed or not."""
  return _system(path).size_bytes(path)


def name_without_compression(path: str) -> str:
  """Returns, for example, "a.jsonl" for "a.JSONL.gz"."""
  root, ending = os.path.splitext(path.lower())
  return root if ending in _COMPRESSED else path.lower()


class InputFile:
  """The decompressed content of a file; a context manager.

  with InputFile("a.txt.gz") as file:
    for line, data, is_last in file.blocks(re.compile(rb"\n"), 1 << 18):
      ...
  """

  def __init__(self, path: str):
    """Opens the file.

    Raises:
      OSError: the file cannot be read.
    """
    self.path = path
    self._file = _system(path).open(path)
    self._kind = _COMPRESSED.get(os.path.splitext(path.lower())[1])
    self._stream = self._file
    if self._kind == "gzip":
      self._stream = gzip.GzipFile(fileobj=self._file)
    elif self._kind == "zstd":
      self._stream = io.BufferedReader(
        _ZstdStream(self._file), _READ_AHEAD_BYTES
      )

  def __enter__(self) -> InputFile:
    return self

  def __exit__(self, *unused: Any) -> None:
    self._file.close()

  @property
  def bytes_read(self) -> int:
    """Bytes that have been read of the file as it is stored."""
    return self._file.tell()

  def blocks(
    self, end: re.Pattern[bytes], size: int
  ) -> Iterator[tuple[int, bytes, bool]]:
    """Cuts the file into blocks.

    Args:
      end: pattern that all blocks but the last end with. It must end with a
        line break.
      size: least number of bytes of all blocks but the last, above 0.

    Yields:
      The number of the block's first line (from 1), its content, which may be
      empty, and whether it is the last block.

    Raises:
      CorruptFileError: the compressed file is cut or damaged. The lines before
        the damage have been yielded.
    """
    buffer, line, is_more = bytearray(), 1, True
    while is_more:
      try:
        is_more = _fill(buffer, self._stream, 2 * max(size, len(buffer)))
      except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        yield line, bytes(buffer[: buffer.rfind(b"\n") + 1]), False
        line += buffer.count(b"\n")
        raise CorruptFileError(
          f"{self.path} is not a complete {self._kind} file (after line "
          f"{line - 1}: {error}): copy it again, or remove the suffix from its "
          "name if it is not compressed."
        ) from error
      while found := end.search(buffer, size - 1):
        yield line, bytes(buffer[: found.end()]), False
        line += buffer.count(b"\n", 0, found.end())
        del buffer[: found.end()]
    yield line, bytes(buffer), True


def _fill(buffer: bytearray, stream: BinaryIO, size: int) -> bool:
  """Reads until the buffer has `size` bytes; returns False at the end."""
  # `read1` returns what comes before a damaged place before it raises. A GFile,
  # which is not compressed, has no `read1`.
  read = getattr(stream, "read1", stream.read)
  while len(buffer) < size:
    data = read(_READ_AHEAD_BYTES)
    if not data:
      return False
    buffer += data
  return True


class _ZstdStream(io.RawIOBase):
  """Decompresses zstd frames.

  zstandard's own `stream_reader` does not notice that a file was cut.
  """

  def __init__(self, file: BinaryIO):
    import zstandard  # Few inputs need it, and every worker would load it.

    self._file = file
    self._error = zstandard.ZstdError
    self._decompressor = zstandard.ZstdDecompressor(
      max_window_size=_ZSTD_MAX_WINDOW_BYTES
    )
    self._frame: Any = None  # The frame that is being read, if any.
    self._input = b""
    self._output = memoryview(b"")

  def readable(self) -> bool:
    return True

  def readinto(self, buffer) -> int:
    while not self._output:
      self._input = self._input or self._file.read(_ZSTD_CHUNK_BYTES)
      if not self._input:
        if self._frame is not None:
          raise EOFError("it ends in the middle of a frame")
        return 0
      self._frame = self._frame or self._decompressor.decompressobj()
      try:
        self._output = memoryview(self._frame.decompress(self._input))
      except self._error as error:
        raise EOFError(str(error)) from error
      self._input = b""
      if self._frame.eof:
        self._input, self._frame = self._frame.unused_data, None
    size = min(len(buffer), len(self._output))
    buffer[:size] = self._output[:size]
    self._output = self._output[size:]
    return size


class _LocalFiles:
  """Files of the operating system."""

  is_file = staticmethod(os.path.isfile)
  is_folder = staticmethod(os.path.isdir)
  glob = staticmethod(glob.glob)
  size_bytes = staticmethod(os.path.getsize)

  def open(self, path: str) -> BinaryIO:
    return open(path, "rb")


class _RemoteFiles:
  """Files that tf.io.gfile can read."""

  def __init__(self, path: str):
    import tensorflow as tf

    self._gfile = tf.io.gfile
    try:
      self._gfile.exists(path)
    except tf.errors.UnimplementedError as error:
      scheme = path.split("://")[0]
      raise ValueError(
        f"TensorFlow cannot read {scheme}:// addresses such as {path!r}, but "
        "gs:// ones: copy the files there or to a local disk."
      ) from error

  def is_file(self, path: str) -> bool:
    return self._gfile.exists(path) and not self._gfile.isdir(path)

  def is_folder(self, path: str) -> bool:
    return self._gfile.isdir(path)

  def glob(self, path: str) -> list[str]:
    return self._gfile.glob(path)

  def size_bytes(self, path: str) -> int:
    return self._gfile.stat(path).length

  def open(self, path: str) -> Any:
    return self._gfile.GFile(path, "rb")


def _system(path: str) -> Union[_LocalFiles, _RemoteFiles]:
  return _RemoteFiles(path) if "://" in path else _LocalFiles()
