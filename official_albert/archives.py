"""Unpacks untrusted tar archives, with limits on their number and size."""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import os
import tarfile
import tempfile
import zlib
from typing import IO, Iterator

from official_albert import files

# Raised for archives that are damaged or beyond the limits. Those of the second
# line are for damaged numbers and for thousands of headers in a row.
_ERRORS = (
  *(tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error),
  *(ValueError, OverflowError, RecursionError),
)
# Raised for a place that is outside of the folder, or that another file has.
_PLACES = (
  *(tarfile.FilterError, FileExistsError),
  *(IsADirectoryError, NotADirectoryError),
)
# An ordinary archive has 2 KiB of headers per file, which are kept in memory.
_MAX_HEADER_BYTES = 1 << 20
_GZIP = b"\x1f\x8b"
# The bytes may be the first number, or so many times those of the archive up to
# the last one. Weights hardly compress; zeros do by a factor of 1,000.
_MAX_FILES = 1000
_FREE_BYTES, _MAX_RATIO, _MAX_BYTES = 1 << 28, 20, 1 << 34


@contextlib.contextmanager
def unpacked(path: str) -> Iterator[str]:
  """Unpacks an archive; yields the temporary folder, or any other path as is.

  If the archive holds a single folder, that folder is yielded. An archive from
  an untrusted source writes nothing outside of the folder, and little memory is
  used. Errors of the body that name the folder name the archive instead.

  Raises:
    ValueError: the archive is damaged, too large, or holds a link, a device, a
      path outside of the folder or two files of one name.
    OSError: the archive cannot be read, or the disk is full.
  """
  if not path.endswith((".tar.gz", ".tgz")) or not files.is_file(path):
    yield path
    return
  if not hasattr(tarfile, "data_filter"):
    raise ValueError(
      f"{path} cannot be unpacked safely by this Python: use 3.10.12, 3.11.4 "
      "or newer, or unpack the archive and give its folder."
    )
  size, _ = files.stat(path)
  max_bytes = max(_FREE_BYTES, min(_MAX_RATIO * size, _MAX_BYTES))
  with tempfile.TemporaryDirectory(prefix="checkpoint-") as folder:
    try:
      with files.open(path, "rb") as packed:
        _extract(packed, folder, max_bytes)
    except _ERRORS as error:
      raise ValueError(
        f"{path} is not a .tar.gz of a checkpoint, or is damaged "
        f"({str(error)[:120]})."
      ) from error
    except OSError as error:
      raise OSError(
        f"{path} cannot be unpacked into {tempfile.gettempdir()}: "
        f"{error.strerror or error}."
      ) from error
    # A Mac adds ._NAME beside each NAME.
    inside = [x for x in files.list_dir(folder) if not x.startswith(".")]
    only = os.path.join(folder, inside[0]) if len(inside) == 1 else ""
    with naming(path, folder):
      yield only if files.is_dir(only) else folder


@contextlib.contextmanager
def naming(path: str, folder: str) -> Iterator[None]:
  """Puts a path in place of a folder of ours into the errors of the body."""
  try:
    yield
  except (ValueError, OSError) as error:
    error.args = tuple(
      arg.replace(folder, path) if isinstance(arg, str) else arg
      for arg in error.args
    )
    if isinstance(error, OSError) and isinstance(error.filename, str):
      error.filename = error.filename.replace(folder, path)
    raise


class _HeaderReader(io.FileIO):
  """A tar archive whose headers are read if they are not too large."""

  def read(self, size: int = -1, /) -> bytes:
    if not 0 <= size <= _MAX_HEADER_BYTES:
      raise tarfile.TarError("it has more headers than files need")
    return super().read(size)


def _extract(packed: IO[bytes], folder: str, max_bytes: int) -> None:
  """Unpacks a tar archive, compressed with gzip or not at all.

  Raises:
    One of `_ERRORS`: the archive is damaged, or it is beyond a limit.
  """
  is_gzip = packed.read(len(_GZIP)) == _GZIP
  packed.seek(0)
  source = gzip.open(packed) if is_gzip else packed
  with tempfile.NamedTemporaryFile() as plain:
    while block := source.read(_MAX_HEADER_BYTES):
      plain.write(block)
      if plain.tell() > max_bytes:
        raise tarfile.TarError(f"it has more than {max_bytes:,} bytes")
    plain.flush()
    with (
      _HeaderReader(plain.name) as file,
      tarfile.open(fileobj=file, mode="r:") as archive,
    ):
      members = list(itertools.islice(archive, _MAX_FILES + 1))
      if len(members) > _MAX_FILES:
        raise tarfile.TarError(f"it has more than {_MAX_FILES:,} files")
      for member in members:
        is_file = member.isreg() and not member.issparse()
        if not (is_file or member.isdir()) or member.size < 0:
          raise tarfile.TarError(
            f"{member.name!r:.80} is neither a file nor a folder"
          )
      names = (x.name.lstrip("/") for x in members if x.isreg())
      paths = [*map(os.path.normpath, names)]
      try:
        if len({*paths}) < len(paths):
          raise FileExistsError
        archive.extractall(folder, members, filter="data")
      except _PLACES as error:
        raise tarfile.TarError(
          "a file is outside of its folder, or two have one name"
        ) from error
