"""Tests of the order of records and of what is left on the disk."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

from tfrecords import external_sort


def _records(count, seed=0):
  rng = np.random.default_rng(seed)
  keys = rng.integers(1 << external_sort.KEY_BITS, size=count)
  return keys, [f"{key}:{'x' * (key % 50)}".encode() for key in keys.tolist()]


def _add(sort, buckets, keys, records):
  sort.add(external_sort.pack_key(keys, records, buckets))


def _sorted(folder, buckets, keys, records, step=7):
  with external_sort.ExternalSort(str(folder), buckets) as sort:
    for start in range(0, len(records), step):
      part = slice(start, start + step)
      _add(sort, buckets, keys[part], records[part])
    assert len(sort) == len(records)
    return list(sort.drain())


@pytest.mark.parametrize("buckets", [1, 2, 16])
def test_order_is_that_of_the_keys_for_any_number_of_buckets(tmp_path, buckets):
  keys, records = _records(500)
  expected = [records[i] for i in np.argsort(keys)]
  folder = tmp_path / "sort"
  assert _sorted(folder, buckets, keys, records) == expected
  assert len(os.listdir(folder)) == buckets


def test_files_go_when_their_records_are_discarded(tmp_path):
  keys, records = _records(800)
  expected = [records[i] for i in np.argsort(keys)]
  folder = tmp_path / "sort"
  with external_sort.ExternalSort(str(folder), 8) as sort:
    _add(sort, 8, keys, records)
    in_first = int((keys < 1 << (external_sort.KEY_BITS - 3)).sum())
    sort.discard(in_first - 1)
    assert len(os.listdir(folder)) == 8
    assert all(os.path.getsize(path) for path in folder.iterdir())
    sort.discard(in_first)
    assert len(os.listdir(folder)) == 7
    assert not sort.holds_from(in_first - 1)
    assert sort.holds_from(in_first)
    assert list(sort.drain(in_first + 5)) == expected[in_first + 5 :]
    sort.discard(800)
    assert os.listdir(folder) == []


def test_goes_on_where_its_state_says(tmp_path):
  keys, records = _records(300)
  folder = str(tmp_path / "sort")
  with external_sort.ExternalSort(folder, 4) as sort:
    _add(sort, 4, keys[:100], records[:100])
    state = json.loads(json.dumps(sort.state()))
    # What comes after the state is lost, as by a kill.
    _add(sort, 4, keys[200:], records[200:])
  with external_sort.ExternalSort(folder, 4, state) as sort:
    assert len(sort) == 100
    assert sort.holds_from(0)
    _add(sort, 4, keys[100:], records[100:])
    state = sort.state()
  with external_sort.ExternalSort(folder, 4, state) as sort:
    expected = [records[i] for i in np.argsort(keys)]
    assert list(sort.drain()) == expected
    assert list(sort.drain(7)) == expected[7:]


def test_files_that_were_changed_are_found(tmp_path):
  keys, records = _records(50)
  folder = str(tmp_path / "sort")
  with external_sort.ExternalSort(folder, 2) as sort:
    _add(sort, 2, keys, records)
    state = sort.state()
  path = os.path.join(folder, "bucket-001")
  with open(path, "r+b") as file:
    file.seek(40)
    file.write(b"?")
  sort = external_sort.ExternalSort(folder, 2, state)
  assert not sort.holds_from(0)
  with pytest.raises(OSError, match="bucket-001 is damaged: remove it and run"):
    list(sort.drain())
  os.truncate(path, 30)
  assert not sort.holds_from(0)
  os.remove(path)
  assert not sort.holds_from(0)
  with pytest.raises(ValueError, match="4 buckets, but 2 in the state"):
    external_sort.ExternalSort(folder, 4, state)


def test_bucket_that_is_too_large_for_the_memory_is_parted(
  tmp_path, monkeypatch
):
  monkeypatch.setattr(external_sort, "_MEMORY_BYTES", 1000)
  keys, records = _records(500)
  keys[100:130] = keys[100]  # Parted until no bit is left, then sorted as is.
  expected = [records[i] for i in np.argsort(keys, kind="stable")]
  folder = tmp_path / "sort"
  assert _sorted(folder, 2, keys, records) == expected
  assert len(os.listdir(folder)) == 2
  sort = external_sort.ExternalSort(str(folder), 2)
  with sort:
    _add(sort, 2, keys, records)
    sort.state()
    with open(folder / "bucket-000", "r+b") as file:
      file.seek(40)
      file.write(b"?")
    with pytest.raises(OSError, match="bucket-000 is damaged"):
      list(sort.drain())


def test_several_may_drain_a_bucket_and_stop(tmp_path, monkeypatch):
  monkeypatch.setattr(external_sort, "_MEMORY_BYTES", 1000)
  keys, records = _records(200)
  expected = [records[i] for i in np.argsort(keys)]
  folder = tmp_path / "sort"
  with external_sort.ExternalSort(str(folder), 1) as sort:
    _add(sort, 1, keys, records)
    state = sort.state()
  drains = [
    external_sort.ExternalSort(str(folder), 1, state).drain(first)
    for first in (0, 70)
  ]
  pairs = [pair for _, pair in zip(range(100), zip(*drains))]
  assert pairs == list(zip(expected[:100], expected[70:170]))
  assert len(os.listdir(folder)) == 3
  for drain in drains:
    drain.close()
  assert os.listdir(folder) == ["bucket-000"]


def test_equal_keys_keep_their_order(tmp_path):
  keys = np.array([5, 3, 5, 3, 5])
  records = [b"a", b"", b"b", b"c", b"d"]
  assert _sorted(tmp_path / "sort", 4, keys, records, step=2) == [
    b"",
    b"c",
    b"a",
    b"b",
    b"d",
  ]


def test_nothing(tmp_path):
  assert _sorted(tmp_path / "sort", 4, np.zeros(0, np.int64), []) == []


def test_wrong_arguments(tmp_path):
  with pytest.raises(ValueError, match="3 buckets: must be a power of two"):
    external_sort.ExternalSort(str(tmp_path / "a"), 3)
  with pytest.raises(ValueError, match="2 keys for 1 records"):
    external_sort.pack_key(np.array([1, 2]), [b"a"], 1)


def test_number_of_buckets():
  mebibyte = 1 << 20
  assert external_sort.num_buckets(0) == 1
  assert external_sort.num_buckets(4 * mebibyte) == 1
  assert external_sort.num_buckets(4 * mebibyte + 1) == 2
  assert external_sort.num_buckets(9 * mebibyte) == 4
  assert external_sort.num_buckets(1 << 60) == 256


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
