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
import functools
import os
from typing import Callable

import numpy as np

import tfrecords
from tasks.pretraining.data import (
  build_worker,
  data_statistics,
  external_sort,
  pieces,
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


def build_split(
  job: build_worker.Job,
  name: str,
  duplicates: int,
  num_shards: int,
  output_dir: str,
  pool: worker_pool.WorkerPool,
  report: Callable[[Progress], None],
) -> tuple[list[tfrecords.Shard], data_statistics.ExampleCounts]:
  """Makes the runs and shards of a split that are missing or damaged.

  Args:
    job: what the workers know. The token store is finished.
    name: name of the split.
    duplicates: how many times each document is used.
    num_shards: number of shards.
    output_dir: folder of the dataset. A build that was killed while it was
      published has finished shards there.
    pool: workers.
    report: called with the progress after every run.

  Returns:
    The shards, and what was counted.

  Raises:
    ValueError: the documents give no example.
    OSError: the disk is full, or a file was changed by others.
  """
  paths = [
    os.path.join(job.folder, tfrecords.shard_name(name, index, num_shards))
    for index in range(num_shards)
  ]
  find = functools.partial(pieces.find_piece, moved_to=output_dir)
  shards = list(pool.map(find, paths))
  missing = [index for index, entry in enumerate(shards) if entry is None]

  sizes = job.estimate_bytes(job.store.token_counts()[job.split(name).numbers])
  runs = _plan_runs(job, name, duplicates, num_shards, sizes)
  num_buckets = runs[0].num_buckets
  counts = data_statistics.ExampleCounts(np.zeros(job.settings.ngram, np.int64))
  bucket_records = np.zeros(num_buckets, np.int64)
  first_buckets = []
  done = np.concatenate([[0], np.cumsum(sizes)])
  for run, finished in zip(runs, pool.map(build_worker.make_run, runs)):
    counts += finished.counts
    bucket_records += finished.bucket_records
    first_buckets.append(finished.first_bucket)
    _, duplicate, _, end = run.unit
    report(
      Progress(
        f"making {name} examples",
        duplicate * len(sizes) + end,
        counts.instances,
        counts.tokens,
        (duplicate * done[-1] + done[end]) / (duplicates * done[-1]),
      )
    )
  check_some(name, counts)

  # The places of the buckets and of the shards in the order.
  ends = np.cumsum(bucket_records)
  starts = np.concatenate([[0], ends])
  ranges = [
    shard_range(int(ends[-1]), i, num_shards) for i in range(num_shards)
  ]

  def bucket_of(place: int) -> int:
    return int(np.searchsorted(ends, place, "right"))

  if missing:
    needed = bucket_of(ranges[missing[0]][0])
    incomplete = [r for r, first in zip(runs, first_buckets) if first > needed]
    for _ in pool.map(build_worker.remake_run, incomplete):
      pass
  tasks = (
    build_worker.ShardTask(
      paths[index],
      [run.path for run in runs],
      num_buckets,
      bucket_of(first),
      first - int(starts[bucket_of(first)]),
      end - first,
    )
    for index, (first, end) in enumerate(ranges)
    if index in missing
  )
  for index, entry in zip(missing, pool.map(build_worker.write_shard, tasks)):
    shards[index] = entry
    # The shards before this one are finished, as they are written in order.
    for run in runs:
      external_sort.discard(run.path, bucket_of(ranges[index][1]), num_buckets)
  return [tfrecords.Shard(**entry) for entry in shards], counts


def _plan_runs(
  job: build_worker.Job,
  name: str,
  duplicates: int,
  num_shards: int,
  sizes: np.ndarray,
) -> list[build_worker.Run]:
  """Cuts the work into runs, given the estimated bytes of each document."""
  folder = os.path.join(job.folder, f"{name}-runs")
  os.makedirs(folder, exist_ok=True)
  plan = external_sort.plan(duplicates * int(sizes.sum()), num_shards)
  return [
    build_worker.Run(
      build_worker.Unit(name, duplicate, first, end),
      os.path.join(folder, f"{duplicate:05d}-{first:09d}"),
      plan.num_buckets,
    )
    for duplicate in range(duplicates)
    for first, end in build_worker.cut(sizes, plan.run_bytes)
  ]
