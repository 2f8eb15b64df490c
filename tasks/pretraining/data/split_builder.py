"""Builds the shards of one split from the token store.

Examples are made in runs, which are sorted by a random key, and the shards are
read from all runs in the order of the keys. Intact runs and shards of a build
that was killed are kept. When shards are finished, their records are cut off
the runs, so the examples need their space on the disk once and not twice. If a
shard is found damaged after that, the runs are made again, but no other shard
is.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Callable, Optional

import numpy as np

import tfrecords
from tasks.pretraining.data import (
  build_worker,
  data_statistics,
  external_sort,
  output_folder,
  worker_pool,
)


@dataclasses.dataclass(frozen=True)
class Progress:
  """The progress of a build; `fraction` is that of the phase."""

  phase: str
  documents: int
  instances: int
  tokens: int
  fraction: float


def shard_range(
  num_records: int, index: int, num_shards: int
) -> tuple[int, int]:
  """Returns the first record of a shard and the one after its last.

  Shards differ by at most one record. The larger shards come first.
  """
  size, larger = divmod(num_records, num_shards)
  first = index * size + min(index, larger)
  return first, first + size + (index < larger)


def check_some(split: str, counts: data_statistics.ExampleCounts) -> None:
  """Raises ValueError for a split without examples."""
  if not counts.instances:
    raise ValueError(
      f"the {split} documents give no example, because each of them is a "
      "single word: put one sentence on a line, and blank lines only between "
      "documents."
    )


class SplitBuilder:
  """Builds one split; the token store is finished."""

  def __init__(
    self,
    job: build_worker.Job,
    name: str,
    duplicates: int,
    num_shards: int,
    output_dir: str,
    pool: worker_pool.WorkerPool,
    report: Callable[[Progress], None],
  ):
    """Plans the work.

    Args:
      job: what the workers know.
      name: name of the split.
      duplicates: how many times each document is used.
      num_shards: number of shards.
      output_dir: folder of the dataset. A build that was killed while it was
        published has finished shards there.
      pool: workers.
      report: called with the progress after every run.
    """
    self._name = name
    self._output_dir = output_dir
    self._pool = pool
    self._report = report
    self._paths = [
      os.path.join(job.folder, tfrecords.shard_name(name, index, num_shards))
      for index in range(num_shards)
    ]
    numbers = job.split(name).numbers
    sizes = job.estimate_bytes(job.store.token_counts()[numbers])
    self._ends = np.cumsum(sizes)
    self._duplicates = duplicates
    plan = external_sort.plan(duplicates * int(self._ends[-1]), num_shards)
    self._num_buckets = plan.num_buckets
    folder = os.path.join(job.folder, f"{name}-runs")
    os.makedirs(folder, exist_ok=True)
    self._runs = [
      build_worker.Run(
        build_worker.Unit(name, duplicate, first, end),
        os.path.join(folder, f"{duplicate:05d}-{first:09d}"),
        plan.num_buckets,
      )
      for duplicate in range(duplicates)
      for first, end in build_worker.cut(sizes, plan.run_bytes)
    ]

  def build(
    self,
  ) -> tuple[tuple[tfrecords.Shard, ...], data_statistics.ExampleCounts]:
    """Makes the runs and shards that are missing or damaged.

    Returns:
      The shards, and what was counted.

    Raises:
      ValueError: the documents give no example.
      OSError: the disk is full, or a file was changed by others.
    """
    shards = self._find_shards()
    missing = [index for index, entry in enumerate(shards) if entry is None]
    counts, ends, first_buckets = self._make_runs()
    check_some(self._name, counts)
    if missing:
      first, _ = self._range(ends, missing[0])
      needed = np.searchsorted(ends, first, "right")
      incomplete = [
        run for run, at in zip(self._runs, first_buckets) if at > needed
      ]
      for _ in self._pool.map(build_worker.remake_run, incomplete):
        pass
    tasks = (self._shard_task(ends, index) for index in missing)
    written = self._pool.map(build_worker.write_shard, tasks)
    for index, entry in zip(missing, written):
      shards[index] = entry
      # The shards before this one are finished, as they are written in order.
      _, end = self._range(ends, index)
      bucket = int(np.searchsorted(ends, end, "right"))
      for run in self._runs:
        external_sort.discard(run.path, bucket, self._num_buckets)
    return tuple(tfrecords.Shard(**entry) for entry in shards), counts

  def _find_shards(self) -> list[Optional[dict[str, Any]]]:
    """Returns the entry of each finished shard, None for the others."""
    places = [
      (path, output_folder.locate(path, self._output_dir))
      for path in self._paths
    ]
    return list(self._pool.map(build_worker.find_shard, places))

  def _make_runs(
    self,
  ) -> tuple[data_statistics.ExampleCounts, np.ndarray, list[int]]:
    """Makes all runs.

    Returns:
      What was counted; for each bucket the number of records up to its end,
      <int64>[num_buckets]; the first bucket that each run still has.
    """
    counts: Optional[data_statistics.ExampleCounts] = None
    bucket_records = np.zeros(self._num_buckets, np.int64)
    first_buckets = []
    total = self._duplicates * int(self._ends[-1])
    made = self._pool.map(build_worker.make_run, self._runs)
    for run, finished in zip(self._runs, made):
      counts = counts + finished.counts if counts else finished.counts
      bucket_records += finished.bucket_records
      first_buckets.append(finished.first_bucket)
      unit = run.unit
      done = unit.duplicate * int(self._ends[-1]) + int(
        self._ends[unit.end - 1]
      )
      self._report(
        Progress(
          f"making {self._name} examples",
          unit.duplicate * len(self._ends) + unit.end,
          counts.instances,
          counts.tokens,
          done / total,
        )
      )
    return counts, np.cumsum(bucket_records), first_buckets

  def _range(self, ends: np.ndarray, index: int) -> tuple[int, int]:
    return shard_range(int(ends[-1]), index, len(self._paths))

  def _shard_task(self, ends: np.ndarray, index: int) -> build_worker.ShardTask:
    """Describes a shard, given the end of each bucket in the order."""
    first, end = self._range(ends, index)
    bucket = int(np.searchsorted(ends, first, "right"))
    before = int(ends[bucket - 1]) if bucket else 0
    return build_worker.ShardTask(
      self._paths[index],
      bucket,
      first - before,
      end - first,
      [run.path for run in self._runs],
      self._num_buckets,
    )
