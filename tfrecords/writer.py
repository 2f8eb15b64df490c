"""Serializes records as `tf.train.Example` and writes shards atomically.

Data workers need not load TensorFlow, and a few array operations encode all
varints of a feature. The bytes equal those of
`Example.SerializeToString(deterministic=True)`: features are sorted by name and
lists are packed.

Source: developers.google.com/protocol-buffers/docs/encoding, TensorFlow's
core/example/{example,feature}.proto, and for the TFRecord format
tensorflow.org/tutorials/load_data/tfrecord.
"""

from __future__ import annotations

import functools
import os
import struct
from typing import Any, Iterable, Mapping, Sequence

import numpy as np

from official_albert import files
from official_albert.tfrecords import schemas

# A TFRecord is its length in 8 bytes, their checksum, the record, its checksum.
_LENGTH, _CHECKSUM = struct.Struct("<Q"), struct.Struct("<I")
_BUFFER_BYTES = 1 << 20
# Field number << 3 | wire type 2 (length-delimited). In example.proto, 1 and 2
# are the key and the value of a map entry. Feature has float_list = 2 and
# int64_list = 3. The values are field 1 of either list.
_FIELD_1, _FIELD_2, _FIELD_3 = b"\x0a", b"\x12", b"\x1a"


def encode_examples(
  schema: Sequence[schemas.Feature], features: Mapping[str, np.ndarray]
) -> list[bytes]:
  """Encodes N records as serialized `tf.train.Example`.

  `features` has, for each feature of the schema, an array <dtype>[N, ...shape].
  Any integer type is accepted for int64; float32 must be float32.
  """
  names = {feature.name for feature in schema}
  if wrong := names ^ features.keys():
    raise ValueError(
      f"only the schema or only a record has {', '.join(sorted(wrong))}."
    )
  num_records = len(features[schema[0].name])
  encoded = []  # For each feature, its map entry in each of the N records.
  for feature in sorted(schema, key=lambda feature: feature.name):
    name = feature.name.encode()
    key = _FIELD_1 + _varint(len(name)) + name
    _check(feature, features[feature.name], num_records)
    rows = features[feature.name].reshape(num_records, feature.length)
    if feature.dtype == "int64":
      field, payloads = _FIELD_3, _pack_integers(rows)
    else:
      field, payloads = _FIELD_2, [x.tobytes() for x in rows.astype("<f4")]
    encoded.append([_head(key, field, len(x)) + x for x in payloads])
  records = []
  for entries in zip(*encoded):
    record = b"".join(entries)
    records.append(_FIELD_1 + _varint(len(record)) + record)
  return records


def _check(feature: schemas.Feature, value: np.ndarray, records: int) -> None:
  is_integer = value.dtype.kind in "iub" and value.dtype != np.uint64
  fits = is_integer if feature.dtype == "int64" else value.dtype == np.float32
  if not fits or value.shape != (records, *feature.shape):
    raise ValueError(
      f"feature {feature.name!r} must be {feature.dtype}{list(feature.shape)} "
      f"in each of {records} records, not {value.dtype}{list(value.shape)} in "
      "all."
    )


@functools.lru_cache(1 << 12)  # Sizes and keys are few.
def _head(key: bytes, list_field: bytes, size: int) -> bytes:
  """Encodes an entry of the feature map up to its packed values."""
  head = _FIELD_1 + _varint(size) if size else b""
  for field in (list_field, key + _FIELD_2, _FIELD_1):
    head = field + _varint(len(head) + size) + head
  return head


def _varint(value: int) -> bytes:
  groups = []
  while value >= 0x80:
    groups.append(value & 0x7F | 0x80)
    value >>= 7
  return bytes((*groups, value))


def _pack_integers(rows: np.ndarray) -> list[bytes]:
  """Packs rows <integer>[N, L] as varints; returns a string for each row."""
  if not rows.size:
    return [b""] * len(rows)
  smallest, largest = int(rows.min()), int(rows.max())
  if smallest >= 0 and largest < 0x80:
    packed = rows.astype(np.uint8)
    return [row.tobytes() for row in packed]
  # A negative number is stored as 64-bit two's complement, in ten bytes.
  width = 10 if smallest < 0 else (largest.bit_length() + 6) // 7
  narrow = smallest >= 0 and largest < 2**31
  signed = rows.astype(np.int32 if narrow else np.int64)
  values: Any = signed.view(np.uint32 if narrow else np.uint64)
  groups = np.empty((*rows.shape, width), np.uint8)
  used = np.empty(groups.shape, bool)
  for index in range(width):
    used[..., index] = values != 0 if index else True
    groups[..., index] = values & 0x7F
    values = values >> 7
  # The highest bit means that another byte of the number follows.
  groups[..., :-1] |= used[..., 1:].astype(np.uint8) << np.uint8(7)
  packed = groups[used].tobytes()
  ends = np.cumsum(used.sum(axis=(1, 2), dtype=np.int64)).tolist()
  return [packed[a:b] for a, b in zip([0, *ends], ends)]


def write_shard(path: str, records: Iterable[bytes]) -> schemas.Shard:
  """Writes a file of records that `encode_examples` has made, whole or not.

  >>> import numpy as np
  >>> from official_albert import tfrecords
  >>> schema = [tfrecords.Feature("input_ids", "int64", (3,))]
  >>> ids = {"input_ids": np.array([[2, 41, 3], [2, 7, 3]])}
  >>> records = tfrecords.encode_examples(schema, ids)
  >>> tfrecords.write_shard("new.tfrecord", records).records
  2
  >>> from official_albert.tfrecords import reader
  >>> len(list(reader.read_records("new.tfrecord")))
  2
  """
  count = size = 0
  with (
    files.replacing(path) as temporary,
    open(temporary, "wb", buffering=_BUFFER_BYTES) as file,
  ):
    for record in records:
      size += file.write(frame(record))
      count += 1
  return schemas.Shard(os.path.basename(path), count, size)


def frame(record: bytes) -> bytes:
  """Returns a record as it is in a TFRecord file, with masked CRC-32Cs."""
  length = _LENGTH.pack(len(record))
  checksums = (
    _CHECKSUM.pack(files.masked_crc32c(data)) for data in (length, record)
  )
  return b"".join([length, next(checksums), record, next(checksums)])
