"""Puts more records than fit into memory into the order of their keys.

With random keys this is an exact global shuffle: records go to bucket files by
the leading bits of their keys, and one bucket at a time is sorted in memory.
The order depends neither on the number of buckets nor on who made the records.
"""

from __future__ import annotations

import contextlib
import os
import struct
from typing import Iterator, Sequence

import numpy as np

KEY_BITS = 63  # Keys are non-negative int64.
_HEADER = struct.Struct("<qI")  # Key, bytes of the record.
_MAX_BUCKETS = 256  # Each is an open file.


def num_buckets(total_bytes: int, bucket_bytes: int = 1 << 26) -> int:
  """A power of two that keeps buckets to about `bucket_bytes`."""
  wanted = -(-total_bytes // bucket_bytes)
  return min(_MAX_BUCKETS, 1 << max(0, wanted - 1).bit_length())


class ExternalSort:
  """Takes keyed records, then gives the records back, ordered by key.

  with external_sort.ExternalSort(directory, 16) as sort:
    sort.add(keys, records)
    for record in sort.drain(): ...
  """

  def __init__(self, directory: str, buckets: int):
    """Creates `directory` with `buckets` (a power of two) files in it."""
    if buckets < 1 or buckets & (buckets - 1):
      raise ValueError(f"{buckets} buckets: must be a power of two.")
    os.makedirs(directory)
    self._shift = KEY_BITS - (buckets.bit_length() - 1)
    self._paths = [
      os.path.join(directory, f"bucket-{index:03d}") for index in range(buckets)
    ]
    self._stack = contextlib.ExitStack()
    self._files = []
    for path in self._paths:
      file = open(path, "wb")
      self._files.append(self._stack.enter_context(file))
    self._records = 0

  def __len__(self) -> int:
    return self._records

  def add(self, keys: np.ndarray, records: Sequence[bytes]) -> None:
    """Adds N records with their keys <int64>[N], from 0 to 2^63 - 1."""
    if len(keys) != len(records):
      raise ValueError(f"{len(keys)} keys for {len(records)} records.")
    buckets = (keys >> self._shift).tolist()
    for key, bucket, record in zip(keys.tolist(), buckets, records):
      self._files[bucket].write(_HEADER.pack(key, len(record)) + record)
    self._records += len(records)

  def drain(self) -> Iterator[bytes]:
    """Yields all records; equal keys in the order in which they came.

    Each bucket file is removed when it has been read.
    """
    self._stack.close()
    for path in self._paths:
      with open(path, "rb") as file:
        data = file.read()
      os.remove(path)
      keys, places, at = [], [], 0
      while at < len(data):
        key, size = _HEADER.unpack_from(data, at)
        at += _HEADER.size
        keys.append(key)
        places.append((at, at + size))
        at += size
      for index in np.argsort(np.array(keys, np.int64), kind="stable"):
        start, end = places[index]
        yield data[start:end]

  def __enter__(self) -> ExternalSort:
    return self

  def __exit__(self, *unused_error) -> None:
    self._stack.close()
