"""Reads untrusted tar archives, with limits on the number and size of files.

tarfile alone reads headers of any size into memory and keeps all of them, and
an archive of zeros unpacks to a thousand times its size.
"""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from typing import IO, Any, Iterator

# Raised for archives that are damaged or beyond the limits. Those of the second
# line are for damaged numbers and for thousands of headers in a row.
ERRORS = (
  *(tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error),
  *(ValueError, OverflowError, RecursionError),
)
# An ordinary archive has 2 KiB of headers per file.
_HEADER_BYTES, _MAX_HEADER_BYTES = 1 << 12, 1 << 20
_READ_BYTES = 1 << 16
_GZIP = b"\x1f\x8b"


class _BoundedReader(io.RawIOBase):
  """An unpacked archive, of which tarfile can read a limited number of bytes.

  Attributes:
    left: the number of bytes that can still be read.
  """

  def __init__(self, file: Any):
    self.left = _MAX_HEADER_BYTES
    self._file = file

  def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
    return self._file.seek(offset, whence)

  def tell(self) -> int:
    return self._file.tell()

  def read(self, size: int = -1) -> bytes:
    if not 0 <= size <= self.left:
      raise tarfile.TarError("it has more headers than files need")
    self.left -= size
    return self._file.read(size)


def members(
  packed: IO[bytes], max_files: int, max_bytes: int
) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
  """Yields the archive and each member, whose content can then be extracted.

  Args:
    packed: a tar archive, compressed with gzip or not at all.
    max_files: the most members.
    max_bytes: the most bytes of all members, also those that are not extracted.

  Raises:
    One of `ERRORS`: the archive is damaged, or it is beyond a limit.
  """
  is_gzip = packed.read(len(_GZIP)) == _GZIP
  packed.seek(0)
  reader = _BoundedReader(gzip.open(packed) if is_gzip else packed)
  left, count, total = _HEADER_BYTES * max_files, 0, 0
  archive: Any  # Its attribute `members` is not in mypy's description.
  with tarfile.open(fileobj=reader, mode="r:") as archive:
    while member := archive.next():
      archive.members.clear()  # tarfile would keep all headers.
      left -= _MAX_HEADER_BYTES - reader.left
      count += 1
      total += member.size
      if member.size < 0 or total > max_bytes or count > max_files:
        raise tarfile.TarError(
          f"it has more than {max_bytes:,} bytes or {max_files:,} files"
        )
      if left < 0:
        raise tarfile.TarError("it has more headers than files need")
      reader.left = member.size
      yield archive, member
      reader.left = _MAX_HEADER_BYTES
    # The checksum follows the padding.
    reader.left = max_bytes
    while reader.read(_READ_BYTES):
      pass
