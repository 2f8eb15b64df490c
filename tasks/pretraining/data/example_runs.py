"""Puts more records than fit into memory in the order of their random keys.

A run is a file of some examples, sorted by key. A shard holds the records of
all runs whose keys are in its range, so its content depends neither on the
number of runs nor on who made them. As keys are random, this is an exact global
shuffle.

A run stores the highest key first. Shards are written from the lowest key on,
so the records of finished shards are cut off at the end of each run.
"""

from __future__ import annotations

import json
import os
import struct
from typing import Any, Iterator, NamedTuple, Sequence

import numpy as np

from official_albert import files

KEY_BITS = 63  # Keys are non-negative int64.
# A reader gets this many bytes from all runs at once. Smaller parts of each run
# would make reading slow; larger runs would need more memory in the workers.
_READ_BYTES = 1 << 26
_PART_BYTES = 1 << 18
# The lowest and the highest target size of a run.
LIMITS = [1 << 22, 1 << 27]
# The number of records, and the size of the JSON text after these numbers.
_HEAD = struct.Struct("<qq")


def run_bytes(total_bytes: int) -> int:
  """Returns the target size of a run."""
  balanced = int((total_bytes * _PART_BYTES) ** 0.5)
  return min(max(balanced, LIMITS[0]), LIMITS[1])


def shard_of(keys: np.ndarray, num_shards: int) -> np.ndarray:
  """Returns the shard of each key, <int64>[N]."""
  starts = [first_key(shard, num_shards) for shard in range(1, num_shards)]
  return np.searchsorted(np.array(starts, np.int64), keys, "right")


def first_key(shard: int, num_shards: int) -> int:
  """Returns the lowest key of a shard, or 2^63 for the one after the last."""
  return -(-(shard << KEY_BITS) // num_shards)


def write_run(
  path: str, keys: np.ndarray, records: Sequence[bytes], note: Any
) -> None:
  """Writes records with keys <int64>[N], and a JSON value, atomically."""
  order = np.argsort(~keys, kind="stable")
  text = json.dumps(note).encode()
  text += b" " * (-len(text) % 8)
  sizes = np.fromiter((len(records[i]) for i in order), np.int64, len(order))
  with files.replacing(path) as temporary, open(temporary, "wb") as file:
    file.write(_HEAD.pack(len(order), len(text)) + text)
    file.write((~keys[order]).tobytes() + np.cumsum(sizes).tobytes())
    file.writelines(records[i] for i in order)


class Run(NamedTuple):
  """A run that was written by `write_run`.

  Attributes:
    note: the JSON value.
    ranks: <int64>[N], the inverted keys, ascending.
    ends: <int64>[N], where the records end after `start`, in bytes.
    start: where the first record begins in the file.
  """

  path: str
  note: Any
  ranks: np.ndarray
  ends: np.ndarray
  start: int

  @classmethod
  def open(cls, path: str) -> Run:
    with open(path, "rb") as file:
      count, size = _HEAD.unpack(file.read(_HEAD.size))
      note = json.loads(file.read(size))
      start = file.tell()
    if not count:
      nothing = np.zeros(0, np.int64)
      return cls(path, note, nothing, nothing, start)
    shape = (2, count)
    index = np.memmap(path, np.int64, mode="r", offset=start, shape=shape)
    ranks, ends = np.asarray(index)
    return cls(path, note, ranks, ends, start + index.nbytes)

  def places(self, first: int, end: int) -> tuple[int, int]:
    """Returns the first record of a range of keys, and the one after it."""
    low, high = np.searchsorted(self.ranks, [-end, -first])
    return int(low), int(high)

  def offset(self, place: int) -> int:
    """Returns where a record begins after `start`, in bytes."""
    return int(self.ends[place - 1]) if place else 0

  def read(self, first: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yields the keys of a range and their records.

    Raises:
      OSError: the file is damaged.
    """
    low, high = self.places(first, end)
    edges = [self.offset(low), *self.ends[low:high].tolist()]
    with open(self.path, "rb") as file:
      file.seek(self.start + edges[0])
      data = memoryview(file.read(edges[-1] - edges[0]))
    if len(data) < edges[-1] - edges[0]:
      raise OSError(
        f"{self.path} is damaged: remove its folder to start the build over."
      )
    keys = (~self.ranks[low:high]).tolist()
    for key, a, b in zip(keys, edges, edges[1:]):
      yield key, bytes(data[a - edges[0] : b - edges[0]])

  def discard(self, first: int) -> None:
    """Cuts off all records with keys below `first`."""
    size = self.start + self.offset(self.places(first, 1 << KEY_BITS)[1])
    if size < os.path.getsize(self.path):
      os.truncate(self.path, size)


def read_sorted(runs: Sequence[Run], first: int, end: int) -> Iterator[bytes]:
  """Yields the records of runs in a range of keys, by key and content."""
  size = 0
  for run in runs:
    low, high = run.places(first, end)
    size += run.offset(high) - run.offset(low)
  parts = max(1, -(-size // _READ_BYTES))
  edges = [first + (end - first) * i // parts for i in range(parts + 1)]
  for low, high in zip(edges, edges[1:]):
    for _, record in sorted(x for run in runs for x in run.read(low, high)):
      yield record
