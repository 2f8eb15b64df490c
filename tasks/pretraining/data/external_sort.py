"""Sorts more records than fit into memory by their keys.

With random keys, this is an exact global shuffle. Records are written in runs:
files that are sorted by key and divided into buckets of equal key ranges.
Reading a bucket from all runs and sorting it gives a part of the order. The
order depends neither on the number of buckets nor on the writers of the runs.

A run stores the last bucket first. So the first buckets, which are read first,
can be truncated when they are no longer needed. `RUN.table` beside it has a row
for each bucket.
"""

from __future__ import annotations

import os
from typing import Iterator, Optional, Sequence

import google_crc32c
import numpy as np

from official_albert import files

KEY_BITS = 63  # Keys are non-negative int64.
# A bucket is read from all runs at once. Smaller parts of a bucket in each run
# would make reading slow; larger buckets and runs would need more memory in the
# workers.
_PART_BYTES = 1 << 18
_MIN_BUCKET_BYTES, _MAX_BUCKET_BYTES = 1 << 22, 1 << 27
# Columns of the table.
_OFFSET, _SIZE, _RECORDS, _CHECKSUM = range(4)


def plan(total_bytes: int, min_buckets: int = 1) -> tuple[int, int]:
  """Returns the target size of a run in bytes, and the number of buckets.

  The number of buckets is a power of two. It should be at least the number of
  readers, because a reader that starts within a bucket reads all of it.
  """
  balanced = int((total_bytes * _PART_BYTES) ** 0.5)
  size = min(max(balanced, _MIN_BUCKET_BYTES), _MAX_BUCKET_BYTES)
  return size, power_of_two(max(-(-total_bytes // size), min_buckets))


def power_of_two(least: int) -> int:
  """Returns the smallest power of two that is at least max(`least`, 1)."""
  return 1 << (least - 1).bit_length()


def bucket_of(keys: np.ndarray, num_buckets: int) -> np.ndarray:
  """Returns the bucket of each key, <int64>[N]: its leading bits."""
  return keys >> (KEY_BITS - (num_buckets.bit_length() - 1))


def table_path(run_path: str) -> str:
  """Returns the path of a run's table."""
  return f"{run_path}.table"


def write_run(
  path: str, keys: np.ndarray, records: Sequence[bytes], num_buckets: int
) -> None:
  """Writes records to a new run file, and then its table.

  Keys are <int64>[N], from 0 to 2^63 - 1; records with equal keys keep their
  order. All runs of a sort have the same number of buckets, a power of two.
  """
  order = np.argsort(keys, kind="stable")
  edges = np.searchsorted(
    bucket_of(keys[order], num_buckets), np.arange(num_buckets + 1)
  )
  table = np.zeros((num_buckets, 4), np.int64)
  with files.replacing(path) as temporary, open(temporary, "wb") as file:
    for bucket in reversed(range(num_buckets)):
      rows = order[edges[bucket] : edges[bucket + 1]]
      parts = [records[row] for row in rows]
      sizes = np.fromiter(map(len, parts), np.int64, len(parts))
      part = b"".join([keys[rows].tobytes(), sizes.tobytes(), *parts])
      checksum = google_crc32c.value(part)
      table[bucket] = file.tell(), len(part), len(rows), checksum
      file.write(part)
  files.write_bytes(table_path(path), table.tobytes())


def count_records(path: str) -> np.ndarray:
  """Returns the records of each bucket of a run, <int64>[num_buckets]."""
  return _read_table(path)[:, _RECORDS]


def is_intact(path: str) -> bool:
  """Returns whether all buckets are intact that were not discarded."""
  if not files.exists(path):
    return False
  size = os.path.getsize(path)
  return all(
    _read_part(path, row) is not None
    for row in _read_table(path)
    if row[_OFFSET] < size
  )


def holds(path: str, bucket: int) -> bool:
  """Returns whether the buckets of a run from `bucket` on are in its file."""
  return os.path.getsize(path) >= _size_from(path, bucket)


def discard(path: str, end: int) -> None:
  """Removes the buckets before bucket `end` from a run."""
  size = _size_from(path, end)
  if size < os.path.getsize(path):
    os.truncate(path, size)


def read_sorted(
  paths: Sequence[str], first_bucket: int, num_buckets: int
) -> Iterator[bytes]:
  """Yields all records from a bucket on, ordered by key.

  Equal keys come in the order of the runs. A damaged run is an OSError.
  """
  for bucket in range(first_bucket, num_buckets):
    keys, records = [np.zeros(0, np.int64)], []
    for path in paths:
      row = _read_table(path, bucket, 1)[0]
      part = _read_part(path, row)
      if part is None:
        raise OSError(f"{path} is damaged: run the same command again.")
      width = 8 * int(row[_RECORDS])
      keys.append(np.frombuffer(part[:width], np.int64))
      sizes = np.frombuffer(part[width : 2 * width], np.int64)
      ends = (2 * width + np.cumsum(sizes)).tolist()
      records += [part[a:b] for a, b in zip([2 * width, *ends], ends)]
    for place in np.argsort(np.concatenate(keys), kind="stable").tolist():
      yield records[place]


def _read_part(path: str, row: np.ndarray) -> Optional[bytes]:
  """Reads a bucket given its row of the table; None if it is damaged."""
  with open(path, "rb") as file:
    file.seek(row[_OFFSET])
    part = file.read(row[_SIZE])
  return part if google_crc32c.value(part) == row[_CHECKSUM] else None


def _size_from(path: str, bucket: int) -> int:
  """Returns the size of the buckets from `bucket` on, which come first."""
  return int(_read_table(path, bucket, 1)[:, [_OFFSET, _SIZE]].sum())


def _read_table(path: str, first: int = 0, count: int = -1) -> np.ndarray:
  """Reads rows of a run's table, <int64>[count, 4]; -1 reads all others."""
  rows = np.dtype((np.int64, 4))
  return np.fromfile(table_path(path), rows, count, offset=32 * first)
