"""Where programs write: said before the work if it cannot be written there."""

from __future__ import annotations

import errno
import os


def check_folder(path: str) -> None:
  """Refuses a folder that cannot be made since a file is in its place.

  Args:
    path: there or not; of addresses such as gs://bucket/x nothing is known.

  Raises:
    NotADirectoryError: it is a file, or one of the folders above it is.
  """
  above = path
  while "://" not in path and above:
    if os.path.exists(above):
      if os.path.isdir(above):
        return
      below = "" if above == path else f", and so {path} cannot be made"
      raise NotADirectoryError(f"{above} is a file{below}: name a folder.")
    above = os.path.dirname(above)


def make_folder(path: str) -> None:
  """Makes a folder, and those above it, unless it is there.

  Raises:
    OSError: a file is in its place, or it cannot be written.
  """
  check_folder(path)
  os.makedirs(path, exist_ok=True)


def check_file(path: str) -> None:
  """Refuses a file that cannot be written where it is to be.

  Raises:
    IsADirectoryError: it is a folder.
    FileNotFoundError: there is no folder for it.
    NotADirectoryError: its folder is a file.
    PermissionError: its folder is read-only.
  """
  if "://" in path:
    return
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
