"""Tests of runs of examples and of the order of their records."""

from __future__ import annotations

import os

import numpy as np
import pytest

from official_albert.tasks.pretraining.data import example_runs

_END = 1 << example_runs.KEY_BITS


def _write_runs(folder, count, step):
  """Writes runs of `step` records; returns the runs and all, sorted."""
  rng = np.random.default_rng(0)
  keys = rng.integers(_END, size=count)
  keys[: count // 2] = keys[: count // 2] >> 60 << 60  # Many are equal.
  keys[:1], keys[-1:] = 0, _END - 1
  records = [f"{key}:{'x' * (key % 50)}".encode() for key in keys.tolist()]
  runs = []
  for start in range(0, max(1, count), step):
    part = slice(start, start + step)
    path = str(folder / f"run-{start:05d}")
    example_runs.write_run(path, keys[part], records[part], {"first": start})
    runs.append(example_runs.Run.open(path))
    assert runs[-1].note == {"first": start}
  return runs, sorted(zip(keys.tolist(), records))


@pytest.mark.parametrize("read_bytes", [100, 1 << 26])
@pytest.mark.parametrize(("count", "step"), [(500, 70), (500, 500), (0, 1)])
def test_shards_are_ranges_of_the_order(
  tmp_path, monkeypatch, count, step, read_bytes
):
  monkeypatch.setattr(example_runs, "_READ_BYTES", read_bytes)
  runs, expected = _write_runs(tmp_path, count, step)
  for num_shards in (1, 3, 8):
    found = []
    edges = [example_runs.first_key(i, num_shards) for i in range(num_shards)]
    for index, (first, end) in enumerate(zip(edges, [*edges[1:], _END])):
      records = list(example_runs.read_sorted(runs, first, end))
      keys = [key for key, record in expected if record in records]
      shards = example_runs.shard_of(np.array(keys, np.int64), num_shards)
      assert set(shards.tolist()) <= {index}
      found += records
    assert found == [record for _, record in expected]


def test_discarded_records_free_their_space(tmp_path):
  (run,), expected = _write_runs(tmp_path, 800, step=800)
  edge = example_runs.first_key(3, 8)
  before = os.path.getsize(run.path)
  for first in (edge, 0):  # The second has nothing to do.
    run.discard(first)
    # The index stays, with 16 bytes for each record.
    left = os.path.getsize(run.path) - run.start
    assert 0.5 < left / (before - run.start) < 0.75
  rest = list(example_runs.read_sorted([run], edge, _END))
  assert rest == [record for key, record in expected if key >= edge]
  with pytest.raises(OSError, match="run-00000 is damaged"):
    list(example_runs.read_sorted([run], 0, _END))
  run.discard(_END)
  assert os.path.getsize(run.path) == run.start


def test_size_of_runs():
  assert example_runs.run_bytes(0) == 1 << 22
  # 2^34 and 2^18 bytes: runs of 2^26.
  assert example_runs.run_bytes(1 << 34) == 1 << 26
  assert example_runs.run_bytes(1 << 40) == 1 << 27
