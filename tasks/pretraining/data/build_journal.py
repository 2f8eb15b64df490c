"""What a build has finished, kept on disk so that it can go on after a kill.

The journal is one small JSON file in the folder of the unfinished build. It
begins with a fingerprint of everything that shapes the records; only a build
with the same fingerprint may go on. It is replaced as a whole, so that a kill
finds either the old or the new one, and names only what had reached its files
before. A build that resumes verifies those files by the sizes and checksums in
the journal, and the journal by its own checksum. What does not match is made
again, with one line on stderr.
"""

from __future__ import annotations

import json
import os
import sys
import time
import zlib
from typing import Any, Mapping, Optional, Sequence

import numpy as np

from official_albert import files

JOURNAL_FILE = "progress.json"
# Goes up when the files of an unfinished build, the pieces that work is cut
# into or the records of the same settings change: such builds cannot go on.
_FORMAT = 3
# What is lost by a kill, at most, against what writing it down costs.
_INTERVAL_SECONDS = 5.0


def fingerprint(
  settings: Mapping[str, Any], paths: Sequence[str], tokenizer_sha256: str
) -> dict[str, Any]:
  """What has to be the same for a build to go on, as JSON keeps it.

  Files are told by size and time of change: reading a corpus twice to tell it
  by its content would cost more than most restarts save.

  Args:
    settings: by name, all that shape the records.
    paths: of the input files, in order.
    tokenizer_sha256: of the tokenizer.

  Raises:
    OSError: an input file can't be looked at.
  """
  value = {
    "format": _FORMAT,
    # Its generators may give other numbers in another release.
    "numpy": np.__version__,
    "tokenizer": tokenizer_sha256,
    "input_files": [[path, *_size_and_time(path)] for path in paths],
    **settings,
  }
  return json.loads(json.dumps(value))


def report_damage(what: str) -> None:
  """Tells the user that part of an unfinished build is made again."""
  print(
    f"{what} is damaged or incomplete: it is made again.",
    file=sys.stderr,
    flush=True,
  )


def _size_and_time(path: str) -> tuple[int, int]:
  if "://" in path:
    import tensorflow as tf  # Here, because the workers need none.

    found = tf.io.gfile.stat(path)
    return int(found.length), int(found.mtime_nsec)
  found = os.stat(path)
  return found.st_size, found.st_mtime_ns


class Journal:
  """Named entries, each of which is a JSON value.

  Attributes:
    folder: where the unfinished build is.
    fingerprint: of that build; None if there is none that can go on.
  """

  def __init__(self, folder: str):
    """Reads what is there; a file that is missing or damaged counts as none."""
    self.folder = folder
    self.fingerprint: Optional[dict[str, Any]] = None
    self._entries: dict[str, Any] = {}
    self._path = os.path.join(folder, JOURNAL_FILE)
    self._last_write = time.monotonic()
    try:
      with open(self._path, encoding="utf-8") as file:
        value = json.load(file)
      found, entries = dict(value["fingerprint"]), dict(value["entries"])
      # Another format has no checksum, or another one. It never resumes.
      is_ours = found.get("format") == _FORMAT
      if not is_ours or value["checksum"] == _checksum(found, entries):
        self.fingerprint, self._entries = found, entries
    except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError):
      pass

  @property
  def holds_work(self) -> bool:
    """Whether anything has been finished."""
    return bool(self._entries)

  def differences(self, wanted: Mapping[str, Any]) -> list[str]:
    """The settings that are others than those of the fingerprint `wanted`."""
    found = self.fingerprint or {}
    names = {**found, **wanted}
    return [name for name in names if found.get(name) != wanted.get(name)]

  def start(self, wanted: Mapping[str, Any]) -> None:
    """Forgets all entries: a new build begins."""
    self.fingerprint, self._entries = dict(wanted), {}
    self._write()

  def get(self, name: str) -> Any:
    """The entry, or None."""
    return self._entries.get(name)

  def put(self, name: str, value: Any) -> None:
    """Writes an entry down; None removes it."""
    self._entries[name] = value
    if value is None:
      del self._entries[name]
    self._write()

  def is_due(self) -> bool:
    """Whether the last write is long enough ago for a passing state."""
    return time.monotonic() - self._last_write >= _INTERVAL_SECONDS

  def _write(self) -> None:
    value = {
      "fingerprint": self.fingerprint,
      "entries": self._entries,
      "checksum": _checksum(self.fingerprint, self._entries),
    }
    files.write_text(self._path, json.dumps(value))
    self._last_write = time.monotonic()


def _checksum(
  fingerprint: Mapping[str, Any], entries: Mapping[str, Any]
) -> int:
  return zlib.crc32(json.dumps([fingerprint, entries], sort_keys=True).encode())
