"""Writes files and folders atomically.

Every module writes through `replacing`, `write_text`, `write_json`,
`write_bytes` or `new_folder`. They write under a temporary name in the same
folder and rename at the end, so readers never find a half-written file, even
if the program is killed.

This module needs only the standard library, because data workers and programs
in other environments import it too.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import tempfile
from typing import Any, BinaryIO, Iterator

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


@contextlib.contextmanager
def replacing(path: str) -> Iterator[str]:
  """Yields a temporary path and renames it to `path` at the end.

      with files.replacing("loss.png") as temporary:
        figure.savefig(temporary, format="png")

  If the body raises, the temporary file is removed and `path` stays as it was.
  """
  temporary = f"{path}.{os.getpid()}.tmp"
  try:
    yield temporary
    os.replace(temporary, path)
  finally:
    with contextlib.suppress(FileNotFoundError):
      os.remove(temporary)


def write_bytes(path: str, content: bytes) -> None:
  """Replaces the content of a file."""
  with replacing(path) as temporary, open(temporary, "wb") as file:
    file.write(content)


def write_text(path: str, text: str) -> None:
  r"""Replaces the content of a file by UTF-8 text; "\n" ends a line."""
  write_bytes(path, text.encode("utf-8"))


def write_json(path: str, value: Any, **options: Any) -> None:
  """Replaces the content of a file by JSON, by default with indent 1."""
  write_text(path, json.dumps(value, **{"indent": 1, **options}) + "\n")


@contextlib.contextmanager
def new_folder(path: str) -> Iterator[str]:
  """Yields a temporary folder and renames it to `path` at the end.

  Missing parents are created. If the body raises, the temporary folder and the
  created parents are removed.

  Raises:
    FileExistsError: `path` is a file or a folder that is not empty.
  """
  check_new_folder(path)
  parent = os.path.dirname(os.path.abspath(path))
  created = []
  while not os.path.exists(parent):
    created.append(parent)
    parent = os.path.dirname(parent)
  try:
    parent = created[0] if created else parent
    os.makedirs(parent, exist_ok=True)
    temporary = tempfile.mkdtemp(prefix=".new-", dir=parent)
    try:
      yield temporary
      os.chmod(temporary, 0o755)
      os.replace(temporary, path)
    finally:
      shutil.rmtree(temporary, ignore_errors=True)
  except BaseException:
    for folder in created:
      with contextlib.suppress(OSError):  # Something else may be in it by now.
        os.rmdir(folder)
    raise


def sha256(path: str) -> str:
  """Returns the SHA-256 of a file's content in hexadecimal."""
  digest = hashlib.sha256()
  with open(path, "rb") as file:
    for block in iter(lambda: file.read(1 << 20), b""):
      digest.update(block)
  return digest.hexdigest()


def lock(path: str, refusal: str) -> BinaryIO:
  """Locks a file against other processes.

  Args:
    path: the lock file, which is created if necessary.
    refusal: the error message if another process holds the lock.

  Returns:
    An open file. The lock is held until the file is closed, or until this
    process and all that inherited the file have ended. Network file systems
    without locks are not locked.

  Raises:
    OSError: with `refusal`.
  """
  file = open(path, "ab")
  try:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except BlockingIOError as error:
    file.close()
    raise OSError(refusal) from error
  except OSError:
    pass
  return file


def check_local(path: str) -> None:
  """Raises ValueError for a remote address, also within a list of paths.

  Python's file functions would take gs://bucket/x for a local folder `gs:`.
  """
  found = _SCHEME.search(path)
  if found:
    raise ValueError(
      f"{path!r} is not a local path, and {found[0]} addresses are not "
      "supported here: copy the files, or mount the bucket."
    )


def check_folder(path: str) -> None:
  """Refuses a path at which no folder can be created.

  Raises:
    ValueError: it is a remote address.
    NotADirectoryError: it or one of its parents is a file.
  """
  check_local(path)
  above = path
  while above and not os.path.exists(above):
    above = os.path.dirname(above)
  if above and not os.path.isdir(above):
    below = "" if above == path else f", and so {path} cannot be made"
    raise NotADirectoryError(f"{above} is a file{below}: name a folder.")


def make_folder(path: str) -> None:
  """Creates a folder and its parents; refuses what `check_folder` refuses."""
  check_folder(path)
  os.makedirs(path, exist_ok=True)


def check_new_folder(path: str, name: str = "The folder") -> None:
  """Refuses a path at which `new_folder` cannot put a folder.

  Args:
    path: the folder.
    name: the name of the path in messages, such as "--output_dir".

  Raises:
    FileExistsError: `path` is a file or a folder that is not empty.
    ValueError, NotADirectoryError: see `check_folder`.
  """
  if os.path.isfile(path) or (os.path.isdir(path) and os.listdir(path)):
    raise FileExistsError(
      f"{name} {path} exists and is not empty: choose a new folder."
    )
  check_folder(path)


def check_file(path: str) -> None:
  """Refuses a path at which no file can be written.

  Raises:
    OSError: it is a folder, or its parent does not exist or is read-only.
    ValueError: it is a remote address.
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
