"""Keeps notices of native libraries off the terminal, unless something fails.

XLA and the TFLite converter write to file descriptor 2 through loggers that no
setting of TensorFlow's reaches.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from typing import Iterator


@contextlib.contextmanager
def hold_stderr() -> Iterator[None]:
  """Holds back what this process writes to stderr inside of the context.

  It is discarded at the end, or written after all if the context is left by an
  exception. An abort of the process loses it.
  """
  sys.stderr.flush()
  stderr = os.dup(2)
  with tempfile.TemporaryFile() as held:
    os.dup2(held.fileno(), 2)
    try:
      yield
    except BaseException:
      held.seek(0)
      os.write(stderr, held.read())
      raise
    finally:
      os.dup2(stderr, 2)
      os.close(stderr)
