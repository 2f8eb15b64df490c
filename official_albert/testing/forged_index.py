"""Writes the index of a TensorFlow checkpoint with any entries, for tests.

TensorFlow's own writer makes no wrong entries. Here the checksums of wrong
entries are right, as someone would make them who wants to harm a reader.
"""

from __future__ import annotations

import struct
from typing import Any, Mapping, Sequence

import tensorflow as tf
from google.protobuf.internal.encoder import _VarintBytes as varint
from tensorflow.core.protobuf import tensor_bundle_pb2

from official_albert import files


def entry(shape: Sequence[int], **fields: Any) -> bytes:
  """Returns the entry of a variable; `fields` are those of its message."""
  values = {"dtype": tf.float32.as_datatype_enum, **fields}
  proto = tensor_bundle_pb2.BundleEntryProto(**values)
  for size in shape:
    proto.shape.dim.add(size=size)
  return proto.SerializeToString()


def header(**fields: Any) -> bytes:
  """Returns the header of an index; `fields` are those of its message."""
  values = {"num_shards": 1, **fields}
  return tensor_bundle_pb2.BundleHeaderProto(**values).SerializeToString()


def index(entries: Mapping[bytes, bytes]) -> bytes:
  """Returns the content of an index with these names in this order."""
  content = b""

  def add(block: Mapping[bytes, bytes]) -> bytes:
    nonlocal content
    parts = b"".join(
      b"\0" + varint(len(key)) + varint(len(value)) + key + value
      for key, value in block.items()
    )
    # There is one key that does not share bytes with the one before: the first.
    parts += struct.pack("<II", 0, 1)
    place = varint(len(content)) + varint(len(parts))
    masked = files.masked_crc32c(parts + b"\0")
    content += parts + b"\0" + struct.pack("<I", masked)
    return place

  values, metadata = add(entries), add({})
  footer = metadata + add({b"\xff": values})
  return (
    content + footer.ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)
  )
