"""Writes shards atomically.

TensorFlow writes paths such as gs://bucket/name; it is loaded only for them,
because its import takes seconds.

A TFRecord consists of its length in 8 bytes, their checksum, the record and its
checksum (tensorflow.org/tutorials/load_data/tfrecord).
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import uuid
from typing import Any, Iterator, Mapping, Sequence

import google_crc32c
import numpy as np

from tfrecords import encoding, schemas

_LENGTH, _CHECKSUM = struct.Struct("<Q"), struct.Struct("<I")
_BUFFER_BYTES = 1 << 20


class ShardWriter:
  """Writes one shard; a context manager.

      with ShardWriter(path, schema) as shard:
        shard.write({"input_ids": ids, ...})
      manifest_entry = shard.result

  Attributes:
    result: the `schemas.Shard` of the finished shard; None before that.
  """

  def __init__(self, path: str, schema: Sequence[schemas.Feature]):
    self.result = None
    self._path = path
    # Unique across machines, because several may write the same shard.
    self._temporary = f"{path}.{uuid.uuid4().hex}.tmp"
    self._schema = tuple(schema)
    self._records = 0
    self._is_local = "://" not in path
    if self._is_local:
      self._file = open(self._temporary, "wb", buffering=_BUFFER_BYTES)
    else:
      self._file = _gfile().GFile(self._temporary, "wb")
      self._file.write(b"")  # Creates the file if there are no records.

  def write(self, features: Mapping[str, np.ndarray]) -> None:
    """Writes one record.

    Args:
      features: for each feature of the schema, an array <dtype>[...shape].
    """
    rows = {name: np.asarray(value)[None] for name, value in features.items()}
    self.write_encoded(encoding.encode_examples(self._schema, rows)[0])

  def write_encoded(self, record: bytes) -> None:
    """Writes a record that `encode_examples` has made."""
    length = _LENGTH.pack(len(record))
    with self._full_disk_names_path():
      self._file.write(
        length + _masked_checksum(length) + record + _masked_checksum(record)
      )
    self._records += 1

  def __enter__(self) -> ShardWriter:
    return self

  def __exit__(self, error_type, error, traceback) -> None:
    try:
      with self._full_disk_names_path():
        self._file.close()
      if error_type is None:
        self.result = self._put_in_place()
    finally:
      if self._is_local:
        with contextlib.suppress(FileNotFoundError):
          os.remove(self._temporary)
      elif _gfile().exists(self._temporary):
        _gfile().remove(self._temporary)

  def _put_in_place(self) -> schemas.Shard:
    if self._is_local:
      size = os.path.getsize(self._temporary)
      os.replace(self._temporary, self._path)  # noqa: TID251
    else:
      size = int(_gfile().stat(self._temporary).length)
      _gfile().rename(self._temporary, self._path, overwrite=True)
    return schemas.Shard(os.path.basename(self._path), self._records, size)

  @contextlib.contextmanager
  def _full_disk_names_path(self) -> Iterator[None]:
    try:
      yield
    except Exception as error:
      # TensorFlow raises ResourceExhaustedError for remote storage.
      if (
        getattr(error, "errno", None) != errno.ENOSPC
        and type(error).__name__ != "ResourceExhaustedError"
      ):
        raise
      text = os.strerror(errno.ENOSPC)
      raise OSError(errno.ENOSPC, text, self._path) from error


def _gfile() -> Any:
  from tensorflow.io import gfile

  return gfile


def _masked_checksum(data: bytes) -> bytes:
  """Returns the masked CRC-32C of the TFRecord format."""
  crc = google_crc32c.value(data)
  return _CHECKSUM.pack(((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
