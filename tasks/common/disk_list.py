"""A list of many values that are stored in a temporary file."""

from __future__ import annotations

import array
import json
import tempfile
from collections.abc import Iterable, Sequence
from typing import Any

_MEMORY_BYTES = 1 << 26  # More is written to the disk.


class DiskList(Sequence):
  """Values, of which up to 64 MiB are in memory, and more on the disk.

  Each also takes eight bytes of memory. The file has no name and goes with the
  list; the environment's TMPDIR says where it is. Subclasses for other values
  than bytes have `encode` and `decode`.
  """

  def __init__(self, values: Iterable[Any] = ()):
    self._file = tempfile.SpooledTemporaryFile(_MEMORY_BYTES)
    self._starts = array.array("Q", [0])
    self.extend(values)

  def encode(self, value: Any) -> bytes:
    return value

  def decode(self, content: bytes) -> Any:
    return content

  def extend(self, values: Iterable[Any]) -> None:
    """Adds values at the end."""
    for value in values:
      content = self.encode(value)
      # The values may be read in between.
      self._file.seek(self._starts[-1])
      self._file.write(content)
      self._starts.append(self._starts[-1] + len(content))

  def append(self, value: Any) -> None:
    """Adds a value at the end."""
    self.extend([value])

  def __len__(self) -> int:
    return len(self._starts) - 1

  def __getitem__(self, index: Any) -> Any:
    if not 0 <= index < len(self):  # Ends an iteration.
      raise IndexError(f"there is no value {index} of {len(self)}")
    start, end = self._starts[index : index + 2]
    self._file.seek(start)
    return self.decode(self._file.read(end - start))


class ExampleList(DiskList):
  """Examples of one dataclass, whose fields are JSON values, or tuples."""

  def encode(self, value: Any) -> bytes:
    self._kind = type(value)
    return json.dumps([*vars(value).values()]).encode()

  def decode(self, content: bytes) -> Any:
    values = json.loads(content)
    return self._kind(*(tuple(x) if isinstance(x, list) else x for x in values))
