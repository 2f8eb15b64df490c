"""Unpacking .tar.gz files that somebody else made.

Only plain files and folders are taken, none of which can lie outside of the
target, and the sizes that the archive claims are added up before anything of
them is read.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import pathlib
import tarfile
import tempfile
import zlib
from typing import Iterator

# An xxlarge model with optimizer state has 2.8 GB.
MAX_BYTES = 16 * 2**30
_MAX_FILES = 1000
_CHUNK = 2**20
# A header may be of any claimed length and is read at once.
_MAX_READ = 2**24


class _BoundedGzip(gzip.GzipFile):
  """Refuses to unpack a large piece at once, or more than so much in all."""

  def __init__(self, path: str, max_bytes: int):
    super().__init__(path, "rb")
    self._left = max_bytes + _MAX_READ

  def read(self, size: int = -1) -> bytes:
    if size is None or size < 0 or size > min(_MAX_READ, self._left):
      raise tarfile.ReadError("a part of it is larger than any weights")
    data = super().read(size)
    self._left -= len(data)
    return data


def is_archive(path: str) -> bool:
  """Whether a file is to be unpacked, by its name."""
  return path.endswith((".tar.gz", ".tgz")) and os.path.isfile(path)


@contextlib.contextmanager
def unpacked_archive(path: str) -> Iterator[str]:
  """The path itself, or of an archive a folder that is there until the end.

  Args:
    path: of an archive or of anything else.

  Raises:
    ValueError, OSError: see `extract`.
  """
  if not is_archive(path):
    yield path
    return
  with tempfile.TemporaryDirectory(prefix="checkpoint-") as folder:
    yield extract(path, folder)


def extract(path: str, folder: str, max_bytes: int = MAX_BYTES) -> str:
  """Unpacks a .tar.gz into an empty folder.

  Args:
    path: of the archive.
    folder: where to; is there already.
    max_bytes: of all files together.

  Returns:
    The folder itself, or the only folder in it.

  Raises:
    ValueError: the archive is damaged, too large, or holds a link, a device
      or a path out of `folder`.
    OSError: it cannot be read, or not written.
  """
  try:
    stream = _BoundedGzip(path, max_bytes)
    with stream, tarfile.open(fileobj=stream, mode="r:") as archive:
      _extract_all(archive, path, folder, max_bytes)
  except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
    raise ValueError(
      f"{path} is damaged, cut short or no .tar.gz ({error}): get it again."
    ) from error
  inside = os.listdir(folder)
  only = os.path.join(folder, inside[0]) if len(inside) == 1 else ""
  return only if os.path.isdir(only) else folder


def _extract_all(
  archive: tarfile.TarFile, path: str, folder: str, max_bytes: int
) -> None:
  total = count = 0
  for member in archive:
    target = _target(member, path, folder)
    total += member.size
    count += 1
    if total > max_bytes or count > _MAX_FILES:
      raise ValueError(
        f"{path} unpacks to more than {max_bytes:,} bytes or {_MAX_FILES} "
        "files, which no checkpoint of an ALBERT does."
      )
    if member.isdir():
      os.makedirs(target, exist_ok=True)
      continue
    os.makedirs(os.path.dirname(target), exist_ok=True)
    source = archive.extractfile(member)
    # "x": a name that comes twice would replace what has been checked.
    with source, open(target, "xb") as file:
      left = member.size
      while left:
        data = source.read(min(left, _CHUNK))
        if not data:
          raise tarfile.ReadError("unexpected end of data")
        file.write(data)
        left -= len(data)


def _target(member: tarfile.TarInfo, path: str, folder: str) -> str:
  parts = pathlib.PurePosixPath(member.name).parts
  outside = member.name.startswith("/") or ".." in parts or "\\" in member.name
  plain = member.isdir() or (member.isreg() and not member.issparse())
  if outside or not plain:
    kind = "a path out of the archive" if outside else "no plain file"
    raise ValueError(
      f"{path} holds {member.name!r}, which is {kind}: nothing of it is used."
    )
  return os.path.join(folder, *parts)
