"""Tests that a shard is whole and checked, or not there."""

import errno
import os
import uuid

import numpy as np
import pytest
import tensorflow as tf

from tfrecords import encoding, schemas, writer

_SCHEMA = (
  schemas.Feature("ids", "int64", (3,)),
  schemas.Feature("weight", "float32", (1,)),
)


def _record(first):
  return {"ids": [first, 500, 70000], "weight": np.float32([first / 2])}


def test_records_come_back_as_they_went_in(tmp_path):
  path = tmp_path / "train-00000-of-00001.tfrecord"
  with writer.ShardWriter(str(path), _SCHEMA) as shard:
    assert not path.exists()
    shard.write(_record(1))
    shard.write_encoded(
      encoding.encode_examples(
        _SCHEMA,
        {"ids": np.array([[2, 500, 70000]]), "weight": np.float32([[1]])},
      )[0]
    )
    assert shard.result is None
  assert [p.name for p in tmp_path.iterdir()] == [path.name]
  assert shard.result == schemas.Shard(path.name, 2, path.stat().st_size)

  examples = [
    tf.train.Example.FromString(record.numpy()).features.feature
    for record in tf.data.TFRecordDataset(str(path))
  ]
  assert [list(e["ids"].int64_list.value) for e in examples] == [
    [1, 500, 70000],
    [2, 500, 70000],
  ]
  assert [e["weight"].float_list.value[0] for e in examples] == [0.5, 1.0]


def test_failure_leaves_nothing_new_and_the_old_file(tmp_path):
  path = tmp_path / "shard"
  path.write_bytes(b"old")
  shard = writer.ShardWriter(str(path), _SCHEMA)
  with pytest.raises(ValueError, match=r"shape \[3\]"), shard:
    shard.write(_record(1))
    shard.write({"ids": [1, 2], "weight": np.float32([0])})
  assert shard.result is None
  assert path.read_bytes() == b"old"
  assert [p.name for p in tmp_path.iterdir()] == ["shard"]


@pytest.mark.skipif(
  not os.path.exists("/dev/full"), reason="has no device that is always full"
)
@pytest.mark.parametrize("records", [1, 5000])  # In a buffer; on the disk.
def test_full_disk_is_an_os_error(tmp_path, monkeypatch, records):
  path = tmp_path / "shard"
  monkeypatch.setattr(writer.uuid, "uuid4", lambda: uuid.UUID(int=7))
  os.symlink("/dev/full", f"{path}.{uuid.UUID(int=7).hex}.tmp")
  shard = writer.ShardWriter(str(path), _SCHEMA)
  with pytest.raises(OSError, match="No space left") as raised, shard:
    for _ in range(records):
      shard.write_encoded(b"x" * 1000)
  assert raised.value.errno == errno.ENOSPC
  assert raised.value.filename == str(path)
  assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("records", [0, 2])
def test_paths_and_addresses_get_the_same_bytes(tmp_path, records):
  for path in (f"{tmp_path}/local", f"file://{tmp_path}/address"):
    with writer.ShardWriter(path, _SCHEMA) as shard:
      for number in range(records):
        shard.write(_record(number))
    assert shard.result.records == records
    assert (shard.result.bytes > 0) == (records > 0)
  assert sorted(os.listdir(tmp_path)) == ["address", "local"]
  local, address = tmp_path / "local", tmp_path / "address"
  assert local.read_bytes() == address.read_bytes()


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
