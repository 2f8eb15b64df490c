"""Builds a folder of pretraining records from text files.

    text --tokenize--> token store --make_run--> sorted runs --write_shard-->
    shards, manifest

There are two passes. First, all text is tokenized into a store on disk. Then
the examples of each duplicate of each document are made and put in a random
global order. The same input, settings and seed give the same bytes for any
number of workers. The work is done in a local folder, and the results are moved
into place at the end, the manifest last. With the same settings, a killed build
resumes and gives the same bytes; see `output_folder`. Only the calling process
reads and writes gs:// addresses, so the workers load no TensorFlow.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import itertools
import multiprocessing
import multiprocessing.connection
import multiprocessing.pool
import os
import queue
import shutil
import signal
import sys
import threading
import traceback
from concurrent import futures
from multiprocessing import reduction, resource_tracker
from typing import Any, Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from official_albert import files, machine, tfrecords
from official_albert.tasks.pretraining.data import (
  build_worker,
  data_statistics,
  documents,
  external_sort,
  output_folder,
  token_store,
)

_BLOCKS_PER_CHUNK = 64  # About 16 MB of text.
_ITEMS_PER_WORKER = 3


# Called with the phase, the share of it that is done, the number of tokens, and
# other numbers as text.
_Report = Callable[[str, float, int, str], None]


def build_dataset(
  settings: build_worker.BuildSettings, report: _Report = lambda *progress: None
) -> tfrecords.Manifest:
  """Builds a dataset, or resumes an unfinished build; returns the manifest.

  `report` is called after every piece of work.
  """
  paths = documents.find_files(settings.input_files)
  reader = documents.DocumentReader(paths, settings.reading)
  staging = output_folder.staging_path(settings.output_dir)
  # Worker processes are forked from this one and use the same tokenizer.
  job = build_worker.open_job(settings, staging)
  tokenizer = job.tokenizer  # Raises an error before any work.
  with WorkerPool(settings.num_workers or machine.cpu_count()) as pool:
    folder = output_folder.staging_folder(
      settings.output_dir,
      settings.overwrite,
      settings.fingerprint(reader, tokenizer.sha256),
    )
    with folder, pool:  # The workers end before the folder is removed.
      if files.is_remote(tokenizer.model_file):
        job = build_worker.with_local_tokenizer(job)
      skipped = _tokenize(pool, job, reader, report)
      splits = {
        name: _build_split(pool, job, name, report) for name in settings.splits
      }
      build_worker.open_job.cache_clear()
      manifest = make_manifest(job, paths, splits, skipped)
      output_folder.publish(
        settings.output_dir,
        manifest,
        job.tokenizer.model_file,
        lambda done, all_files: report(
          "uploading", done / all_files, 0, f"{done:,} of {all_files:,} files"
        ),
      )
  return manifest


def make_split(
  job: build_worker.Job,
  name: str,
  shards: Sequence[Mapping[str, Any]],
  counts: data_statistics.Counts,
) -> tfrecords.Split:
  """Returns the manifest's entry of a split; used by both engines."""
  if not counts.instances:
    where = files.quote_paths(job.settings.input_files)
    raise ValueError(
      f"the {name} documents of {where} give no example, because each of them "
      "is a single word: put one sentence on a line, and blank lines only "
      "between documents."
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
  settings, masking_ids = job.settings, {}
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
    tokenizer=tfrecords.TokenizerInfo.of(job.tokenizer),
    settings={
      **settings.content(input_files),
      **masking_ids,
      "skipped_documents": dataclasses.asdict(skipped),
    },
    random_seed=settings.random_seed,
    splits=splits,
  )


