"""Builds a folder of pretraining records with the processes of one machine.

    text --tokenize--> chunks of tokens --write_shard--> shards

The parent reads files, which may be in a bucket; workers load no TensorFlow.
Chunks and shards get their final names when they are complete, so a build
that was killed skips those that exist; see `output_folder`.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import json
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
from concurrent import futures
from concurrent.futures import process
from typing import Any, Callable, Iterable, Iterator, Optional

import numpy as np

from official_albert import files, machine, tfrecords
from official_albert.tasks.pretraining.data import (
  build_worker,
  data_statistics,
  documents,
  output_folder,
  token_store,
)

_BLOCKS_PER_CHUNK = 64  # About 16 MB of text.
_ITEMS_PER_WORKER = 3
# What examples may take of the memory; their size is estimated too high.
_MEMORY_SHARE = 0.5

# See `WorkerPool.map`.
_Map = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]
# Called with the phase, the share of it that is done, the number of tokens, and
# other numbers as text.
_Report = Callable[[str, float, int, str], None]


def build_dataset(
  settings: build_worker.BuildSettings, report: _Report = lambda *progress: None
) -> tfrecords.Manifest:
  """Builds a dataset, or resumes an unfinished build; returns the manifest.

  `report` is called after every piece of work.
  """
  reader = documents.DocumentReader(
    documents.find_weighted_files(settings.input_files), settings.reading
  )
  job = build_worker.Job(settings)
  tokenizer = job.tokenizer  # Raises an error before any work.
  fingerprint = {
    **settings.fingerprint(reader, tokenizer.sha256),
    # Another release may cut the work in other pieces.
    "pieces": [_BLOCKS_PER_CHUNK, documents.BLOCK_BYTES],
  }
  staging = output_folder.staging_path(settings.output_dir)
  is_remote = files.is_remote(tokenizer.model_file)
  copy = os.path.join(staging, tfrecords.TOKENIZER_FILES[tokenizer.kind])
  if is_remote:
    job = job.with_tokenizer(copy)
  folder = output_folder.staging_folder(
    settings.output_dir, settings.overwrite, fingerprint
  )
  worker = Worker(job, staging, _Progress())
  workers = settings.num_workers or machine.cpu_count()
  # They start before the folder is locked, so that they do not hold the lock
  # after a kill of this process, and end before it is removed.
  with WorkerPool(workers, _prepare, worker) as pool, folder, pool:
    manifest = output_folder.read_manifest(staging, settings.splits)
    if not manifest:
      if is_remote:
        files.copy(tokenizer.model_file, copy)
      manifest = _make_shards(pool, worker, reader, report)
    output_folder.publish(
      settings.output_dir,
      manifest,
      tokenizer.model_file,
      lambda done, all_files: report(
        "uploading", done / all_files, 0, f"{done:,} of {all_files:,} files"
      ),
    )
  _prepare()  # Frees what one process has opened in this one.
  return manifest


class Worker:
  """The work of one process, with the files that it opens once."""

  def __init__(self, job: build_worker.Job, folder: str, done: _Progress):
    self.job, self.folder, self.done = job, folder, done

  @functools.cached_property
  def store(self) -> token_store.TokenStore:
    """The token store; all text must be tokenized before."""
    return token_store.TokenStore(
      _chunk_paths(self.folder), self.job.vocabulary.size
    )

  @functools.cached_property
  def splits(self) -> dict[str, token_store.Split]:
    """The documents of each split."""
    settings = self.job.settings
    return token_store.split_documents(
      files.quote_paths(settings.input_files),
      *self.store.columns()[:2],
      settings.heldout_share,
      settings.examples.sentence_pair,
      settings.drop_duplicates,
    )

  def tokenize(
    self, block: documents.Block
  ) -> tuple[token_store.Documents, documents.Skipped]:
    return self.job.tokenize(block)

  def write_shard(self, shard: tuple[str, int]) -> None:
    """Writes the shard with an index of a split, and its counts before it."""
    name, index = shard
    split, num_shards = self.splits[name], self.job.settings.splits[name]
    path = _shard_path(self.folder, name, index, num_shards)
    made = self.job.make_examples(
      _Chosen(self.store, split.numbers),
      split.of_shard(index, num_shards),
      self.done.add,
    )
    files.write_json(_note(path), made.counts.to_json())
    self.job.write_shard(path, made)


class _Progress:
  """The number of tokens that all processes have used for examples.

  Attributes:
    show: is called in this process after every change.
  """

  def __init__(self):
    self._tokens = _context().Value("q", 0)
    self.show: Optional[Callable[[], None]] = None

  def __call__(self) -> int:
    return self._tokens.value

  def add(self, tokens: int) -> None:
    with self._tokens.get_lock():
      self._tokens.value += tokens
    if self.show:
      self.show()


class _Chosen(collections.abc.Sequence):
  """Some documents of a store, by their numbers."""

  def __init__(self, store: token_store.TokenStore, numbers: np.ndarray):
    self._store, self._numbers = store, numbers

  def __len__(self) -> int:
    return len(self._numbers)

  def __getitem__(self, index):
    return self._store[self._numbers[index]]


_workers: list[Worker] = []  # That of this process.


def _prepare(*workers: Worker) -> None:
  _workers[:] = workers


def _call(method: str, item: Any) -> Any:
  """Calls a method of the worker of this process."""
  return getattr(_workers[0], method)(item)


def _make_shards(
  pool: WorkerPool,
  worker: Worker,
  reader: documents.DocumentReader,
  report: _Report,
) -> tfrecords.Manifest:
  """Makes what is missing in the folder; returns the manifest."""
  skipped = _tokenize(pool.map, worker.folder, reader, report)
  tokens = worker.store.columns()[2]
  splits = {
    name: _make_split(pool, worker, name, tokens, report)
    for name in worker.splits
  }
  return worker.job.make_manifest(reader.weights, splits, skipped)


def _make_split(
  pool: WorkerPool,
  worker: Worker,
  name: str,
  tokens: np.ndarray,
  report: _Report,
) -> tfrecords.Split:
  """Writes the missing shards of a split.

  `tokens` are those of each document, <int64>[documents].
  """
  split, num_shards = worker.splits[name], worker.job.settings.splits[name]
  sizes = tokens[split.numbers]
  most = (split.copies * worker.job.estimate_bytes(sizes)).sum()
  _check_memory(int(most), num_shards, pool.num_workers)
  paths = [
    _shard_path(worker.folder, name, index, num_shards)
    for index in range(num_shards)
  ]
  missing = [i for i, path in enumerate(paths) if not files.exists(path)]
  total = int((split.copies * sizes).sum()) * len(missing) // num_shards
  before, finished = worker.done(), num_shards - len(missing)

  def show() -> None:
    done = worker.done() - before
    report(
      f"making {name} examples",
      min(1.0, done / max(1, total)),
      done,
      f"{finished:,} of {num_shards:,} shards",
    )

  worker.done.show = show
  shards = [(name, index) for index in missing]
  for _ in pool.map(functools.partial(_call, "write_shard"), shards, show):
    finished += 1
    show()
  counts = [
    data_statistics.Counts.from_json(json.loads(files.read_text(_note(path))))
    for path in paths
  ]
  entries = [
    tfrecords.Shard(os.path.basename(path), part.instances, files.stat(path)[0])
    for path, part in zip(paths, counts)
  ]
  return worker.job.make_split(
    name, entries, sum(counts, data_statistics.Counts()), split.duplicates
  )


def _chunk_paths(folder: str) -> list[str]:
  """Returns the chunks of the token store that are complete."""
  numbered = (
    token_store.chunk_path(folder, number) for number in itertools.count()
  )
  return list(itertools.takewhile(files.exists, numbered))


def _shard_path(folder: str, split: str, index: int, num_shards: int) -> str:
  return os.path.join(folder, tfrecords.shard_name(split, index, num_shards))


def _check_memory(size: int, num_shards: int, processes: int) -> None:
  """Raises OSError if each process cannot hold one of the shards.

  `size` is that of all examples in bytes.
  """
  memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
  available = int(_MEMORY_SHARE * memory)
  wanted = -(-size * min(processes, num_shards) // available)
  if wanted > num_shards:
    raise OSError(
      f"a shard takes up to {size / num_shards / 2**30:.1f} GiB, too much for "
      f"{processes} processes at a time: use --num_shards={wanted}; the same "
      "command with it goes on where this one stopped."
    )


def _tokenize(
  run: _Map, folder: str, reader: documents.DocumentReader, report: _Report
) -> documents.Skipped:
  """Makes the missing chunks and returns the skipped documents."""
  found = _chunk_paths(folder)
  skipped = documents.Skipped()
  for path in found:
    skipped.add(documents.Skipped(**json.loads(files.read_text(_note(path)))))
  # All blocks are read, because seeking in compressed files is complicated.
  missing = itertools.islice(
    reader.blocks(), len(found) * _BLOCKS_PER_CHUNK, None
  )
  made = run(functools.partial(_call, "tokenize"), missing)
  num_documents = num_tokens = 0
  for number in itertools.count(len(found)):
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
    path = token_store.chunk_path(folder, number)
    files.write_json(_note(path), dataclasses.asdict(skipped_here))
    token_store.write_chunk(path, token_store.concatenate(parts))
  raise AssertionError


def _note(path: str) -> str:
  """Returns the path of what is counted in a chunk or a shard."""
  return f"{path}.json"


class WorkerPool:
  """Processes that call a function for many items; a context manager.

  With one process, everything runs in the calling one. It may be left twice.
  """

  def __init__(
    self, num_workers: int, prepare: Callable = bool, *arguments: Any
  ):
    """Starts the processes, each of which calls prepare(*arguments)."""
    self.num_workers = num_workers
    self._children: list[Any] = []
    if num_workers == 1:
      prepare(*arguments)
      return
    before = multiprocessing.active_children()
    self._pool = futures.ProcessPoolExecutor(
      num_workers, _context(), _start_worker, (prepare, *arguments)
    )
    for _ in range(num_workers):  # Otherwise they would start when needed.
      self._pool.submit(os.getpid)
    children = multiprocessing.active_children()
    self._children = [child for child in children if child not in before]

  def map(
    self,
    function: Callable[[Any], Any],
    items: Iterable[Any],
    wait: Callable[[], None] = lambda: None,
  ) -> Iterator[Any]:
    """Yields function(item) for each item, in order.

    It calls `wait` every second while it waits for one.

    Only a few items are in flight at a time, so neither a long input nor a slow
    consumer fills the memory.

    Raises:
      OSError: a process died.
      Exception: an exception of `function` or `items`.
    """
    if not self._children:
      yield from map(function, items)
      return
    pending: collections.deque = collections.deque()
    try:
      for item in items:
        if len(pending) >= _ITEMS_PER_WORKER * self.num_workers:
          yield _result(pending.popleft(), wait)
        pending.append(self._pool.submit(function, item))
      while pending:
        yield _result(pending.popleft(), wait)
    except process.BrokenProcessPool as error:
      raise OSError(
        "a worker process died: if the system ran out of memory, use a "
        "smaller --num_workers."
      ) from error

  def __enter__(self) -> WorkerPool:
    return self

  def __exit__(self, *unused_error: Any) -> None:
    # All results have been read, or nobody wants them.
    for child in self._children:
      child.kill()
    if self._children:
      self._pool.shutdown(cancel_futures=True)


def _result(future: futures.Future, wait: Callable[[], None]) -> Any:
  while futures.wait([future], 1.0).not_done:
    wait()
  return future.result()


def _context() -> Any:
  """Returns the context of "fork", which starts faster, if that is safe.

  A fork of a process with other threads, such as TensorFlow's, may wait forever
  for a lock that one of them holds.
  """
  alone = threading.active_count() == 1 and "tensorflow" not in sys.modules
  method = "fork" if alone and sys.platform == "linux" else "spawn"
  return multiprocessing.get_context(method)


def _start_worker(prepare: Callable, *arguments: Any) -> None:
  """Prepares a process of the pool."""
  # Not the parent's handlers.
  signal.signal(signal.SIGINT, signal.SIG_IGN)
  signal.signal(signal.SIGTERM, signal.SIG_DFL)
  threading.Thread(target=_die_with_parent, daemon=True).start()
  prepare(*arguments)


def _die_with_parent() -> None:
  """Ends this process when its parent has ended, at once."""
  parent = multiprocessing.parent_process()
  multiprocessing.connection.wait([parent.sentinel])
  os._exit(1)
