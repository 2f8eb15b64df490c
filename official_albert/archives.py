"""Unpacks untrusted tar archives, with limits on the number and size of files.

tarfile alone reads headers of any size into memory and keeps all of them, and
an archive of zeros unpacks to a thousand times its size.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import shutil
import tarfile
import tempfile
import zlib
from typing import IO, Any, Iterator

from official_albert import files

# Raised for archives that are damaged or beyond the limits. Those of the second
# line are for damaged numbers and for thousands of headers in a row.
_ERRORS = (
  *(tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error),
  *(ValueError, OverflowError, RecursionError),
)
# An ordinary archive has 2 KiB of headers per file.
_MAX_HEADER_BYTES = 1 << 20
_READ_BYTES = 1 << 16
_GZIP = b"\x1f\x8b"
# The bytes may be the first number, or so many times those of the archive up to
# the last one. Weights hardly compress; zeros do by a factor of 1,000.
_MAX_FILES = 1000
_FREE_BYTES, _MAX_RATIO, _MAX_BYTES = 1 << 28, 20, 1 << 34


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
    inside = files.list_dir(folder)
    only = os.path.join(folder, inside[0]) if len(inside) == 1 else ""
    try:
      yield only if files.is_dir(only) else folder
    except (ValueError, OSError) as error:
      # The temporary folder would not help the user.
      error.args = tuple(
        arg.replace(folder, path) if isinstance(arg, str) else arg
        for arg in error.args
      )
      if isinstance(error, OSError) and isinstance(error.filename, str):
        error.filename = error.filename.replace(folder, path)
      raise


def _extract(packed: IO[bytes], folder: str, max_bytes: int) -> None:
  """Unpacks a tar archive, compressed with gzip or not at all.

  Raises:
    One of `_ERRORS`: the archive is damaged, or it is beyond a limit.
  """
  is_gzip = packed.read(len(_GZIP)) == _GZIP
  packed.seek(0)
  reader = _BoundedReader(gzip.open(packed) if is_gzip else packed)
  count = total = 0
  archive: Any  # Its attribute `members` is not in mypy's description.
  with tarfile.open(fileobj=reader, mode="r:") as archive:
    while member := archive.next():
      archive.members.clear()  # tarfile would keep all headers.
      count += 1
      total += member.size
      if member.size < 0 or total > max_bytes or count > _MAX_FILES:
        raise tarfile.TarError(
          f"it has more than {max_bytes:,} bytes or {_MAX_FILES:,} files"
        )
      name = repr(member.name)[:80]
      if not (member.isreg() or member.isdir()) or member.issparse():
        raise tarfile.TarError(f"{name} is neither a file nor a folder")
      reader.left = member.size
      try:
        inside = tarfile.data_filter(member, folder).name
        target = os.path.join(folder, inside)
        files.make_folder(target if member.isdir() else os.path.dirname(target))
        if member.isreg():
          with open(target, "xb") as file:
            shutil.copyfileobj(archive.extractfile(member), file)
      except tarfile.FilterError as error:
        raise tarfile.TarError(f"{name} is outside of its folder") from error
      except (FileExistsError, NotADirectoryError) as error:
        raise tarfile.TarError(f"{name} is in it twice") from error
      reader.left = _MAX_HEADER_BYTES
    # The checksum follows the padding.
    reader.left = max_bytes
    while reader.read(_READ_BYTES):
      pass