def _tokenize(
  pool: WorkerPool,
  job: build_worker.Job,
  reader: documents.DocumentReader,
  report: _Report,
) -> documents.Skipped:
  """Fills the token store and returns the skipped documents."""
  files.make_folder(job.store_folder)
  path_of = functools.partial(token_store.chunk_path, job.store_folder)
  # The chunks of an interrupted build.
  found = list(map(output_folder.find_piece, job.chunk_paths))

  def missing_blocks() -> Iterator[documents.Block]:
    # All blocks are read, because seeking in compressed files is complicated.
    for number, block in enumerate(reader.blocks()):
      chunk = number // _BLOCKS_PER_CHUNK
      if chunk >= len(found) or not found[chunk]:
        yield block

  made = pool.map(job.tokenize, missing_blocks())
  skipped = documents.Skipped()
  num_documents = num_tokens = 0
  for number in itertools.count():
    if number < len(found) and found[number]:
      chunk = found[number]
      skipped.add(documents.Skipped(**chunk["skipped"]))
      num_documents += chunk["documents"]
      num_tokens += chunk["tokens"]
      continue
    parts, skipped_here = [], documents.Skipped()
    for part, skipped_in_block in itertools.islice(made, _BLOCKS_PER_CHUNK):
      parts.append(part)
      skipped_here.add(skipped_in_block)
      num_documents += len(part)
      num_tokens += len(part.ids)
      report(
        "tokenizing",
        reader.bytes_read / max(1, reader.total_bytes),
        num_tokens,
        f"{num_documents:,} documents",
      )
    if not parts:
      return skipped
    skipped.add(skipped_here)
    token_store.write_chunk(path_of(number), parts)
    chunk = {
      "skipped": dataclasses.asdict(skipped_here),
      "documents": sum(map(len, parts)),
      "tokens": sum(len(part.ids) for part in parts),
    }
    output_folder.finish_piece(path_of(number), chunk)


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
  pool: WorkerPool, job: build_worker.Job, name: str, report: _Report
) -> tfrecords.Split:
  """Makes the runs and shards of a split that are missing or damaged.

  Runs are sorted by a random key, and the shards are read from all runs in the
  order of the keys. The records of finished shards are removed from the runs,
  so the examples take disk space only once.
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
  run_folder = os.path.join(job.folder, f"{name}-runs")
  files.make_folder(run_folder)
  run_bytes, num_buckets = external_sort.plan(
    duplicates * int(sizes.sum()), num_shards
  )
  runs = []
  for duplicate in range(duplicates):
    for first, end in build_worker.cut(sizes, run_bytes):
      file = f"{duplicate:05d}-{first:09d}-{end:09d}-{num_buckets}"
      path = os.path.join(run_folder, file)
      runs.append(
        build_worker.Run(name, duplicate, first, end, path, num_buckets)
      )

  counts = data_statistics.Counts()
  bucket_records = np.zeros(num_buckets, np.int64)
  done = np.concatenate([[0], np.cumsum(sizes)])
  for run, (run_counts, run_records) in zip(runs, pool.map(job.make_run, runs)):
    counts += run_counts
    bucket_records += run_records
    report(
      f"making {name} examples",
      (run.duplicate + done[run.end] / done[-1]) / duplicates,
      counts.tokens,
      f"{run.duplicate * len(sizes) + run.end:,} documents, "
      f"{counts.instances:,} instances",
    )
  # The places of the buckets and of the shards in the order.
  ends = np.cumsum(bucket_records)
  starts = np.concatenate([[0], ends])
  ranges = [
    shard_range(int(ends[-1]), i, num_shards) for i in range(num_shards)
  ]
  buckets = np.searchsorted(ends, [first for first, _ in ranges], "right")
  if missing:
    needed = buckets[missing[0]]
    if not all(external_sort.holds(run.path, needed) for run in runs):
      # A finished shard was damaged after its records had been removed.
      shutil.rmtree(run_folder)
      return _build_split(pool, job, name, report)
  run_paths = [run.path for run in runs]
  tasks = []
  for index in missing:
    (first, end), bucket = ranges[index], int(buckets[index])
    skip = int(first - starts[bucket])
    tasks.append(
      (paths[index], run_paths, num_buckets, bucket, skip, end - first)
    )
  for index, entry in zip(missing, pool.map(job.write_shard, tasks)):
    shards[index] = entry
    # The shards before this one are finished, as they are written in order.
    end = int(np.searchsorted(ends, ranges[index][1], "right"))
    for run in runs:
      external_sort.discard(run.path, end)
  return make_split(job, name, shards, counts)


def _start_method() -> str:
  """Returns "fork", which starts faster, if that is safe; else "spawn".

  A fork of a process with other threads, such as TensorFlow's, may wait forever
  for a lock that one of them holds.
  """
  alone = threading.active_count() == 1 and "tensorflow" not in sys.modules
  return "fork" if alone and sys.platform == "linux" else "spawn"


class WorkerPool:
  """Maps a function over many items in several processes; a context manager.

  With one worker everything runs in the calling process. Only a few items are
  in flight at a time, so neither a long input nor a slow consumer fills the
  memory.
  """

  # Not concurrent.futures.ProcessPoolExecutor: its workers share queues, and
  # one that is killed while it holds the lock of a queue stops all others.
  # Here each worker has a pipe of its own and a thread that waits for it.

  def __init__(self, num_workers: int):
    """Starts the processes."""
    self._max_pending = _ITEMS_PER_WORKER * num_workers
    self._processes: list[Any] = []
    self._idle: queue.SimpleQueue = queue.SimpleQueue()  # Their pipes.
    if num_workers == 1:
      return
    self._threads = futures.ThreadPoolExecutor(num_workers)
    context = multiprocessing.get_context(_start_method())
    if context.get_start_method() == "spawn":
      # Started later, it would unblock the signals.
      resource_tracker.ensure_running()
    # Workers multiply no matrices, and starting NumPy's threads for that would
    # take each new process about as long as importing NumPy.
    name = "OPENBLAS_NUM_THREADS"
    value = os.environ.get(name, "1")
    with output_folder.environment_variable(name, value), _deferred_signals():
      for _ in range(num_workers):
        pipe, its_end = context.Pipe()
        process = context.Process(target=_work, args=(its_end,), daemon=True)
        process.start()
        its_end.close()  # Reading fails as soon as the worker has ended.
        self._processes.append(process)
        self._idle.put(pipe)

  def map(
    self, function: Callable[[Any], Any], items: Iterable[Any]
  ) -> Iterator[Any]:
    """Yields function(item) for each item, in order.

    Raises:
      OSError: a worker died.
      Exception: an exception of `function` or `items`.
    """
    if not self._processes:
      yield from map(function, items)
      return
    pending = collections.deque()
    for item in items:
      if len(pending) >= self._max_pending:
        yield pending.popleft().result()
      pending.append(self._threads.submit(self._call, function, item))
    while pending:
      yield pending.popleft().result()

  def _call(self, function: Callable[[Any], Any], item: Any) -> Any:
    """Returns function(item), computed by a worker."""
    pipe = self._idle.get()
    try:
      pipe.send((function, item))
      result, error, trace = pipe.recv()
    except (EOFError, OSError) as error:
      raise OSError(
        "a worker process died: if the system ran out of memory, use a "
        "smaller --num_workers."
      ) from error
    finally:
      self._idle.put(pipe)
    if error:
      raise error from multiprocessing.pool.RemoteTraceback(trace)
    return result

  def __enter__(self) -> WorkerPool:
    return self

  def __exit__(self, *unused_error) -> None:
    # They share nothing that a kill could damage.
    for process in self._processes:
      process.kill()
      process.join()
    if self._processes:
      self._threads.shutdown(cancel_futures=True)


@contextlib.contextmanager
def _deferred_signals() -> Iterator[None]:
  """Handles SIGINT and SIGTERM after the body, which starts processes.

  These processes keep SIGINT blocked: Ctrl-C reaches every process, and only
  the parent handles it.
  """
  numbers = {signal.SIGINT, signal.SIGTERM}
  received: list[int] = []
  handlers = {}
  before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
  try:
    # Other threads still receive signals, whose handlers would raise in the
    # body: half a start, or an error that Python drops while it forks.
    if threading.current_thread() is threading.main_thread():
      for number in numbers:
        if signal.getsignal(number) not in (signal.SIG_IGN, None):
          handlers[number] = signal.signal(
            number, lambda number, _: received.append(number)
          )
    yield
  finally:
    for number, handler in handlers.items():
      signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    for number in received[:1]:
      signal.raise_signal(number)


def _work(pipe: multiprocessing.connection.Connection) -> None:
  """Answers calls until the parent ends this process."""
  # Not the parent's handlers.
  signal.signal(signal.SIGINT, signal.SIG_IGN)
  signal.signal(signal.SIGTERM, signal.SIG_DFL)
  signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
  threading.Thread(target=_die_with_parent, daemon=True).start()
  with contextlib.suppress(EOFError, OSError):  # The parent has closed it.
    while True:
      pipe.send_bytes(_answer(*pipe.recv()))


def _answer(function: Callable[[Any], Any], item: Any) -> bytes:
  """Returns function(item), its exception and its traceback, pickled."""
  try:
    return reduction.ForkingPickler.dumps((function(item), None, ""))
  except Exception as error:
    failure, trace = error, traceback.format_exc()
  try:
    answer = reduction.ForkingPickler.dumps((None, failure, trace))
    reduction.ForkingPickler.loads(answer)
    return answer
  except Exception:  # Some exceptions cannot be pickled, or not be read again.
    reason = f"{type(failure).__name__}: {str(failure)[:200]}".rstrip(". ")
    return reduction.ForkingPickler.dumps(
      (None, OSError(f"a worker failed: {reason}."), trace)
    )


def _die_with_parent() -> None:
  """Ends this process when its parent has ended, at once."""
  parent = multiprocessing.parent_process()
  multiprocessing.connection.wait([parent.sentinel])
  os._exit(1)
