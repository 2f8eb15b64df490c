"""Puts more records than fit into memory into the order of their keys.

With random keys this is an exact global shuffle: records go to bucket files by
the leading bits of their keys, and one bucket at a time is sorted in memory.
The order depends neither on the number of buckets nor on who made the records.

A sort can go on after a kill: `state` says what the files hold, `holds_from`
whether they still do, and a new sort that gets the state cuts them to that.
"""

from __future__ import annotations

import contextlib
import os
import struct
import tempfile
import zlib
from typing import (
  Any,
  BinaryIO,
  Iterable,
  Iterator,
  Mapping,
  NamedTuple,
  Optional,
  Sequence,
)

import numpy as np

KEY_BITS = 63  # Keys are non-negative int64.
_HEADER = struct.Struct("<qI")  # Key, bytes of the record.
_MAX_BUCKETS = 256  # Each is an open file.
# What a bucket is meant to have: a shard that begins within one reads the
# bucket from its start.
_BUCKET_BYTES = 1 << 22
_MEMORY_BYTES = 1 << 28  # A larger bucket is parted again.
_PARTS = 16
_READ_BYTES = 1 << 20


def is_intact(path: str, size: int, crc32: int) -> bool:
  """Whether the first `size` bytes of a file have the checksum `crc32`."""
  if not os.path.isfile(path):
    return False
  found = 0
  with open(path, "rb") as file:
    while size and (data := file.read(min(size, _READ_BYTES))):
      found = zlib.crc32(data, found)
      size -= len(data)
  return not size and found == crc32


