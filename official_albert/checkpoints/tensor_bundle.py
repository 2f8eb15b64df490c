"""Reads and writes TensorFlow's format of checkpoints.

A checkpoint is an index, PREFIX.index, and the values in PREFIX.data-*. The
index is a table of LevelDB, see table_format.md in github.com/google/leveldb.
It maps "" to a `BundleHeaderProto` and each name to a `BundleEntryProto`.

TensorFlow's own reader is not used because it trusts the index: sizes that are
negative or larger than the file end the process without an exception, as does
other damage that checksums do not detect.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import struct
from typing import Any, Callable, Iterator, Mapping, Optional

import numpy as np
import tensorflow as tf
from google.protobuf import message
from google.protobuf.internal.decoder import _DecodeVarint
from tensorflow.core.protobuf import (
  tensor_bundle_pb2,
  trackable_object_graph_pb2,
)

from official_albert import files

INDEX = ".index"
# Only checkpoints written by tf.train.Checkpoint have this key.
_OBJECT_GRAPH = b"_CHECKPOINTABLE_OBJECT_GRAPH"
_FOOTER_BYTES, _MAGIC = 48, 0xDB4775248B80FB57
# A block is followed by its compression, which TensorFlow does not use, and its
# checksum.
_UNCOMPRESSED, _TRAILER_BYTES = 0, 5
# Five times the index of 1,024 blocks that share nothing, with two slots for
# each variable: 49,201 names in 3.3 MB. A name is stored without the beginning
# that it shares with the one before, so a small file could hold any number of
# long names. A short name counts as many bytes as its entry takes in memory.
_MAX_INDEX_BYTES, _MAX_NAMES_BYTES, _NAME_BYTES = 1 << 24, 1 << 26, 1 << 8
# The product of n sizes takes time that grows with n**2.
_MAX_RANK = 32
# The first byte of the names of partitions, which are not text.
_SLICE = b"\0"


@dataclasses.dataclass(frozen=True)
class LazyArray:
  """An array in a file, which `np.asarray` reads.

  Attributes:
    shape: the shape, known without reading.
    read: returns the values; floating-point values as <float32>.
  """

  shape: tuple[int, ...]
  read: Callable[[], np.ndarray]

  def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
    # `read` returns a new array, which may be read-only.
    return (np.array if copy else np.asarray)(self.read(), dtype)


def read_bundle(
  prefix: str,
) -> tuple[dict[str, LazyArray], Optional[Callable[[], dict[str, str]]]]:
  """Opens the variables of numbers of a checkpoint, by name.

  A value is read when it is used, in a bucket by one request. Sizes are checked
  now, because callers create models of these shapes before they read values.

  Returns:
    The variables, and None or, if `tf.train.Checkpoint` wrote the checkpoint, a
    function that returns the names in the graph by the variables' keys. It
    raises OSError if they are damaged.

  Raises:
    OSError: the index is damaged or cannot be read, or the other files do not
      have the bytes of its values.
  """
  index = f"{prefix}{INDEX}"
  with files.open(index, "rb") as file:
    content = file.read(_MAX_INDEX_BYTES + 1)
  try:
    table = _read_table(content)
    header = tensor_bundle_pb2.BundleHeaderProto.FromString(table.pop(b"", b""))
    if header.endianness != header.LITTLE or header.num_shards < 1:
      raise ValueError("it has no header, or one of another machine")
    entries = {
      name.decode("utf-8"): _read_entry(content)
      for name, content in table.items()
      if not name.startswith(_SLICE)
    }
  except (ValueError, IndexError, struct.error, message.Error) as error:
    raise _damaged(index, str(error)) from error

  def file_of(entry: tensor_bundle_pb2.BundleEntryProto) -> str:
    return f"{prefix}.data-{entry.shard_id:05d}-of-{header.num_shards:05d}"

  sizes: dict[str, int] = {}
  values: dict[str, LazyArray] = {}
  claimed = 0
  for name, entry in entries.items():
    if not entry:
      continue
    path = file_of(entry)
    try:
      if path not in sizes:
        sizes[path], _ = files.stat(path)
    except FileNotFoundError as error:
      raise _damaged(path, f"it does not exist; {name} is in it") from error
    if not 0 <= entry.offset <= entry.offset + entry.size <= sizes[path]:
      raise _damaged(path, f"{name} is not in it")
    # The slices of a value are entries of their own, which are left out.
    claimed += _size(entry)
    read = functools.partial(_read_value, name, entry, path)
    values[name] = LazyArray(_shape(entry), read)
  if claimed > (held := sum(sizes.values())):
    raise _damaged(index, f"it promises {claimed:,} bytes of {held:,}")
  if _OBJECT_GRAPH not in table:
    return values, None
  graph = tensor_bundle_pb2.BundleEntryProto.FromString(table[_OBJECT_GRAPH])
  return values, functools.partial(_read_names, graph, file_of(graph))


def _read_names(
  entry: tensor_bundle_pb2.BundleEntryProto, path: str
) -> dict[str, str]:
  """Returns the names in the graph, where Keras does not number variables."""
  try:
    if not 0 <= entry.size <= _MAX_INDEX_BYTES or entry.offset < 0:
      raise ValueError("its graph of objects is too large")
    with files.open(path, "rb") as file:
      file.seek(entry.offset)
      content = file.read(entry.size)
    # The length of the text, a checksum of four bytes, the text.
    size, start = _DecodeVarint(content, 0)
    graph = trackable_object_graph_pb2.TrackableObjectGraph.FromString(
      content[start + 4 : start + 4 + size]
    )
  except (IndexError, ValueError, OSError, message.Error) as error:
    raise _damaged(path, str(error)) from error
  return {
    x.checkpoint_key: x.full_name for y in graph.nodes for x in y.attributes
  }


def _read_value(
  name: str, entry: tensor_bundle_pb2.BundleEntryProto, path: str
) -> np.ndarray:
  """Returns a value, which the file had when its index was read.

  Raises:
    OSError: the value is damaged, cannot be read, or is in slices.
  """
  if entry.slices:
    raise OSError(
      f"{name} in {path} is stored in slices: save the checkpoint without a "
      "partitioner."
    )
  with files.open(path, "rb") as file:
    file.seek(entry.offset)
    content = file.read(entry.size)
  if files.masked_crc32c(content) != entry.crc32c:
    raise _damaged(path, f"{name} has another checksum")
  dtype = tf.as_dtype(entry.dtype)
  value = np.frombuffer(content, dtype.as_numpy_dtype).reshape(_shape(entry))
  return value.astype(np.float32, copy=False) if dtype.is_floating else value


def _damaged(path: str, why: str) -> OSError:
  """Returns an error about a file of a checkpoint, with advice."""
  return OSError(
    f"{path} is damaged ({why}): copy it again, or name another checkpoint of "
    "its run (--checkpoint=latest)."
  )


def _read_table(content: bytes) -> dict[bytes, bytes]:
  """Returns the entries of a table, which may be the beginning of a file.

  Raises:
    ValueError, IndexError, struct.error, message.Error: the table is damaged,
      or far larger than any ALBERT's.
  """
  if len(content) > _MAX_INDEX_BYTES:
    raise ValueError(f"it has more than {_MAX_INDEX_BYTES:,} bytes")
  start = len(content) - _FOOTER_BYTES
  if start < 0 or content[-8:] != struct.pack("<Q", _MAGIC):
    raise ValueError("it does not end like a table")
  # The footer has the places of a block of metadata and of the block of blocks.
  (_, _, *place), _ = _varints(content, start, 4)
  found: dict[bytes, bytes] = {}
  end, names_bytes = 0, 0
  for _, handle in _read_block(content, *place):
    (offset, size), _ = _varints(handle, 0, 2)
    if offset < end:
      raise ValueError("two blocks overlap")
    end = offset + size + _TRAILER_BYTES
    for name, value in _read_block(content, offset, size):
      names_bytes += max(len(name), _NAME_BYTES)
      if names_bytes > _MAX_NAMES_BYTES:
        raise ValueError(
          f"it has names of more than {_MAX_NAMES_BYTES:,} bytes"
        )
      found[name] = value
  return found


def _read_block(
  content: bytes, offset: int, size: int
) -> Iterator[tuple[bytes, bytes]]:
  """Yields the keys and values of a block of a table."""
  end = offset + size
  if end + _TRAILER_BYTES > len(content) or content[end] != _UNCOMPRESSED:
    raise ValueError("a block is not in the file, or is compressed")
  crc = files.masked_crc32c(content[offset : end + 1])
  if content[end + 1 : end + _TRAILER_BYTES] != struct.pack("<I", crc):
    raise ValueError("a block has another checksum")
  # The keys that do not share bytes with the one before are listed at the end,
  # for searches.
  (restarts,) = struct.unpack("<I", content[end - 4 : end])
  end -= 4 * (restarts + 1)
  key = b""
  while offset < end:
    (shared, own, length), offset = _varints(content, offset, 3)
    key = key[:shared] + content[offset : offset + own]
    offset += own + length
    yield key, content[offset - length : offset]


def _varints(content: bytes, offset: int, count: int) -> tuple[list[int], int]:
  """Returns the numbers at an offset, and the offset behind them."""
  numbers = []
  for _ in range(count):
    number, offset = _DecodeVarint(content, offset)
    numbers.append(number)
  return numbers, offset


def _read_entry(content: bytes) -> Optional[tensor_bundle_pb2.BundleEntryProto]:
  """Returns the entry of a variable of numbers, None for any other value.

  Raises:
    ValueError: its size does not fit its shape.
  """
  entry = tensor_bundle_pb2.BundleEntryProto.FromString(content)
  if len(entry.shape.dim) > _MAX_RANK:
    raise ValueError("a variable has too many dimensions")
  try:
    dtype = tf.as_dtype(entry.dtype)
  except TypeError:  # No such number.
    return None
  if not (dtype.is_floating or dtype.is_integer or dtype.is_bool):
    return None
  size = 0 if entry.slices else _size(entry)
  if min(_shape(entry), default=0) < 0 or size != entry.size:
    raise ValueError("the shape of a variable does not fit its size")
  return entry


def _size(entry: tensor_bundle_pb2.BundleEntryProto) -> int:
  """Returns the bytes of a value, which its slices may hold."""
  return tf.as_dtype(entry.dtype).size * math.prod(_shape(entry))


def _shape(entry: tensor_bundle_pb2.BundleEntryProto) -> tuple[int, ...]:
  return tuple(dimension.size for dimension in entry.shape.dim)


def write_bundle(prefix: str, tensors: Mapping[str, Any]) -> None:
  """Writes a checkpoint whose variables have exactly these names."""
  names = sorted(tensors)
  try:
    tf.raw_ops.SaveV2(
      prefix=prefix,
      tensor_names=names,
      shape_and_slices=[""] * len(names),
      tensors=[tf.constant(np.asarray(tensors[name])) for name in names],
    )
  except tf.errors.OpError as error:
    raise OSError(f"{prefix} could not be written: {error.message}") from error
