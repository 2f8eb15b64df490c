"""Tests of the order of records and of what is left on the disk."""

from __future__ import annotations

import os

import numpy as np
import pytest

from tasks.pretraining.data import external_sort


def _records(count):
  rng = np.random.default_rng(0)
  keys = rng.integers(1 << external_sort.KEY_BITS, size=count)
  return keys, [f"{key}:{'x' * (key % 50)}".encode() for key in keys.tolist()]


def _write(folder, num_buckets, keys, records, step):
  """Writes runs of `step` records and returns their paths."""
  paths = []
  for start in range(0, max(1, len(records)), step):
    part = slice(start, start + step)
    paths.append(str(folder / f"run-{start:05d}"))
    external_sort.write_run(paths[-1], keys[part], records[part], num_buckets)
  return paths


@pytest.mark.parametrize("num_buckets", [1, 2, 16])
@pytest.mark.parametrize(("count", "step"), [(500, 70), (500, 500), (0, 1)])
def test_order_is_that_of_the_keys(tmp_path, num_buckets, count, step):
  keys, records = _records(count)
  expected = [records[i] for i in np.argsort(keys)]
  paths = _write(tmp_path, num_buckets, keys, records, step)
  assert list(external_sort.read_sorted(paths, 0, num_buckets)) == expected
  counts = sum(external_sort.count_records(path) for path in paths)
  assert counts.sum() == count
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
  first = int(external_sort.count_records(path)[:3].sum())
  before = os.path.getsize(path)
  for end in (3, 1):  # The second has nothing to do.
    external_sort.discard(path, end)
    # The keys are uniform: about 5/8 are left.
    assert 0.55 < os.path.getsize(path) / before < 0.7
    assert external_sort.is_cut(path)
    assert external_sort.is_intact(path, 3)
    assert not external_sort.is_intact(path, 2)
  assert list(external_sort.read_sorted([path], 3, 8)) == expected[first:]
  external_sort.discard(path, 8)
  assert os.path.getsize(path) == 0
  assert external_sort.is_cut(path) and external_sort.is_intact(path, 8)
  assert external_sort.count_records(path).sum() == 800


def test_damage_is_found(tmp_path):
  keys, records = _records(300)
  (path,) = _write(tmp_path, 4, keys, records, step=300)
  assert external_sort.is_intact(path, 0) and not external_sort.is_cut(path)
  content = (tmp_path / "run-00000").read_bytes()
  flipped = bytearray(content)
  flipped[-9] ^= 1  # The first bucket is the last in the file.
  for damaged in (flipped, content[:-1]):
    (tmp_path / "run-00000").write_bytes(damaged)
    assert not external_sort.is_intact(path, 0)
    assert external_sort.is_intact(path, 1) and not external_sort.is_cut(path)
    with pytest.raises(OSError, match="run-00000 is damaged"):
      list(external_sort.read_sorted([path], 0, 4))
  os.remove(path)
  assert not external_sort.is_intact(path, 0) and not external_sort.is_cut(path)


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