def num_buckets(total_bytes: int, bucket_bytes: int = _BUCKET_BYTES) -> int:
  """A power of two that keeps buckets to about `bucket_bytes`."""
  wanted = -(-total_bytes // bucket_bytes)
  return min(_MAX_BUCKETS, 1 << max(0, wanted - 1).bit_length())


class Part(NamedTuple):
  """Records with their headers, as the file of a bucket holds them."""

  bucket: int
  count: int
  data: bytes


def pack_key(
  keys: np.ndarray,
  records: Sequence[bytes],
  buckets: int,
  key_bits: int = KEY_BITS,
) -> list[Part]:
  """Makes N records ready to be added to a sort; any process can do it.

  Args:
    keys: <int64>[N], from 0 to 2^63 - 1.
    records: N of them.
    buckets: of the sort.
    key_bits: of the sort.

  Raises:
    ValueError: the numbers of keys and records differ.
  """
  if len(keys) != len(records):
    raise ValueError(f"{len(keys)} keys for {len(records)} records.")
  places = keys >> _shift(buckets, key_bits) & (buckets - 1)
  pieces: dict[int, list[bytes]] = {}
  for key, bucket, record in zip(keys.tolist(), places.tolist(), records):
    pieces.setdefault(bucket, []).extend(
      (_HEADER.pack(key, len(record)), record)
    )
  return [
    Part(bucket, len(found) // 2, b"".join(found))
    for bucket, found in pieces.items()
  ]


def _shift(buckets: int, key_bits: int) -> int:
  """Bits of a key below those that name the bucket."""
  return key_bits - (buckets.bit_length() - 1)


class ExternalSort:
  """Takes keyed records, then gives the records back, ordered by key.

  with external_sort.ExternalSort(directory, 16) as sort:
    sort.add(external_sort.pack(keys, records, 16))
    for record in sort.drain(): ...
  """

  def __init__(
    self,
    directory: str,
    buckets: int,
    state: Optional[Mapping[str, Any]] = None,
    key_bits: int = KEY_BITS,
  ):
    """Opens or, without a state, creates `directory` with its bucket files.

    Args:
      directory: of the bucket files.
      buckets: how many; a power of two.
      state: of the sort to go on with.
      key_bits: how many of a key's low bits tell records apart.

    Raises:
      ValueError: the number of buckets is of no use, or not that of the state.
    """
    if buckets < 1 or buckets & (buckets - 1):
      raise ValueError(f"{buckets} buckets: must be a power of two.")
    self._directory = directory
    self._shift = _shift(buckets, key_bits)
    self._paths = [
      os.path.join(directory, f"bucket-{index:03d}") for index in range(buckets)
    ]
    state = state or {}
    self._bytes = list(state.get("bytes", [0] * buckets))
    self._records = list(state.get("records", [0] * buckets))
    self._checksums = list(state.get("crc32", [0] * buckets))
    if len(self._bytes) != buckets:
      raise ValueError(
        f"{buckets} buckets, but {len(self._bytes)} in the state."
      )
    self._stack = contextlib.ExitStack()
    self._files: list[BinaryIO] = []

  def __len__(self) -> int:
    return sum(self._records)

  def holds_from(self, first: int) -> bool:
    """Whether the files have all records from the `first` in order on.

    Reads those files and compares their checksums.
    """
    ends = np.cumsum(self._records)
    files = zip(self._paths, self._bytes, self._checksums)
    return all(
      is_intact(*file)
      for file, count, end in zip(files, self._records, ends)
      if count and end > first
    )

  def _open(self) -> None:
    os.makedirs(self._directory, exist_ok=True)
    for path, size in zip(self._paths, self._bytes):
      file = self._stack.enter_context(open(path, "ab"))
      file.truncate(size)
      self._files.append(file)

  def add(self, parts: Iterable[Part]) -> None:
    """Adds what `pack` has made for as many buckets."""
    if not self._files:
      self._open()
    for bucket, count, data in parts:
      self._files[bucket].write(data)
      self._bytes[bucket] += len(data)
      self._records[bucket] += count
      self._checksums[bucket] = zlib.crc32(data, self._checksums[bucket])

  def state(self) -> dict[str, list[int]]:
    """What the files hold, for another sort to go on; a JSON value.

    The system has the bytes then, so that no kill of the process loses them.
    """
    for file in self._files:
      file.flush()
    return {
      "bytes": list(self._bytes),
      "records": list(self._records),
      "crc32": list(self._checksums),
    }

  def drain(self, first: int = 0) -> Iterator[bytes]:
    """Yields the records; equal keys in the order in which they came.

    Args:
      first: how many to leave out.

    Raises:
      OSError: a bucket file is not what was written.
    """
    self._close()
    end = 0
    for index, count in enumerate(self._records):
      end += count
      if count and end > first:
        skip = max(0, first - (end - count))
        for place, record in enumerate(self._sorted(index)):
          if place >= skip:
            yield record

  def discard(self, end: int) -> None:
    """Removes the files whose records are all before the `end`th in order."""
    self._close()
    last = 0
    for path, count in zip(self._paths, self._records):
      last += count
      if last <= end and os.path.exists(path):
        os.remove(path)

  def _sorted(self, index: int) -> Iterator[bytes]:
    path = self._paths[index]
    if self._bytes[index] <= _MEMORY_BYTES or not self._shift:
      with open(path, "rb") as file:
        data = file.read(self._bytes[index])
      if zlib.crc32(data) != self._checksums[index]:
        raise OSError(_damaged(path))
      keys, places, at = [], [], 0
      while at < len(data):
        key, size = _HEADER.unpack_from(data, at)
        at += _HEADER.size
        keys.append(key)
        places.append((at, at + size))
        at += size
      for place in np.argsort(np.array(keys, np.int64), kind="stable"):
        start, end = places[place]
        yield data[start:end]
      return
    parts = min(_PARTS, 1 << self._shift)
    # Of its own, for others may drain the same bucket.
    with (
      tempfile.TemporaryDirectory(dir=self._directory) as folder,
      ExternalSort(folder, parts, key_bits=self._shift) as order,
    ):
      self._part(index, order)
      yield from order.drain()

  def _part(self, index: int, order: ExternalSort) -> None:
    """Puts the records of a bucket into another sort."""
    path, left, checksum = self._paths[index], self._bytes[index], 0
    with open(path, "rb") as file:
      while left > 0:
        header = file.read(_HEADER.size)
        if len(header) < _HEADER.size:
          raise OSError(_damaged(path))
        key, size = _HEADER.unpack(header)
        if size > left:
          raise OSError(_damaged(path))
        record = file.read(size)
        checksum = zlib.crc32(record, zlib.crc32(header, checksum))
        bucket = key >> order._shift & (len(order._paths) - 1)
        order.add([Part(bucket, 1, header + record)])
        left -= len(header) + size
    if checksum != self._checksums[index]:
      raise OSError(_damaged(path))

  def _close(self) -> None:
    self._stack.close()
    self._files.clear()

  def __enter__(self) -> ExternalSort:
    return self

  def __exit__(self, *unused_error) -> None:
    self._close()


def _damaged(path: str) -> str:
  return f"{path} is damaged: remove it and run the same command again."
