"""Writing a shard: every record checked, the file whole or not there.

The bytes go to a temporary name in the same folder; the shard gets its own
name when it is complete, and the temporary file is removed when it isn't. A
path may be any that TensorFlow can write, such as gs://bucket/name.
"""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from typing import Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

from tfrecords import encoding, schemas


class ShardWriter:
  """Writes one shard; a context manager.

      with writer.ShardWriter(path, schema) as shard:
        shard.write({"input_ids": ids, ...})
      manifest_entry = shard.result

  Attributes:
    result: the finished shard's `schemas.Shard`; None before the end.
  """

  def __init__(self, path: str, schema: Sequence[schemas.Feature]):
    """Opens the temporary file; `schema` is what every record must hold."""
    self.result = None
    self._path = path
    # Unique among machines too: several may try the same shard.
    self._temporary = f"{path}.{uuid.uuid4().hex}.tmp"
    self._schema = tuple(schema)
    self._records = 0
    self._writer = tf.io.TFRecordWriter(self._temporary)

  def write(self, features: Mapping[str, np.ndarray]) -> None:
    """Writes one record.

    Args:
      features: for each feature of the schema an array <dtype>[...shape].

    Raises:
      ValueError: the record does not fit the schema.
    """
    rows = {name: np.asarray(value)[None] for name, value in features.items()}
    self.write_encoded(encoding.encode_examples(self._schema, rows)[0])

  def write_encoded(self, record: bytes) -> None:
    """Writes a record that `encoding.encode_examples` has checked already.

    Raises:
      OSError: the disk is full.
    """
    with _full_disk_as_os_error(self._path):
      self._writer.write(record)
    self._records += 1

  def __enter__(self) -> ShardWriter:
    return self

  def __exit__(self, error_type, error, traceback) -> None:
    try:
      with _full_disk_as_os_error(self._path):
        self._writer.close()
      if error_type is None:
        size = int(tf.io.gfile.stat(self._temporary).length)
        tf.io.gfile.rename(self._temporary, self._path, overwrite=True)
        self.result = schemas.Shard(
          os.path.basename(self._path), self._records, size
        )
    finally:
      if tf.io.gfile.exists(self._temporary):
        tf.io.gfile.remove(self._temporary)


@contextlib.contextmanager
def _full_disk_as_os_error(path: str) -> Iterator[None]:
  """So that callers need not know TensorFlow's errors."""
  try:
    yield
  except tf.errors.ResourceExhaustedError as error:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path) from error
