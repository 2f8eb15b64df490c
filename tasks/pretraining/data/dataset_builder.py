"""Builds a folder of pretraining records from text files.

    text --tokenize--> token store --make_run--> sorted runs --write_shard-->
    shards, manifest

There are two passes. First, all text is tokenized into a store on disk. Then
the examples of each duplicate of each document are made and put in a random
global order. The same input, settings and seed give the same bytes for any
number of workers. The work is done in a folder inside the output folder, and
the results are moved into place at the end, the manifest last. With the same
settings, a killed build resumes and gives the same bytes; see `output_folder`.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
from typing import Any, Callable, Iterator, Mapping, NamedTuple, Sequence

import numpy as np

import tfrecords
from official_albert import distribution
from tasks.pretraining.data import (
  build_worker,
  data_statistics,
  documents,
  external_sort,
  output_folder,
  token_store,
  worker_pool,
)

_BLOCKS_PER_CHUNK = 64  # About 16 MB of text.


class Progress(NamedTuple):
  """The progress of a build; `fraction` is the progress within the phase."""

  phase: str
  documents: int
  instances: int
  tokens: int
  fraction: float


_Report = Callable[[Progress], None]


def build_dataset(
  settings: build_worker.BuildSettings, report: _Report = lambda progress: None
) -> tfrecords.Manifest:
  """Builds a dataset, or resumes an unfinished build.

  `report` is called after every piece of work. Returns the written manifest.

  Raises:
    FileNotFoundError: an input or model file is missing.
    ValueError: a setting or the input is invalid.
    OSError: the output folder cannot be written.
  """
  paths = documents.find_files(settings.input_files)
  reader = documents.DocumentReader(paths, settings.reading)
  staging = output_folder.staging_path(settings.output_dir)
  job = build_worker.Job(settings, staging)
  tokenizer = job.tokenizer  # Raises an error before any work.
  with worker_pool.WorkerPool(
    settings.num_workers or distribution.cpu_count(), build_worker.set_job, job
  ) as pool:
    folder = output_folder.staging_folder(
      settings.output_dir,
      settings.overwrite,
      settings.fingerprint(paths, tokenizer.sha256),
    )
    with folder, pool:  # The workers end before the folder is removed.
      skipped = _tokenize(pool, job, reader, report)
      numbers = token_store.split_documents(
        len(job.store),
        settings.heldout_share,
        settings.random_seed,
        settings.examples.sentence_pair,
      )
      for name, values in numbers.items():
        np.save(job.split_file(name), values)
      splits = {
        name: _build_split(pool, job, name, report) for name in settings.splits
      }
      build_worker.set_job(None)
      manifest = make_manifest(job, paths, splits, skipped)
      output_folder.publish(settings.output_dir, manifest, tokenizer.model_file)
  return manifest


def make_split(
  job: build_worker.Job,
  name: str,
  shards: Sequence[Mapping[str, Any]],
  counts: data_statistics.Counts,
) -> tfrecords.Split:
  """Returns the manifest's entry of a split; used by both engines.

  Raises:
    ValueError: there are no examples.
  """
  if not counts.instances:
    raise ValueError(
      f"the {name} documents give no example, because each of them is a "
      "single word: put one sentence on a line, and blank lines only between "
      "documents."
    )
  return tfrecords.Split(
    tuple(tfrecords.Shard(**shard) for shard in shards),
    {
      **data_statistics.summarize_text(
        counts, job.vocabulary.special_ids, job.tokenizer.unk_id
      ),
      **data_statistics.summarize_examples(counts),
    },
  )


def make_manifest(
  job: build_worker.Job,
  input_files: Sequence[str],
  splits: Mapping[str, tfrecords.Split],
  skipped: documents.Skipped,
) -> tfrecords.Manifest:
  """Returns the manifest of a dataset; used by both engines."""
  settings, tokenizer = job.settings, job.tokenizer
  masking_ids = {}
  if settings.examples.masking == "dynamic":  # Training needs them.
    masking_ids = {
      "mask_id": job.vocabulary.mask_id,
      "special_ids": sorted(job.vocabulary.special_ids),
    }
  return tfrecords.Manifest(
    task="pretraining",
    max_seq_length=settings.examples.max_seq_length,
    max_predictions_per_seq=settings.examples.max_predictions_per_seq,
    features=job.schema,
    tokenizer=tfrecords.TokenizerInfo(
      tokenizer.sha256,
      tokenizer.vocab_size,
      tokenizer.lower_case,
      tokenizer.kind,
    ),
    settings={
      **settings.content(input_files),
      **masking_ids,
      "skipped_documents": dataclasses.asdict(skipped),
    },
    random_seed=settings.random_seed,
    splits=splits,
  )


def _tokenize(
  pool: worker_pool.WorkerPool,
  job: build_worker.Job,
  reader: documents.DocumentReader,
  report: _Report,
) -> documents.Skipped:
  """Fills the token store and returns the skipped documents."""
  os.makedirs(job.store_folder, exist_ok=True)
  path_of = functools.partial(token_store.chunk_path, job.store_folder)
  started = itertools.takewhile(
    lambda path: os.path.exists(f"{path}.json"), map(path_of, itertools.count())
  )
  chunks = dict(enumerate(pool.map(output_folder.find_piece, started)))

  def missing_blocks() -> Iterator[documents.Block]:
    # All blocks are read, because seeking in compressed files is complicated.
    for number, block in enumerate(reader.blocks()):
      if not chunks.get(number // _BLOCKS_PER_CHUNK):
        yield block

  made = pool.map(build_worker.tokenize, missing_blocks())
  tally = documents.Tally()
  number = num_documents = num_tokens = 0
  while tally.finished_files < reader.num_files:
    chunk = chunks.get(number)
    if not chunk:
      parts = []
      for part, outcome in itertools.islice(made, _BLOCKS_PER_CHUNK):
        tally.add(outcome, job.settings.reading)
        parts.append(part)
        num_documents += len(part)
        num_tokens += len(part.ids)
        fraction = reader.bytes_read / max(1, reader.total_bytes)
        report(Progress("tokenizing", num_documents, 0, num_tokens, fraction))
      path = path_of(number)
      token_store.write_chunk(path, parts)
      chunk = {
        "tally": dataclasses.asdict(tally),
        "documents": num_documents,
        "tokens": num_tokens,
      }
      output_folder.finish_piece(path, chunk)
    # The sums up to the end of the chunk.
    tally = documents.Tally.from_json(chunk["tally"])
    num_documents, num_tokens = chunk["documents"], chunk["tokens"]
    number += 1
  return tally.skipped


def shard_range(
  num_records: int, index: int, num_shards: int
) -> tuple[int, int]:
  """Returns the first record of a shard and the one after its last.

  Shards differ by at most one record. The larger shards come first.
  """
  size, larger = divmod(num_records, num_shards)
  first = index * size + min(index, larger)
  return first, first + size + (index < larger)


def _build_split(
  pool: worker_pool.WorkerPool,
  job: build_worker.Job,
  name: str,
  report: _Report,
) -> tfrecords.Split:
  """Makes the runs and shards of a split that are missing or damaged.

  Runs are sorted by a random key, and the shards are read from all runs in the
  order of the keys. The records of finished shards are cut off the runs, so the
  examples take disk space only once. If such a shard is found damaged later,
  the runs are made again, but the other shards are not.
  """
  duplicates, num_shards = job.settings.splits[name]
  paths = [
    os.path.join(job.folder, tfrecords.shard_name(name, index, num_shards))
    for index in range(num_shards)
  ]
  # A build that was killed while it was published has finished shards there.
  find = functools.partial(
    output_folder.find_piece, moved_to=job.settings.output_dir
  )
  shards = list(pool.map(find, paths))
  missing = [index for index, entry in enumerate(shards) if entry is None]

  sizes = job.estimate_bytes(job.store.token_counts()[job.splits[name].numbers])
  runs = _plan_runs(job, name, duplicates, num_shards, sizes)
  num_buckets = runs[0].num_buckets
  counts = data_statistics.Counts()
  bucket_records = np.zeros(num_buckets, np.int64)
  done = np.concatenate([[0], np.cumsum(sizes)])
  old_runs = []
  made = pool.map(build_worker.make_run, runs)
  for run, (run_counts, run_records, is_new) in zip(runs, made):
    counts += run_counts
    bucket_records += run_records
    if not is_new:
      old_runs.append(run)
    report(
      Progress(
        f"making {name} examples",
        run.duplicate * len(sizes) + run.end,
        counts.instances,
        counts.tokens,
        (run.duplicate + done[run.end] / done[-1]) / duplicates,
      )
    )
  # The places of the buckets and of the shards in the order.
  ends = np.cumsum(bucket_records)
  starts = np.concatenate([[0], ends])
  ranges = [
    shard_range(int(ends[-1]), i, num_shards) for i in range(num_shards)
  ]
  buckets = np.searchsorted(ends, [first for first, _ in ranges], "right")
  if missing:
    repairs = [(run, buckets[missing[0]]) for run in old_runs]
    for _ in pool.map(build_worker.repair_run, repairs):
      pass
  tasks = (
    build_worker.ShardTask(
      paths[index],
      [run.path for run in runs],
      num_buckets,
      int(buckets[index]),
      int(ranges[index][0] - starts[buckets[index]]),
      ranges[index][1] - ranges[index][0],
    )
    for index in missing
  )
  for index, entry in zip(missing, pool.map(build_worker.write_shard, tasks)):
    shards[index] = entry
    # The shards before this one are finished, as they are written in order.
    end = int(np.searchsorted(ends, ranges[index][1], "right"))
    for run in runs:
      external_sort.discard(run.path, end)
  return make_split(job, name, shards, counts)


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
  run_bytes, num_buckets = external_sort.plan(
    duplicates * int(sizes.sum()), num_shards
  )
  return [
    build_worker.Run(
      name,
      duplicate,
      first,
      end,
      os.path.join(
        folder, f"{duplicate:05d}-{first:09d}-{end:09d}-{num_buckets}"
      ),
      num_buckets,
    )
    for duplicate in range(duplicates)
    for first, end in build_worker.cut(sizes, run_bytes)
  ]
