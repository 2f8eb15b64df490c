"""Builds a folder of pretraining records with the processes of one machine.

    text --tokenize--> chunks --make--> runs of examples --write--> shards

The parent reads files, which may be in a bucket; workers load no TensorFlow.
Chunks, runs and shards get their final names when they are complete, so a build
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
from typing import Any, Callable, Iterable, Iterator, NamedTuple

import numpy as np

from official_albert import files, machine, tfrecords
from official_albert.tasks.pretraining.data import (
  build_worker,
  data_statistics,
  documents,
  example_runs,
  output_folder,
  token_store,
)

_BLOCKS_PER_CHUNK = 64  # About 16 MB of text.
_ITEMS_PER_WORKER = 3
# Estimated bytes of the examples that are made at the same time.
_BATCH_BYTES = 1 << 20

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
    "pieces": [_BLOCKS_PER_CHUNK, documents.BLOCK_BYTES, example_runs.LIMITS],
  }
  staging = output_folder.staging_path(settings.output_dir)
  is_remote = files.is_remote(tokenizer.model_file)
  copy = os.path.join(staging, tfrecords.TOKENIZER_FILES[tokenizer.kind])
  if is_remote:
    job = job.with_tokenizer(copy)
  folder = output_folder.staging_folder(
    settings.output_dir, settings.overwrite, fingerprint
  )
  workers = settings.num_workers or machine.cpu_count()
  # They start before the folder is locked, so that they do not hold the lock
  # after a kill of this process, and end before it is removed.
  with (
    WorkerPool(workers, _prepare, Worker(job, staging)) as pool,
    folder,
    pool,
  ):
    manifest = output_folder.read_manifest(staging)
    if not manifest:
      if is_remote:
        files.copy(tokenizer.model_file, copy)
      manifest = _make_shards(pool.map, job, staging, reader, report)
    output_folder.publish(
      settings.output_dir,
      manifest,
      tokenizer.model_file,
      lambda done, all_files: report(
        "uploading", done / all_files, 0, f"{done:,} of {all_files:,} files"
      ),
    )
  return manifest


class _Piece(NamedTuple):
  """The examples of some documents of a split, in the order of the files."""

  split: str
  duplicate: int
  first: int
  end: int

  def path(self, folder: str) -> str:
    name = f"{self.split}-{self.duplicate:05d}-{self.first:09d}-{self.end:09d}"
    return os.path.join(folder, "runs", name)


class Worker:
  """The work of one process, with the files that it opens once."""

  def __init__(self, job: build_worker.Job, folder: str):
    self._job, self._folder = job, folder

  @functools.cached_property
  def store(self) -> token_store.TokenStore:
    """The token store; all text must be tokenized before."""
    return token_store.TokenStore(
      _chunk_paths(self._folder), self._job.vocabulary.size
    )

  @functools.cached_property
  def roles(self) -> dict[str, _Roles]:
    """The roles of the documents of each split."""
    return {
      split: _Roles.open(self._folder, split)
      for split in self._job.settings.splits
    }

  def tokenize(
    self, block: documents.Block
  ) -> tuple[token_store.Documents, documents.Skipped]:
    return self._job.tokenize(block)

  def make_run(self, piece: _Piece) -> None:
    """Makes a run from the documents of a piece."""
    roles = self.roles[piece.split]
    places = roles.by_number[piece.first : piece.end]
    places = places[roles.copies[places] > piece.duplicate]
    split = _Chosen(self.store, roles.numbers)
    keys, records = [np.zeros(0, np.int64)], []
    counts = data_statistics.Counts()
    tokens = np.array([len(split[place].ids) for place in places], np.int64)
    for first, end in build_worker.cut(
      self._job.estimate_bytes(tokens), _BATCH_BYTES
    ):
      here = places[first:end]
      chosen = zip(
        here.tolist(), roles.hashes[here].tolist(), roles.occurrences[here]
      )
      made = self._job.make_examples(split, chosen, piece.duplicate)
      keys.append(made.keys)
      records += made.records
      counts += made.counts
    example_runs.write_run(
      piece.path(self._folder), np.concatenate(keys), records, counts.to_json()
    )

  def write_shard(self, task: tuple[str, int, int]) -> None:
    """Writes the shard `index` of `num_shards` of a split."""
    split, index, num_shards = task
    runs = _open_runs(self._folder, split)
    edges = (example_runs.first_key(i, num_shards) for i in (index, index + 1))
    path = os.path.join(
      self._folder, tfrecords.shard_name(split, index, num_shards)
    )
    self._job.write_shard(path, example_runs.read_sorted(runs, *edges))


@dataclasses.dataclass(frozen=True)
class _Roles:
  """The documents of a split for all workers, by place in `token_store.Split`.

  Attributes:
    numbers, occurrences: see `token_store.Split`.
    hashes: <uint64>[documents], those of their tokens.
    copies: <int32>[documents].
    by_number: <int64>[documents], the places in the order of the files.
  """

  numbers: np.ndarray
  occurrences: np.ndarray
  hashes: np.ndarray
  copies: np.ndarray
  by_number: np.ndarray

  def write(self, folder: str, split: str) -> None:
    for name, values in vars(self).items():
      path = self._path(folder, split, name)
      with files.replacing(path) as temporary, open(temporary, "wb") as file:
        np.save(file, values)

  @classmethod
  def open(cls, folder: str, split: str) -> _Roles:
    return cls(
      *(
        np.asarray(np.load(cls._path(folder, split, field.name), mmap_mode="r"))
        for field in dataclasses.fields(cls)
      )
    )

  @staticmethod
  def _path(folder: str, split: str, name: str) -> str:
    return os.path.join(folder, f"{split}-{name}.npy")


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
  run: _Map,
  job: build_worker.Job,
  folder: str,
  reader: documents.DocumentReader,
  report: _Report,
) -> tfrecords.Manifest:
  """Makes what is missing in the folder; returns the manifest."""
  skipped = _tokenize(run, job, folder, reader, report)
  worker = Worker(job, folder)
  hashes, copies, tokens = worker.store.columns()
  settings = job.settings
  chosen = token_store.split_documents(
    files.quote_paths(settings.input_files),
    hashes,
    settings.heldout_share,
    settings.examples.sentence_pair,
    settings.drop_duplicates,
  )
  for name, (numbers, occurrences, _) in chosen.items():
    used = copies[numbers]
    if name == token_store.HELDOUT:
      used = np.ones_like(used)
    hashes_here, by_number = hashes[numbers, 1], np.argsort(numbers)
    roles = _Roles(numbers, occurrences, hashes_here, used, by_number)
    roles.write(folder, name)
  splits = {}
  for name, split in chosen.items():
    most = int(worker.roles[name].copies.max())
    sizes = job.estimate_bytes(tokens[np.sort(split.numbers)])
    counts = _make_runs(run, folder, name, sizes, most, report)
    shards = _write_shards(run, folder, name, settings.splits[name])
    splits[name] = job.make_split(name, shards, counts, split.duplicates)
  return job.make_manifest(reader.weights, splits, skipped)


def _chunk_paths(folder: str) -> list[str]:
  """Returns the chunks of the token store that are complete."""
  numbered = (
    token_store.chunk_path(folder, number) for number in itertools.count()
  )
  return list(itertools.takewhile(files.exists, numbered))


def _tokenize(
  run: _Map,
  job: build_worker.Job,
  folder: str,
  reader: documents.DocumentReader,
  report: _Report,
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
  """Returns the path of the skipped documents of a chunk."""
  return f"{path}.json"


def _make_runs(
  run: _Map,
  folder: str,
  name: str,
  sizes: np.ndarray,
  copies: int,
  report: _Report,
) -> data_statistics.Counts:
  """Makes the missing runs of a split, and counts the examples of all.

  `sizes` are the estimated bytes of each document's examples, in the order of
  the files.
  """
  files.make_folder(os.path.join(folder, "runs"))
  limit = example_runs.run_bytes(copies * int(sizes.sum()))
  pieces = [
    _Piece(name, duplicate, first, end)
    for duplicate in range(copies)
    for first, end in build_worker.cut(sizes, limit)
  ]
  missing = [x for x in pieces if not files.exists(x.path(folder))]
  made = run(functools.partial(_call, "make_run"), [*missing])
  counts = data_statistics.Counts()
  done = np.concatenate([[0], np.cumsum(sizes)])
  for piece in pieces:
    if missing[:1] == [piece]:
      missing.pop(0)
      next(made)
    note = example_runs.Run.open(piece.path(folder)).note
    counts += data_statistics.Counts.from_json(note)
    report(
      f"making {name} examples",
      (piece.duplicate + done[piece.end] / done[-1]) / copies,
      counts.tokens,
      f"{piece.duplicate * len(sizes) + piece.end:,} documents, "
      f"{counts.instances:,} instances",
    )
  return counts


def _open_runs(folder: str, split: str) -> list[example_runs.Run]:
  names = sorted(files.list_dir(os.path.join(folder, "runs")))
  return [
    example_runs.Run.open(os.path.join(folder, "runs", name))
    for name in names
    if name.startswith(f"{split}-") and not name.endswith(".tmp")
  ]


def _write_shards(
  run: _Map, folder: str, name: str, num_shards: int
) -> list[tfrecords.Shard]:
  """Writes the missing shards of a split and cuts their records off the runs.

  So the examples take disk space only once.
  """
  runs = _open_runs(folder, name)
  edges = [example_runs.first_key(i, num_shards) for i in range(num_shards + 1)]
  paths = [
    os.path.join(folder, tfrecords.shard_name(name, index, num_shards))
    for index in range(num_shards)
  ]
  missing = [i for i, path in enumerate(paths) if not files.exists(path)]
  made = run(
    functools.partial(_call, "write_shard"),
    [(name, index, num_shards) for index in missing],
  )
  for index, _ in zip(missing, made):
    # The shards before it are finished, as results are in order.
    for each in runs:
      each.discard(edges[index + 1])
  shards = []
  for path, first, end in zip(paths, edges, edges[1:]):
    places = [each.places(first, end) for each in runs]
    records = sum(high - low for low, high in places)
    shards.append(
      tfrecords.Shard(os.path.basename(path), records, os.path.getsize(path))
    )
  return shards


class WorkerPool:
  """Processes that call a function for many items; a context manager.

  With one process, everything runs in the calling one. It may be left twice.
  """

  def __init__(
    self, num_workers: int, prepare: Callable = bool, *arguments: Any
  ):
    """Starts the processes, each of which calls prepare(*arguments)."""
    self._num_workers = num_workers
    self._children: list[Any] = []
    if num_workers == 1:
      prepare(*arguments)
      return
    before = multiprocessing.active_children()
    self._pool = futures.ProcessPoolExecutor(
      num_workers,
      multiprocessing.get_context(_start_method()),
      _start_worker,
      (prepare, *arguments),
    )
    for _ in range(num_workers):  # Otherwise they would start when needed.
      self._pool.submit(os.getpid)
    children = multiprocessing.active_children()
    self._children = [child for child in children if child not in before]

  def map(
    self, function: Callable[[Any], Any], items: Iterable[Any]
  ) -> Iterator[Any]:
    """Yields function(item) for each item, in order.

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
        if len(pending) >= _ITEMS_PER_WORKER * self._num_workers:
          yield pending.popleft().result()
        pending.append(self._pool.submit(function, item))
      while pending:
        yield pending.popleft().result()
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


def _start_method() -> str:
  """Returns "fork", which starts faster, if that is safe; else "spawn".

  A fork of a process with other threads, such as TensorFlow's, may wait forever
  for a lock that one of them holds.
  """
  alone = threading.active_count() == 1 and "tensorflow" not in sys.modules
  return "fork" if alone and sys.platform == "linux" else "spawn"


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
