"""Builds a folder of pretraining records with the processes of one machine.

    text --tokenize--> tokens --write_shard--> shards

The parent reads files, which may be in a bucket; workers load no TensorFlow.
What a build that was killed has done is in JSON files beside the tokens: the
number of blocks, and what is counted in each finished shard.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
from concurrent import futures
from concurrent.futures import process
from typing import Any, Callable, Iterable, Iterator

import numpy as np

from official_albert import files, machine, tfrecords
from official_albert.tasks.pretraining.data import (
  build_worker,
  data_statistics,
  documents,
  output_folder,
  token_store,
)

_BLOCKS_PER_NOTE = 64  # About 16 MB of text.
_ITEMS_PER_WORKER = 3
# What examples may take of the memory; their size is estimated too high.
_MEMORY_SHARE = 0.5

# Called with the phase, the share of it that is done, the number of tokens, and
# other numbers as text.
_Report = Callable[[str, float, int, str], None]
_Counts = data_statistics.Counts


def build_dataset(
  settings: build_worker.BuildSettings, report: _Report = lambda *progress: None
) -> tfrecords.Manifest:
  """Builds a dataset, or resumes an unfinished build; returns the manifest.

  `report` is called after every piece of work.
  """
  reader = documents.DocumentReader(
    documents.find_weighted_files(settings.input_files), settings.reading
  )
  tokenizer = settings.open_tokenizer()  # Raises an error before any work.
  folder = output_folder.unfinished(
    settings.output_dir,
    settings.overwrite,
    {
      **settings.fingerprint(reader, tokenizer.sha256),
      # Another release may cut the text in other blocks.
      "block_bytes": documents.BLOCK_BYTES,
    },
  )
  # Workers start before the folder is locked, so that they do not hold the lock
  # after a kill of this process, and end before it is removed.
  with (
    WorkerPool(settings.num_workers or machine.cpu_count()) as pool,
    folder as staging,
    pool,
  ):
    copy = os.path.join(staging, tfrecords.TOKENIZER_FILES[tokenizer.kind])
    files.copy(tokenizer.model_file, copy)
    _open.cache_clear()  # An earlier build may have had the same folder.
    corpus = _open(settings.with_tokenizer(copy), staging)
    skipped = _tokenize(pool, corpus, reader, report)
    splits = {
      name: _make_split(pool, corpus, name, report) for name in corpus.splits
    }
    manifest = corpus.job.make_manifest(reader.weights, splits, skipped)
    output_folder.finish(
      settings.output_dir,
      staging,
      manifest,
      lambda done, all_files: report(
        "uploading", done / all_files, 0, f"{done:,} of {all_files:,} files"
      ),
    )
  _open.cache_clear()  # Closes what one process has opened in this one.
  return manifest


@dataclasses.dataclass(frozen=True)
class Corpus:
  """A tokenized corpus, of which a process can make any shard.

  Attributes:
    settings: the settings of the dataset.
    staging: the folder of the tokens and of notes.
  """

  settings: build_worker.BuildSettings
  staging: str

  @functools.cached_property
  def job(self) -> build_worker.Job:
    return build_worker.Job(self.settings)

  @functools.cached_property
  def tokens(self) -> token_store.Documents:
    """The documents; all text must be tokenized before."""
    return token_store.open_documents(self.staging, self.job.vocabulary.size)

  @functools.cached_property
  def splits(self) -> dict[str, token_store.Split]:
    return token_store.split_documents(
      files.quote_paths(self.settings.input_files),
      self.tokens.rows,
      self.settings.heldout_share,
      self.settings.examples.sentence_pair,
      self.settings.drop_duplicates,
    )

  def shard_path(self, split: str, index: int) -> str:
    output_dir = self.settings.output_dir
    folder = self.staging if files.is_remote(output_dir) else output_dir
    num_shards = self.settings.splits[split]
    return os.path.join(folder, tfrecords.shard_name(split, index, num_shards))

  def note(self, name: str) -> str:
    """Returns the path of the note of a shard, or of the tokens."""
    return os.path.join(self.staging, f"{os.path.basename(name)}.json")

  def calls(self, method: str) -> Callable[[Any], Any]:
    """Returns a method for other processes, which have their own corpus."""
    return functools.partial(_call, method, self.settings, self.staging)

  def tokenize(
    self, block: documents.Block
  ) -> tuple[token_store.Documents, documents.Skipped]:
    return self.job.tokenize(block)

  def write_shard(self, shard: tuple[str, int]) -> None:
    """Writes the shard with an index of a split, and then its counts."""
    name, index = shard
    path, num_shards = self.shard_path(*shard), self.settings.splits[name]
    made = self.job.make_examples(
      self.tokens, self.splits[name], index, num_shards
    )
    entry = self.job.write_shard(path, made)
    note = [dataclasses.asdict(entry), made.counts.to_json()]
    files.write_json(self.note(path), note)


# A process opens the files of its corpus once.
_open = functools.lru_cache(1)(Corpus)


def _call(
  method: str, settings: build_worker.BuildSettings, staging: str, item: Any
) -> Any:
  return getattr(_open(settings, staging), method)(item)


def _tokenize(
  pool: WorkerPool,
  corpus: Corpus,
  reader: documents.DocumentReader,
  report: _Report,
) -> documents.Skipped:
  """Tokenizes what is missing and returns the skipped documents."""
  note = corpus.note("tokens")
  done: dict[str, Any] = {"blocks": 0, "sizes": [0, 0, 0], "is_complete": False}
  skipped = documents.Skipped()
  if files.exists(note):
    done = files.read_json(note, dict[str, Any], "remove its folder")
    skipped = documents.Skipped(**done["skipped"])
  token_store.cut_off(corpus.staging, done["sizes"])
  # All blocks are read, because seeking in compressed files is complicated.
  missing = itertools.islice(reader.blocks(), done["blocks"], None)
  made = pool.map(corpus.calls("tokenize"), missing)
  num_documents = num_tokens = 0
  while not done["is_complete"]:
    parts = []
    for part, skipped_here in itertools.islice(made, _BLOCKS_PER_NOTE):
      parts.append(part)
      skipped.add(skipped_here)
      num_documents += len(part)
      num_tokens += len(part.ids)
      report(
        "tokenizing",
        reader.bytes_read / max(1, reader.total_bytes),
        num_tokens,
        f"{num_documents:,} documents",
      )
    for part in parts:
      done["sizes"] = token_store.append(corpus.staging, part)
    done = {
      "blocks": done["blocks"] + len(parts),
      "sizes": done["sizes"],
      "is_complete": not parts,
      "skipped": dataclasses.asdict(skipped),
    }
    files.write_json(note, done)
  return skipped


def _make_split(
  pool: WorkerPool, corpus: Corpus, name: str, report: _Report
) -> tfrecords.Split:
  """Writes the missing shards of a split."""
  split, num_shards = corpus.splits[name], corpus.settings.splits[name]
  _check_memory(corpus.job, split, num_shards, pool.num_workers)
  paths = [corpus.shard_path(name, index) for index in range(num_shards)]
  missing = [
    (name, index)
    for index, path in enumerate(paths)
    if not files.exists(corpus.note(path))
  ]
  if missing:
    output_folder.remove_manifest(corpus.settings.output_dir)
  # Shards have about the same number of tokens.
  tokens = int((split.rows["copies"] * split.rows["tokens"]).sum()) / num_shards
  made = pool.map(corpus.calls("write_shard"), missing)
  for count, _ in enumerate(made, 1):
    finished = num_shards - len(missing) + count
    report(
      f"making {name} examples",
      count / len(missing),
      int(count * tokens),
      f"{finished:,} of {num_shards:,} shards",
    )
  entries, counts = [], _Counts()
  for path in paths:
    entry, counted = files.read_json(corpus.note(path), list[Any], "remove it")
    entries.append(tfrecords.Shard(**entry))
    counts += _Counts.from_json(counted)
  return corpus.job.make_split(name, entries, counts, len(split.repeated))


def _check_memory(
  job: build_worker.Job,
  split: token_store.Split,
  num_shards: int,
  processes: int,
) -> None:
  """Raises OSError if each process cannot hold one of the shards."""
  size, rows = np.zeros(num_shards), split.rows
  of_documents = job.estimate_bytes(rows["tokens"])
  for duplicate in range(int(rows["copies"].max(initial=0))):
    shards = token_store.shards_of(rows["text"], duplicate, num_shards)
    used = np.where(rows["copies"] > duplicate, of_documents, 0)
    size += np.bincount(shards, used, num_shards)
  memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
  available = _MEMORY_SHARE * memory / min(processes, num_shards)
  if size.max() > available:
    raise OSError(
      f"a shard takes up to {size.max() / 2**30:.1f} GiB, too much for "
      f"{processes} processes at a time: use --num_shards="
      f"{int(num_shards * size.max() / available) + 1}; the same command with "
      "it goes on where this one stopped."
    )


class WorkerPool:
  """Processes that call a function for many items; a context manager.

  With one process, everything runs in the calling one. It may be left twice.
  """

  def __init__(self, num_workers: int):
    """Starts the processes."""
    self.num_workers = num_workers
    self._children: list[Any] = []
    if num_workers == 1:
      return
    before = multiprocessing.active_children()
    self._pool = futures.ProcessPoolExecutor(
      num_workers, _context(), _start_worker
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
        if len(pending) >= _ITEMS_PER_WORKER * self.num_workers:
          yield self._result(pending.popleft())
        pending.append(self._pool.submit(function, item))
      while pending:
        yield self._result(pending.popleft())
    except process.BrokenProcessPool as error:
      raise OSError(
        "a worker process died: if the system ran out of memory, use a "
        "smaller --num_workers."
      ) from error

  def _result(self, future: futures.Future) -> Any:
    # The pool itself does not notice a process that died while it sent a
    # result: it waits for the rest.
    while not futures.wait([future], 1.0).done:
      if not all(child.is_alive() for child in self._children):
        raise process.BrokenProcessPool
    return future.result()

  def __enter__(self) -> WorkerPool:
    return self

  def __exit__(self, *unused_error: Any) -> None:
    # All results have been read, or nobody wants them.
    for child in self._children:
      child.kill()
    if not self._children:
      return
    self._children = []
    pool: Any = self._pool
    thread = pool._executor_manager_thread
    ends = pool._result_queue._writer, pool._call_queue._reader
    pool.shutdown(wait=False, cancel_futures=True)
    thread.join(1.0)
    # It may wait for a dead process to send the rest of a result, or to read
    # that of an item, because this process has these ends of the pipes, too.
    if thread.is_alive():
      for end in ends:
        end.close()
      thread.join()


def _context() -> Any:
  """Returns the context of "fork", which starts faster, if that is safe.

  A fork of a process with other threads, such as TensorFlow's, may wait forever
  for a lock that one of them holds.
  """
  alone = threading.active_count() == 1 and "tensorflow" not in sys.modules
  method = "fork" if alone and sys.platform == "linux" else "spawn"
  return multiprocessing.get_context(method)


def _start_worker() -> None:
  """Prepares a process of the pool."""
  # Not the parent's handlers.
  signal.signal(signal.SIGINT, signal.SIG_IGN)
  signal.signal(signal.SIGTERM, signal.SIG_DFL)
  threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
  """Ends this process when its parent has ended, at once."""
  parent = multiprocessing.parent_process()
  multiprocessing.connection.wait([parent.sentinel])
  os._exit(1)
