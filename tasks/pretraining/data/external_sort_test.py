"""Tests of the order of records and of what is left on the disk."""

from __future__ import annotations

import os

import numpy as np
import pytest

from tasks.pretraining.data import external_sort


def _records(count, seed=0):
  rng = np.random.default_rng(seed)
  keys = rng.integers(1 << external_sort.KEY_BITS, size=count)
  return keys, [f"{key}:{'x' * (key % 50)}".encode() for key in keys.tolist()]


def _write(folder, num_buckets, keys, records, step=70):
  """Writes runs of `step` records and returns their paths."""
  paths = []
  for start in range(0, len(records), step):
    part = slice(start, start + step)
    paths.append(str(folder / f"run-{start:05d}"))
    external_sort.write_run(paths[-1], keys[part], records[part], num_buckets)
  return paths


@pytest.mark.parametrize("num_buckets", [1, 2, 16])
@pytest.mark.parametrize("step", [70, 500])
def test_order_is_that_of_the_keys(tmp_path, num_buckets, step):
  keys, records = _records(500)
  expected = [records[i] for i in np.argsort(keys)]
  paths = _write(tmp_path, num_buckets, keys, records, step)
  assert sorted(os.listdir(tmp_path)) == [os.path.basename(p) for p in paths]
  assert list(external_sort.read_sorted(paths, 0, num_buckets)) == expected
  counts = sum(external_sort.count_records(p, num_buckets) for p in paths)
  assert counts.sum() == 500
  if num_buckets > 1:
    rest = external_sort.read_sorted(paths, 1, num_buckets)
    assert list(rest) == expected[counts[0] :]


def test_equal_keys_keep_their_order(tmp_path):
  keys = np.array([5, 3, 5, 3, 5, 3], np.int64) << 60
  records = [b"a", b"b", b"c", b"d", b"e", b"f"]
  paths = _write(tmp_path, 4, keys, records, step=2)
  assert b"".join(external_sort.read_sorted(paths, 0, 4)) == b"bdface"


def test_discarded_buckets_free_their_space(tmp_path):
  keys, records = _records(800)
  expected = [records[i] for i in np.argsort(keys)]
  (path,) = _write(tmp_path, 8, keys, records, step=800)
  first = int(external_sort.count_records(path, 8)[:3].sum())
  before = os.path.getsize(path)
  external_sort.discard(path, 3, 8)
  # The keys are uniform: about 5/8 are left.
  assert 0.55 < os.path.getsize(path) / before < 0.7
  assert external_sort.first_intact_bucket(path, 8) == (3, True)
  assert list(external_sort.read_sorted([path], 3, 8)) == expected[first:]
  external_sort.discard(path, 1, 8)  # Nothing to do.
  assert external_sort.first_intact_bucket(path, 8) == (3, True)
  external_sort.discard(path, 8, 8)
  assert os.path.getsize(path) == external_sort.table_bytes(8)
  assert external_sort.first_intact_bucket(path, 8) == (8, True)
  assert external_sort.count_records(path, 8).sum() == 800


def test_damage_is_found(tmp_path):
  keys, records = _records(300)
  (path,) = _write(tmp_path, 4, keys, records, step=300)
  assert external_sort.first_intact_bucket(path, 4) == (0, True)
  content = (tmp_path / "run-00000").read_bytes()
  damaged = bytearray(content)
  damaged[-9] ^= 1  # The first bucket is the last in the file.
  (tmp_path / "run-00000").write_bytes(damaged)
  assert external_sort.first_intact_bucket(path, 4) == (1, False)
  with pytest.raises(OSError, match="run-00000 is damaged"):
    list(external_sort.read_sorted([path], 0, 4))
  (tmp_path / "run-00000").write_bytes(content[:-1])
  assert external_sort.first_intact_bucket(path, 4) == (1, True)


def test_no_records(tmp_path):
  paths = [str(tmp_path / "run")]
  external_sort.write_run(paths[0], np.zeros(0, np.int64), [], 4)
  assert external_sort.first_intact_bucket(paths[0], 4) == (0, True)
  assert list(external_sort.read_sorted(paths, 0, 4)) == []


def test_records_come_back():
  keys = np.array([5, 7, 6])
  records = [b"abc", b"", b"d"]
  packed = external_sort.Records.pack(keys, records)
  found, unpacked = packed.unpack()
  assert (found.tolist(), unpacked) == ([5, 7, 6], records)
  assert external_sort.Records(b"", b"", b"").unpack()[1] == []


@pytest.mark.parametrize(
  ("total_bytes", "min_buckets", "expected"),
  [
    (0, 1, (1 << 22, 1)),
    (1 << 22, 1, (1 << 22, 1)),
    ((1 << 22) + 1, 1, (1 << 22, 2)),
    (1 << 22, 40, (1 << 22, 64)),
    # 2^34 and 2^18 bytes: runs and buckets of 2^26.
    (1 << 34, 1, (1 << 26, 1 << 8)),
    (1 << 40, 1, (1 << 27, 1 << 13)),
  ],
)
def test_plan(total_bytes, min_buckets, expected):
  assert external_sort.plan(total_bytes, min_buckets) == expected


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
