"""Files as people have them: globs, compressed ones, local ones and buckets.

`find_files` turns names and globs into paths, `InputFile` reads one of them as
numbered lines of bytes. The ending decides how: `.gz` and `.zst` (also
`.zstd`) are decompressed while reading. A name with `://`, such as
`gs://bucket/corpus-*.jsonl.gz`, is opened by tf.io.gfile, and TensorFlow is
imported only then, so that other programs do without it.
"""

from __future__ import annotations

import glob
import gzip
import io
import os
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
  """The lines of one file; a context manager.

  with InputFile("a.txt.gz") as file:
    for number, line in file.lines(): ...
  """

  def __init__(self, path: str):
    """Opens the file.

    Raises:
      OSError: it can't be read.
    """
    self.path = path
    self._file: BinaryIO = _system(path).open(path)

  def __enter__(self) -> InputFile:
    return self

  def __exit__(self, *unused: Any) -> None:
    self._file.close()

  @property
  def bytes_read(self) -> int:
    """Of the file as it is stored."""
    return self._file.tell()

  def lines(self) -> Iterator[tuple[int, bytes]]:
    """Yields (number from 1, line with its end).

    Raises:
      CorruptFileError: it is not the compressed file that its name says, or
        only a part of it.
    """
    kind = _COMPRESSED.get(os.path.splitext(self.path.lower())[1])
    if kind == "gzip":
      stream = gzip.GzipFile(fileobj=self._file)
    elif kind == "zstd":
      stream = io.BufferedReader(_ZstdStream(self._file), _READ_AHEAD_BYTES)
    else:
      stream = self._file
    number = 0
    try:
      for number, line in enumerate(stream, start=1):
        yield number, line
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
      raise CorruptFileError(
        f"{self.path} is not a whole {kind} file (after line {number}: "
        f"{error}): copy it again, or take the ending off its name if it is "
        "not compressed."
      ) from error


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
