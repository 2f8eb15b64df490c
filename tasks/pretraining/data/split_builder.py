"""The examples of a split: made, put in order, dealt out to shards.

After a kill, work that had reached the bucket files is not done again, and
finished, undamaged shards stay as they are. A bucket file goes when all shards
with its records are finished, so that the examples take their size on the disk
once and not twice; if a shard is found damaged after that, the examples are
made again, but no other shard is written.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from typing import Any, Callable, Iterator, Mapping

import numpy as np

import tfrecords
from official_albert import files
from tasks.pretraining.data import (
  build_journal,
  build_worker,
  data_statistics,
  output_folder,
  worker_pool,
)

# The journal's format has to change with these two: a build would go on with
# other pieces of work or other files.
_UNIT_TOKENS = 1 << 16  # Of text that a worker makes examples of at once.
# Generous: a full sequence of 512 takes 5.3 bytes a token, a short one more.
_BYTES_PER_TOKEN = 8


@dataclasses.dataclass(frozen=True)
class Progress:
  """How far a run has come; `fraction` is of the phase."""

  phase: str
  documents: int
  instances: int
  tokens: int
  fraction: float


class SplitBuilder:
  """Builds one split; the token store is finished.

  Two entries of the journal belong to it: what is made, and which shards are
  written.
  """

  def __init__(
    self,
    job: build_worker.Job,
    name: str,
    duplicates: int,
    num_shards: int,
    journal: build_journal.Journal,
    output_dir: str,
  ):
    """Looks at nothing yet.

    Args:
      job: what the workers know.
      name: of the split.
      duplicates: times that each document is used.
      num_shards: files to deal the examples out to.
      journal: of what is finished.
      output_dir: of the dataset; a build that was killed while it was put in
        place has finished shards there.
    """
    self._job = job
    self._name = name
    self._duplicates = duplicates
    self._num_shards = num_shards
    self._journal = journal
    self._output_dir = output_dir
    self._made_entry = f"{name} examples"
    self._shards_entry = f"{name} shards"
    self._doc_tokens = job.store.token_counts[job.split(name).numbers]
    self._total = duplicates * int(self._doc_tokens.sum())
    self._order_folder = os.path.join(job.folder, f"{name}-buckets")
    self._num_buckets = tfrecords.num_buckets(self._total * _BYTES_PER_TOKEN)

  def build(
    self, pool: worker_pool.WorkerPool, report: Callable[[Progress], None]
  ) -> tuple[tuple[tfrecords.Shard, ...], data_statistics.ExampleCounts]:
    """Does what is left to do.

    Args:
      pool: that makes the examples.
      report: called with the progress after every piece of work.

    Returns:
      The shards, and what was counted.

    Raises:
      ValueError: the documents give no example.
      OSError: the disk is full, or a file was changed by others.
    """
    shards = self._finished_shards()
    missing = [i for i in range(self._num_shards) if i not in shards]
    made = self._journal.get(self._made_entry) or self._nothing_made()
    order = self._order(made)
    if missing or not made["is_whole"]:
      first = 0
      if made["is_whole"]:
        first, _ = shard_range(len(order), missing[0], self._num_shards)
      if not order.holds_from(first):
        # Finished shards take their buckets with them.
        finished = self._journal.get(self._shards_entry) or {}
        if made["units"] and not any(str(i) in finished for i in missing):
          build_journal.report_damage(self._order_folder)
        made = self._nothing_made()
        order = self._order(made)
      with order:
        if not made["is_whole"]:
          made = self._make(pool, order, made, report)
        self._write_shards(pool, order, shards, missing)
    return (
      tuple(
        tfrecords.Shard(**shards[index]["shard"])
        for index in range(self._num_shards)
      ),
      counts_from_json(made["counts"]),
    )

  def _finished_shards(self) -> dict[int, dict[str, Any]]:
    """Those that the journal names and whose bytes are as it says."""
    entry = self._journal.get(self._shards_entry) or {}
    finished = {}
    for index, value in entry.items():
      path = output_folder.find(
        self._journal, self._output_dir, value["shard"]["file"]
      )
      if (
        os.path.isfile(path)
        and os.path.getsize(path) == value["shard"]["bytes"]
        and files.sha256(path) == value["sha256"]
      ):
        finished[int(index)] = value
      else:
        build_journal.report_damage(path)
    return finished

  def _nothing_made(self) -> dict[str, Any]:
    """The journal's entry on the examples, at their beginning."""
    counts = data_statistics.ExampleCounts(
      np.zeros(self._job.settings.ngram, np.int64)
    )
    return {
      "units": 0,
      "is_whole": False,
      "counts": counts_to_json(counts),
      "buckets": None,
    }

  def _order(self, made: Mapping[str, Any]) -> tfrecords.ExternalSort:
    return tfrecords.ExternalSort(
      self._order_folder, self._num_buckets, made["buckets"]
    )

  def _make(
    self,
    pool: worker_pool.WorkerPool,
    order: tfrecords.ExternalSort,
    made: Mapping[str, Any],
    report: Callable[[Progress], None],
  ) -> dict[str, Any]:
    """Puts the examples of all units that are left into buckets."""
    counts = counts_from_json(made["counts"])
    num_done = made["units"]

    def note(is_whole: bool) -> dict[str, Any]:
      entry = {
        "units": num_done,
        "is_whole": is_whole,
        "counts": counts_to_json(counts),
        "buckets": order.state(),
      }
      self._journal.put(self._made_entry, entry)
      return entry

    ends = np.cumsum(self._doc_tokens)
    units = itertools.islice(self._units(ends), num_done, None)
    for unit, parts, unit_counts in pool.map(build_worker.make, units):
      order.add(parts)
      counts.add(unit_counts)
      num_done += 1
      if self._journal.is_due():
        note(is_whole=False)
      done = unit.duplicate * int(ends[-1]) + int(ends[unit.end - 1])
      report(
        Progress(
          f"making {self._name} examples",
          unit.duplicate * len(ends) + unit.end,
          counts.instances,
          counts.tokens,
          done / self._total,
        )
      )
    check_some(self._name, counts)
    return note(is_whole=True)

  def _units(self, ends: np.ndarray) -> Iterator[build_worker.Unit]:
    """Pieces of work of about `_UNIT_TOKENS`, of whole documents.

    Args:
      ends: <int64>[documents], the tokens up to the end of each.
    """
    edges = [0]
    while edges[-1] < len(ends):
      done = ends[edges[-1] - 1] if edges[-1] else 0
      end = int(np.searchsorted(ends, done + _UNIT_TOKENS)) + 1
      edges.append(min(end, len(ends)))
    for duplicate in range(self._duplicates):
      for first, end in zip(edges, edges[1:]):
        yield build_worker.Unit(
          self._name, duplicate, first, end, self._num_buckets
        )

  def _write_shards(
    self,
    pool: worker_pool.WorkerPool,
    order: tfrecords.ExternalSort,
    shards: dict[int, dict[str, Any]],
    missing: list[int],
  ) -> None:
    """Writes what is missing of the shards."""
    state = order.state()
    bucket_ends = np.cumsum(state["records"])
    ranges = {
      index: shard_range(len(order), index, self._num_shards)
      for index in missing
    }

    def place(item: tuple[int, int]) -> tuple[int, int]:
      position, index = item
      bucket = np.searchsorted(bucket_ends, ranges[index][0], "right")
      return index - position, int(bucket)

    # Neighbours that begin in the same bucket: it is read for all at once.
    runs = [
      [index for _, index in group]
      for _, group in itertools.groupby(enumerate(missing), place)
    ]
    jobs = [
      build_worker.Shards(
        self._order_folder,
        state,
        ranges[run[0]][0],
        [self._shard_path(index) for index in run],
        [end - first for first, end in map(ranges.get, run)],
      )
      for run in runs
    ]
    for run, written in zip(runs, pool.map(build_worker.write_shards, jobs)):
      shards.update(zip(run, written))
      self._journal.put(self._shards_entry, shards)
      # Those before it are finished too: the missing ones are in order.
      order.discard(ranges[run[-1]][1])

  def _shard_path(self, index: int) -> str:
    name = tfrecords.shard_name(self._name, index, self._num_shards)
    return os.path.join(self._job.folder, name)


def shard_range(
  num_records: int, index: int, num_shards: int
) -> tuple[int, int]:
  """The records of a shard, first..end - 1, in the order of their keys.

  Shards differ by one record at most, the larger ones first.
  """
  size, larger = divmod(num_records, num_shards)
  first = index * size + min(index, larger)
  return first, first + size + (index < larger)


def check_some(split: str, counts: data_statistics.ExampleCounts) -> None:
  """Raises ValueError for a split without examples."""
  if not counts.instances:
    raise ValueError(
      f"the {split} documents give no example, for each of them is a single "
      "word: one sentence a line and blank lines between documents only."
    )


def counts_to_json(counts: data_statistics.ExampleCounts) -> dict[str, Any]:
  """The counts as JSON values."""
  return {
    field.name: np.asarray(getattr(counts, field.name)).tolist()
    for field in dataclasses.fields(counts)
  }


def counts_from_json(
  value: Mapping[str, Any],
) -> data_statistics.ExampleCounts:
  """The counts that `counts_to_json` was given."""
  return data_statistics.ExampleCounts(
    **{
      name: np.array(count, np.int64) if isinstance(count, list) else count
      for name, count in value.items()
    }
  )
