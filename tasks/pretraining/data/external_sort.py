"""Puts more records than fit into memory into the order of their keys.

With random keys this is an exact global shuffle. Records are written in runs,
files that are sorted by key and cut into buckets of equal key ranges. Reading
a bucket from all runs and sorting it gives a part of the order. The order
depends neither on the number of buckets nor on who wrote the runs.

A run file holds a table with a row for each bucket, then the buckets from the
last to the first. So the first buckets, which are read first, can be cut off
when they are no longer needed.
"""

from __future__ import annotations

import os
from typing import Iterator, NamedTuple, Sequence

import google_crc32c
import numpy as np

from official_albert import files

KEY_BITS = 63  # Keys are non-negative int64.
# A bucket of every run is read at once. With smaller parts of a bucket in each
# run, reading them would be slow; with larger buckets and runs, the memory of
# the workers would be large.
_PART_BYTES = 1 << 18
_MIN_BUCKET_BYTES, _MAX_BUCKET_BYTES = 1 << 22, 1 << 27
# Columns of the table.
_OFFSET, _SIZE, _RECORDS, _CHECKSUM = range(4)
_ROW_BYTES = 4 * 8


class Plan(NamedTuple):
  """The size of the parts of a sort.

  Attributes:
    run_bytes: records that a run should have, in bytes.
    num_buckets: a power of two.
  """

  run_bytes: int
  num_buckets: int


def plan(total_bytes: int, min_buckets: int = 1) -> Plan:
  """Chooses the sizes for a sort of about `total_bytes`.

  Args:
    total_bytes: of all records.
    min_buckets: the least number of buckets. A reader that starts within a
      bucket reads it from its start, so one for each reader is good.
  """
  balanced = int((total_bytes * _PART_BYTES) ** 0.5)
  size = min(max(balanced, _MIN_BUCKET_BYTES), _MAX_BUCKET_BYTES)
  wanted = max(-(-total_bytes // size), min_buckets)
  return Plan(size, 1 << (wanted - 1).bit_length())


class Records(NamedTuple):
  """N records in three byte strings, for files and other processes.

  Attributes:
    keys: <int64>[N].
    sizes: <int64>[N], bytes of each record.
    data: the records, one after the other.
  """

  keys: bytes
  sizes: bytes
  data: bytes

  @classmethod
  def pack(cls, keys: np.ndarray, records: Sequence[bytes]) -> Records:
    """Packs records and their keys <int64>[N]."""
    sizes = np.fromiter(map(len, records), np.int64, len(records))
    return cls(keys.tobytes(), sizes.tobytes(), b"".join(records))

  def unpack(self) -> tuple[np.ndarray, list[bytes]]:
    """Returns the keys <int64>[N] and the records."""
    ends = np.cumsum(np.frombuffer(self.sizes, np.int64)).tolist()
    records = [self.data[a:b] for a, b in zip([0, *ends], ends)]
    return np.frombuffer(self.keys, np.int64), records


def bucket_of(keys: np.ndarray, num_buckets: int) -> np.ndarray:
  """Returns the bucket of each key, <int64>[N]: its leading bits."""
  return keys >> (KEY_BITS - (num_buckets.bit_length() - 1))


def table_bytes(num_buckets: int) -> int:
  """Returns the size of a run's table, which `discard` never changes."""
  return num_buckets * _ROW_BYTES


def write_run(
  path: str, keys: np.ndarray, records: Sequence[bytes], num_buckets: int
) -> None:
  """Writes records to a new run file.

  Args:
    path: the file. It appears when it is complete.
    keys: <int64>[N], from 0 to 2^63 - 1.
    records: N of them. Equal keys keep their order.
    num_buckets: a power of two, the same for all runs of a sort.

  Raises:
    OSError: the file cannot be written.
  """
  order = np.argsort(keys, kind="stable")
  edges = np.searchsorted(
    bucket_of(keys[order], num_buckets), np.arange(num_buckets + 1)
  )
  table = np.zeros((num_buckets, 4), np.int64)
  with files.replacing(path) as temporary, open(temporary, "wb") as file:
    file.write(table)
    for bucket in reversed(range(num_buckets)):
      rows = order[edges[bucket] : edges[bucket + 1]]
      part = b"".join(Records.pack(keys[rows], [records[i] for i in rows]))
      table[bucket] = (
        file.tell(),
        len(part),
        len(rows),
        google_crc32c.value(part),
      )
      file.write(part)
    file.seek(0)
    file.write(table)


def count_records(path: str, num_buckets: int) -> np.ndarray:
  """Returns the records of each bucket of a run, <int64>[num_buckets]."""
  return _table(path, 0, num_buckets)[:, _RECORDS]


def first_intact_bucket(path: str, num_buckets: int) -> tuple[int, bool]:
  """Reads a run and compares its buckets with their checksums.

  Returns:
    The lowest bucket from which on all are intact, and whether the others have
    been cut off rather than damaged.
  """
  table = _table(path, 0, num_buckets)
  with open(path, "rb") as file:
    for bucket in reversed(range(num_buckets)):
      offset, size, _, checksum = table[bucket].tolist()
      file.seek(offset)
      part = file.read(size)
      if len(part) < size or google_crc32c.value(part) != checksum:
        return bucket + 1, len(part) < size
  return 0, True


def discard(path: str, end: int, num_buckets: int) -> None:
  """Cuts the buckets before bucket `end` off a run."""
  size = table_bytes(num_buckets)
  if end < num_buckets:
    offset, part_size, _, _ = _table(path, end, 1)[0].tolist()
    size = offset + part_size
  if size < os.path.getsize(path):
    os.truncate(path, size)


def read_sorted(
  paths: Sequence[str], first_bucket: int, num_buckets: int
) -> Iterator[bytes]:
  """Yields all records from a bucket on, ordered by key.

  Equal keys come in the order of the runs.

  Args:
    paths: all runs of the sort.
    first_bucket: the bucket to start with.
    num_buckets: of the sort.

  Raises:
    OSError: a run is not what was written.
  """
  for bucket in range(first_bucket, num_buckets):
    keys, records = [np.zeros(0, np.int64)], []
    for path in paths:
      row = _table(path, bucket, 1)[0].tolist()
      if row[_RECORDS]:
        part_keys, part = _read_part(path, row).unpack()
        keys.append(part_keys)
        records += part
    for place in np.argsort(np.concatenate(keys), kind="stable").tolist():
      yield records[place]


def _read_part(path: str, row: Sequence[int]) -> Records:
  """Reads a bucket of a run, given its row of the table."""
  with open(path, "rb") as file:
    file.seek(row[_OFFSET])
    part = file.read(row[_SIZE])
  if google_crc32c.value(part) != row[_CHECKSUM]:
    raise OSError(f"{path} is damaged: run the same command again.")
  width = 8 * row[_RECORDS]
  return Records(part[:width], part[width : 2 * width], part[2 * width :])


def _table(path: str, first: int, count: int) -> np.ndarray:
  """Reads rows of a run's table, <int64>[count, 4]."""
  table = np.fromfile(path, np.int64, 4 * count, offset=first * _ROW_BYTES)
  return table.reshape(count, 4)
