"""Tests of the order of records and of what is left on the disk."""

from __future__ import annotations

import os

import numpy as np
import pytest

from tfrecords import external_sort


def _records(count, seed=0):
  rng = np.random.default_rng(seed)
  keys = rng.integers(1 << external_sort.KEY_BITS, size=count)
  return keys, [f"{key}:{'x' * (key % 50)}".encode() for key in keys.tolist()]


def _sorted(folder, buckets, keys, records, step=7):
  with external_sort.ExternalSort(str(folder), buckets) as sort:
    for start in range(0, len(records), step):
      part = slice(start, start + step)
      sort.add(keys[part], records[part])
    assert len(sort) == len(records)
    return list(sort.drain())


@pytest.mark.parametrize("buckets", [1, 2, 16])
def test_order_is_that_of_the_keys_for_any_number_of_buckets(tmp_path, buckets):
  keys, records = _records(500)
  expected = [records[i] for i in np.argsort(keys)]
  folder = tmp_path / "sort"
  assert _sorted(folder, buckets, keys, records) == expected
  assert os.listdir(folder) == []


def test_random_keys_fill_all_buckets(tmp_path):
  keys, records = _records(800)
  folder = tmp_path / "sort"
  with external_sort.ExternalSort(str(folder), 8) as sort:
    sort.add(keys, records)
    next(sort.drain())
    assert len(os.listdir(folder)) == 7  # The first one has been read.
    assert all(os.path.getsize(path) for path in folder.iterdir())


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
  sort = external_sort.ExternalSort(str(tmp_path / "b"), 1)
  with sort, pytest.raises(ValueError, match="2 keys for 1 records"):
    sort.add(np.array([1, 2]), [b"a"])


def test_number_of_buckets():
  mebibyte = 1 << 20
  assert external_sort.num_buckets(0) == 1
  assert external_sort.num_buckets(64 * mebibyte) == 1
  assert external_sort.num_buckets(64 * mebibyte + 1) == 2
  assert external_sort.num_buckets(129 * mebibyte) == 4
  assert external_sort.num_buckets(1 << 60) == 256


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
