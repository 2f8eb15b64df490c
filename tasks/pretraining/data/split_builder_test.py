"""Tests of how records are dealt out and counts kept.

Whole builds are in dataset_builder_test.py, kills in restart_test.py.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from tasks.pretraining.data import data_statistics, split_builder


@pytest.mark.parametrize(
  ("records", "shards"), [(0, 3), (2, 5), (7, 1), (23, 5), (25, 5)]
)
def test_shards_take_every_record_once_and_differ_by_one(records, shards):
  ranges = [
    split_builder.shard_range(records, index, shards) for index in range(shards)
  ]
  assert [i for first, end in ranges for i in range(first, end)] == list(
    range(records)
  )
  sizes = [end - first for first, end in ranges]
  assert max(sizes) - min(sizes) <= 1
  assert sizes == sorted(sizes, reverse=True)


def test_counts_come_back_from_json():
  counts = data_statistics.ExampleCounts(
    np.array([5, 2, 1]), instances=3, tokens=70
  )
  value = json.loads(json.dumps(counts.to_json()))
  again = data_statistics.ExampleCounts.from_json(value)
  assert again.ngrams.tolist() == [5, 2, 1]
  assert again.ngrams.dtype == np.int64
  assert (again.instances, again.tokens, again.slots) == (3, 70, 0)
  total = again + counts
  assert (total.ngrams.tolist(), total.tokens) == ([10, 4, 2], 140)
  assert (counts.ngrams.tolist(), counts.tokens) == ([5, 2, 1], 70)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
