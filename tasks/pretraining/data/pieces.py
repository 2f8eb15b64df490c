"""Files of an unfinished build that are complete and intact, or made again.

A build consists of pieces: chunks of tokens, runs of examples, shards. Each
piece is a file that appears under its name when it is complete. Beside it lies
`NAME.json`, its note: what the build needs to know about the piece, and a
checksum. A build that was killed calls `find_piece` for each piece and makes
only those that are missing or damaged.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Optional

import google_crc32c

from official_albert import files

_READ_BYTES = 1 << 20


def write_note(path: str, value: dict[str, Any]) -> None:
  """Writes `path`.json with a JSON object and a checksum of it.

  Raises:
    OSError: the file cannot be written.
  """
  content = {"name": os.path.basename(path), "value": value}
  checksum = _checksum_of(content)
  files.write_text(f"{path}.json", json.dumps({**content, "crc32c": checksum}))


def read_note(path: str) -> Optional[dict[str, Any]]:
  """Returns the object in `path`.json; None if it is missing or damaged."""
  try:
    with open(f"{path}.json", encoding="utf-8") as file:
      content = json.load(file)
    checksum = content.pop("crc32c")
    name = content["name"]
    if checksum == _checksum_of(content) and name == os.path.basename(path):
      return content["value"]
    return None
  except (
    AttributeError,
    FileNotFoundError,
    KeyError,
    RecursionError,
    TypeError,
    ValueError,
  ):
    return None


def finish_piece(
  path: str, value: dict[str, Any], num_bytes: Optional[int] = None
) -> None:
  """Writes the note of a piece, which makes it count as finished.

  Args:
    path: the complete file.
    value: the JSON object to remember.
    num_bytes: bytes at the start of the file that must not change; default:
      the whole file.
  """
  write_note(path, {"value": value, "file": _describe(path, num_bytes)})


def find_piece(path: str, moved_to: str = "") -> Optional[dict[str, Any]]:
  """Returns the value of a finished piece whose file is as its note says.

  Reports a damaged piece on stderr.

  Args:
    path: the piece's file. Its note lies beside it.
    moved_to: another folder in which the file may be.

  Returns:
    The object that was given to `finish_piece`; None if the piece has to be
    made.
  """
  note = read_note(path)
  if note is not None:
    moved = os.path.join(moved_to, os.path.basename(path))
    location = path if os.path.exists(path) else moved
    described = note["file"]
    num_bytes = None if described["is_whole"] else described["bytes"]
    if os.path.isfile(location) and described == _describe(location, num_bytes):
      return note["value"]
  if os.path.exists(f"{path}.json"):
    report_damage(path)
  return None


def report_damage(path: str) -> None:
  """Tells the user that part of an unfinished build is made again."""
  print(
    f"{path} is damaged or incomplete: it is made again.",
    file=sys.stderr,
    flush=True,
  )


def _describe(path: str, num_bytes: Optional[int]) -> dict[str, Any]:
  """Returns the size and the CRC-32C of a file or of its first bytes."""
  left = os.path.getsize(path) if num_bytes is None else num_bytes
  description = {"is_whole": num_bytes is None, "bytes": left}
  checksum = google_crc32c.Checksum()
  with open(path, "rb") as file:
    while left and (data := file.read(min(left, _READ_BYTES))):
      checksum.update(data)
      left -= len(data)
  return {**description, "crc32c": checksum.hexdigest().decode()}


def _checksum_of(content: dict[str, Any]) -> int:
  return google_crc32c.value(json.dumps(content, sort_keys=True).encode())
