"""Unpacking .tar.gz files from untrusted sources."""

from __future__ import annotations

import contextlib
import gzip
import os
import tarfile
import tempfile
import zlib
from typing import Iterator

# An xxlarge model with optimizer state has 2.8 GB.
MAX_BYTES = 16 * 2**30
_MAX_FILES = 1000
# tarfile reads a header at once, whatever length it claims.
_MAX_READ = 2**24


class _BoundedGzip(gzip.GzipFile):
  """Refuses large reads, which would fill the memory."""

  def read(self, size: int = -1) -> bytes:
    if not 0 <= size <= _MAX_READ:
      raise tarfile.ReadError(f"a header claims {size:,} bytes")
    return super().read(size)


def is_archive(path: str) -> bool:
  """Returns whether a path is a file that is named as an archive."""
  return path.endswith((".tar.gz", ".tgz")) and os.path.isfile(path)


@contextlib.contextmanager
def unpacked_archive(path: str) -> Iterator[str]:
  """Yields a temporary folder with an archive's content, or the path itself.

  Args:
    path: an archive or any other path.

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
    folder: an existing folder.
    max_bytes: limit of the total size.

  Returns:
    The folder itself, or the only folder in it.

  Raises:
    ValueError: the archive is damaged, too large, or holds a link, a device
      or a path outside of `folder`; or this Python is too old.
    OSError: it cannot be read, or not written.
  """
  if not hasattr(tarfile, "data_filter"):
    raise ValueError(
      f"{path} cannot be unpacked safely by this Python: use 3.10.12, 3.11.4 "
      "or newer, or unpack the archive and give its folder."
    )
  total = 0
  try:
    with (
      _BoundedGzip(path) as stream,
      tarfile.open(fileobj=stream, mode="r:") as archive,
    ):
      for count, member in enumerate(archive, 1):
        total += member.size
        if total > max_bytes or count > _MAX_FILES:
          raise ValueError(
            f"{path} unpacks to more than {max_bytes:,} bytes or {_MAX_FILES} "
            "files: it is not a checkpoint of an ALBERT."
          )
        if not (member.isreg() or member.isdir()):
          raise ValueError(
            f"{path} holds {member.name!r}, which is neither a file nor a "
            "folder: the archive is not used."
          )
        archive.extract(member, folder, filter="data")
  except tarfile.FilterError as error:
    raise ValueError(f"{path} is not used: {error}.") from error
  except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
    raise ValueError(
      f"{path} is damaged, truncated or not a .tar.gz ({error}): copy it again."
    ) from error
  inside = os.listdir(folder)
  only = os.path.join(folder, inside[0]) if len(inside) == 1 else ""
  return only if os.path.isdir(only) else folder
