"""Paths that a program cannot use: refused before any work."""

from __future__ import annotations

import errno
import os
import re

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def check_local(path: str) -> None:
  """Refuses addresses such as gs://bucket/x, also in a list of paths.

  For code that opens files with Python's own functions, which take such an
  address for a folder named `gs:`.

  Raises:
    ValueError: the path has a scheme.
  """
  found = _SCHEME.search(path)
  if found:
    raise ValueError(
      f"{path!r} is not a local path, and {found[0]} addresses are not "
      "supported here: copy the files, or mount the bucket."
    )


def check_folder(path: str) -> None:
  """Refuses a folder that cannot be made since a file is in its place.

  Args:
    path: there or not.

  Raises:
    ValueError: it is a remote address.
    NotADirectoryError: it is a file, or one of the folders above it is.
  """
  check_local(path)
  above = path
  while above:
    if os.path.exists(above):
      if os.path.isdir(above):
        return
      below = "" if above == path else f", and so {path} cannot be made"
      raise NotADirectoryError(f"{above} is a file{below}: name a folder.")
    above = os.path.dirname(above)


def make_folder(path: str) -> None:
  """Makes a folder, and those above it, unless it is there.

  Raises:
    ValueError: it is a remote address.
    OSError: a file is in its place, or it cannot be written.
  """
  check_folder(path)
  os.makedirs(path, exist_ok=True)


def check_file(path: str) -> None:
  """Refuses a file that cannot be written where it is to be.

  Raises:
    ValueError: it is a remote address.
    IsADirectoryError: it is a folder.
    FileNotFoundError: there is no folder for it.
    NotADirectoryError: its folder is a file.
    PermissionError: its folder is read-only.
  """
  check_local(path)
  folder = os.path.dirname(path) or "."
  if os.path.isdir(path):
    raise IsADirectoryError(f"{path} is a folder: name a file.")
  check_folder(folder)
  if not os.path.isdir(folder):
    raise FileNotFoundError(
      f"{path} cannot be written, as there is no folder {folder}: make it, or "
      "name another file."
    )
  if not os.access(folder, os.W_OK):
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)
