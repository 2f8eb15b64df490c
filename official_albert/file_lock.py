"""One process at a time: a lock that goes with the process that holds it."""

from __future__ import annotations

import fcntl
from typing import BinaryIO


def hold(path: str, refusal: str) -> BinaryIO:
  """Takes the lock of a file, which is made if need be.

  Args:
    path: in a folder that is there.
    refusal: what to say where another process has it.

  Returns:
    What holds it until it is closed, or until the process and those that it
    was passed on to are gone. Some network file systems have no locks; there
    it holds nothing.

  Raises:
    OSError: `refusal`; or the file cannot be made.
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
