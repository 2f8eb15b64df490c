"""Files as people have them: globs, compressed ones, local ones and buckets.

`find_files` turns names and globs into paths, `InputFile` reads one of them in
pieces that end where the caller says. The ending decides how: `.gz` and `.zst`
(also `.zstd`) are decompressed while reading. A name with `://`, such as
`gs://bucket/corpus-*.jsonl.gz`, is opened by tf.io.gfile, and TensorFlow is
imported only then, so that other programs do without it.
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
# Of compressed bytes: what they become is held in memory.
_ZSTD_CHUNK_BYTES = 1 << 16
# The largest that `zstd --long=31` asks for; the default refuses over 2^27.
_ZSTD_MAX_WINDOW_BYTES = 1 << 31


class CorruptFileError(ValueError):
  """A compressed file is cut or damaged: nobody knows how much is lost."""


def find_files(patterns: str) -> list[str]:
  """The files that a comma-separated list of names and globs stands for.

  Returns:
    Paths in the order of the list, sorted within a glob, each once.

  Raises:
    FileNotFoundError: nothing matches one of the patterns.
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
        hint = f", which is a folder; its files are {os.path.join(name, '*')}"
      raise FileNotFoundError(f"no input file matches {name!r}{hint}.")
    found.update(dict.fromkeys(matches))
  return list(found)


def size_bytes(path: str) -> int:
  """As it is stored, compressed or not."""
  return _system(path).size_bytes(path)


def name_without_compression(path: str) -> str:
  """For example "a.jsonl" for "a.JSONL.gz": what the content is."""
  root, ending = os.path.splitext(path.lower())
  return root if ending in _COMPRESSED else path.lower()


class InputFile:
  """The content of one file; a context manager.

  with InputFile("a.txt.gz") as file:
    for line, data, is_last in file.blocks(re.compile(rb"\n"), 1 << 18): ...
  """

  def __init__(self, path: str):
    """Opens the file.

    Raises:
      OSError: it can't be read.
    """
    self.path = path
    self._file: BinaryIO = _system(path).open(path)
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
    """Of the file as it is stored."""
    return self._file.tell()

  def blocks(
    self, end: re.Pattern[bytes], size: int
  ) -> Iterator[tuple[int, bytes, bool]]:
    """Cuts the file into pieces, none of which is much larger than need be.

    Args:
      end: what all pieces but the last end with; it ends with a line break.
      size: bytes that all pieces but the last have at least, above 0.

    Yields:
      (number of its first line, from 1; piece, maybe empty; whether it is the
      last).

    Raises:
      CorruptFileError: it is not the compressed file that its name says, or
        only a part of it; the lines before that have been yielded.
    """
    buffer, line, is_more = bytearray(), 1, True
    while is_more:
      try:
        is_more = _fill(buffer, self._stream, 2 * max(size, len(buffer)))
      except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        yield line, bytes(buffer[: buffer.rfind(b"\n") + 1]), False
        line += buffer.count(b"\n")
        raise CorruptFileError(
          f"{self.path} is not a whole {self._kind} file (after line "
          f"{line - 1}: {error}): copy it again, or take the ending off its "
          "name if it is not compressed."
        ) from error
      while found := end.search(buffer, size - 1):
        yield line, bytes(buffer[: found.end()]), False
        line += buffer.count(b"\n", 0, found.end())
        del buffer[: found.end()]
    yield line, bytes(buffer), True


def _fill(buffer: bytearray, stream: BinaryIO, size: int) -> bool:
  """Reads until there are `size` bytes; returns whether there may be more."""
  while len(buffer) < size:
    # What comes before a damaged place is returned, and only then it raises.
    data = stream.read1(_READ_AHEAD_BYTES)
    if not data:
      return False
    buffer += data
  return True


class _ZstdStream(io.RawIOBase):
  """Frames of zstd as bytes.

  Not zstandard's own stream_reader, which takes a file that was cut for one
  that has ended.
  """

  def __init__(self, file: BinaryIO):
    import zstandard  # Few need it, and each worker would load it.

    self._file = file
    self._error = zstandard.ZstdError
    self._decompressor = zstandard.ZstdDecompressor(
      max_window_size=_ZSTD_MAX_WINDOW_BYTES
    )
    self._frame: Any = None  # The one that is being read, if any.
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
  """The operating system's."""

  is_file = staticmethod(os.path.isfile)
  is_folder = staticmethod(os.path.isdir)
  glob = staticmethod(glob.glob)
  size_bytes = staticmethod(os.path.getsize)

  def open(self, path: str) -> BinaryIO:
    return open(path, "rb")


class _RemoteFiles:
  """Those that tf.io.gfile knows."""

  def __init__(self, path: str):
    import tensorflow as tf

    self._gfile = tf.io.gfile
    try:
      self._gfile.exists(path)
    except tf.errors.UnimplementedError as error:
      scheme = path.split("://")[0]
      raise ValueError(
        f"TensorFlow cannot read {scheme}:// addresses such as {path!r} (gs:// "
        "it can): copy the files, or install and import tensorflow-io."
      ) from error

  def is_file(self, path: str) -> bool:
    return self._gfile.exists(path) and not self._gfile.isdir(path)

  def is_folder(self, path: str) -> bool:
    return self._gfile.isdir(path)

  def glob(self, path: str) -> list[str]:
    return self._gfile.glob(path)

  def size_bytes(self, path: str) -> int:
    return self._gfile.stat(path).length

  def open(self, path: str) -> BinaryIO:
    return io.BufferedReader(
      _RemoteStream(self._gfile.GFile(path, "rb")), _READ_AHEAD_BYTES
    )


class _RemoteStream(io.RawIOBase):
  """A GFile as Python's io knows files, which makes it fast by the line."""

  def __init__(self, file: Any):
    self._file = file
    self._position = 0

  def readable(self) -> bool:
    return True

  def readinto(self, buffer) -> int:
    data = self._file.read(len(buffer))
    buffer[: len(data)] = data
    self._position += len(data)
    return len(data)

  def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
    raise io.UnsupportedOperation("seek")

  def tell(self) -> int:
    return self._position

  def close(self) -> None:
    if not self.closed:
      self._file.close()
    super().close()


def _system(path: str) -> Union[_LocalFiles, _RemoteFiles]:
  return _RemoteFiles(path) if "://" in path else _LocalFiles()
