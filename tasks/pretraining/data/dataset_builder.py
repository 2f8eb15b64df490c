"""Builds a folder of pretraining records with the processes of one machine.

    text --tokenize--> tokens --write_shard--> shards

The parent reads files, which may be in a bucket; workers load no TensorFlow.
What a build that was killed has done is in JSON files beside the tokens: the
number of blocks, and what is counted in each finished shard.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import os
from typing import Any, Callable, Iterator

import numpy as np

from official_albert import files, machine, tfrecords
from official_albert.tasks.pretraining.data import (
  build_worker,
  documents,
  output_folder,
  token_store,
  worker_pool,
)

_BLOCKS_PER_NOTE = 64  # About 16 MB of text.
# What examples may take of the memory; their size is estimated too high.
_MEMORY_SHARE = 0.5

# Called with the phase, the share of it that is done, the number of tokens, and
# other numbers as text.
_Report = Callable[[str, float, int, str], None]


@dataclasses.dataclass(frozen=True)
class Build:
  """A build of a dataset in its unfinished folder `staging`, for any engine."""

  reader: documents.DocumentReader
  job: build_worker.Job
  staging: str
  tokenizer_copy: str

  @property
  def settings(self) -> build_worker.BuildSettings:
    """The settings with the copy of the tokenizer."""
    return self.job.settings.with_tokenizer(self.tokenizer_copy)


@contextlib.contextmanager
def open_build(
  settings: build_worker.BuildSettings, **more: Any
) -> Iterator[Build]:
  """Opens a build, a new one or one with equal settings to resume.

  `more` are other values that have to be equal.
  """
  reader = documents.DocumentReader(
    documents.find_weighted_files(settings.input_files), settings.reading
  )
  job = build_worker.Job(settings)  # Raises an error before any work.
  tokenizer = job.tokenizer
  with output_folder.unfinished(
    settings.output_dir,
    settings.overwrite,
    {**settings.fingerprint(reader, tokenizer.sha256), **more},
    [*itertools.chain(*map(settings.shards, settings.splits))],
  ) as staging:
    copy = os.path.join(staging, tfrecords.TOKENIZER_FILES[tokenizer.kind])
    files.copy(tokenizer.model_file, copy)
    yield Build(reader, job, staging, copy)


def build_dataset(
  settings: build_worker.BuildSettings, report: _Report = lambda *unused: None
) -> tfrecords.Manifest:
  """Builds a dataset, or resumes an unfinished build; returns the manifest.

  `report` is called after every piece of work.
  """
  num_workers = settings.num_workers or machine.cpu_count()
  with (
    # Another release may cut the text in other blocks.
    open_build(settings, block_bytes=documents.BLOCK_BYTES) as build,
    worker_pool.WorkerPool(num_workers) as pool,
  ):
    _tokenize(build, pool, report)
    _open_splits.cache_clear()  # An earlier build may have had the same folder.
    splits = _open_splits(build.settings, build.staging)
    for name, split in splits.items():
      _write_shards(build, pool, name, split, report)
    manifest = build.job.make_manifest(build.reader.weights, build.staging)
    output_folder.finish(settings.output_dir, build.staging, manifest, report)
  return manifest


# A process opens the tokenizer and maps the tokens once.
open_job = functools.lru_cache(1)(build_worker.Job)


@functools.lru_cache(1)
def _open_splits(
  settings: build_worker.BuildSettings, staging: str
) -> dict[str, token_store.Split]:
  """Returns the documents of each split; all text must be tokenized before."""
  vocabulary = open_job(settings).vocabulary
  return token_store.split_documents(
    files.quote_paths(settings.input_files),
    token_store.open_documents(staging, vocabulary.size),
    settings.heldout_share,
    2 if settings.examples.sentence_pair == "nsp" else 1,
    settings.drop_duplicates,
  )


def _tokenize_block(
  settings: build_worker.BuildSettings, block: documents.Block
) -> token_store.Documents:
  return open_job(settings).tokenize(block)


def _write_shard(
  settings: build_worker.BuildSettings, staging: str, shard: tuple[str, int]
) -> None:
  """Writes the shard with an index of a split."""
  name, index = shard
  folder = settings.output_dir
  if files.is_remote(folder):
    folder = staging
  split = _open_splits(settings, staging)[name]
  open_job(settings).write_shard(folder, staging, split, name, index)


def _tokenize(
  build: Build, pool: worker_pool.WorkerPool, report: _Report
) -> None:
  """Tokenizes what is missing."""
  reader = build.reader
  note = os.path.join(build.staging, "tokens.json")
  done: dict[str, Any] = {"blocks": 0, "sizes": [0, 0, 0], "is_complete": False}
  if files.exists(note):
    done = files.read_json(note, dict[str, Any], "remove its folder")
  token_store.cut_off(build.staging, done["sizes"])
  # All blocks are read, because seeking in compressed files is complicated.
  missing = itertools.islice(reader.blocks(), done["blocks"], None)
  made = pool.map(functools.partial(_tokenize_block, build.settings), missing)
  num_documents = num_tokens = 0
  while not done["is_complete"]:
    parts = []
    for part in itertools.islice(made, _BLOCKS_PER_NOTE):
      parts.append(part)
      num_documents += len(part)
      num_tokens += len(part.ids)
      report(
        "tokenizing",
        reader.bytes_read / max(1, reader.total_bytes),
        num_tokens,
        f"{num_documents:,} documents",
      )
    for part in parts:
      done["sizes"] = token_store.append(build.staging, part)
    done["blocks"] += len(parts)
    done["is_complete"] = not parts
    files.write_json(note, done)
  if not done["sizes"][0]:
    raise ValueError(
      f"there is no text in {files.quote_paths(build.settings.input_files)}: "
      "there must be at least one document."
    )


def _write_shards(
  build: Build,
  pool: worker_pool.WorkerPool,
  name: str,
  split: token_store.Split,
  report: _Report,
) -> None:
  """Writes the missing shards of a split."""
  settings, rows = build.settings, split.documents.rows
  _check_memory(settings, rows, settings.splits[name], pool.num_workers)
  shards = settings.shards(name)
  missing = [
    (name, index)
    for index, file in enumerate(shards)
    if not files.exists(os.path.join(build.staging, f"{file}.json"))
  ]
  if missing:
    output_folder.remove_files(settings.output_dir, [tfrecords.MANIFEST_FILE])
  function = functools.partial(_write_shard, settings, build.staging)
  # Shards have about the same number of tokens.
  tokens = int((rows["copies"] * rows["tokens"]).sum()) / len(shards)
  for count, _ in enumerate(pool.map(function, missing), 1):
    finished = len(shards) - len(missing) + count
    report(
      f"making {name} examples",
      count / len(missing),
      int(count * tokens),
      f"{finished:,} of {len(shards):,} shards",
    )


def _check_memory(
  settings: build_worker.BuildSettings,
  rows: np.ndarray,
  num_shards: int,
  num_workers: int,
) -> None:
  """Raises OSError if each process cannot hold a shard.

  By a high estimate, records have 20 bytes a token of the text; and each
  document ends with one that is not full, with 8 bytes for each position.
  """
  rest = 8 * settings.examples.max_seq_length
  size = float((rows["copies"] * (20.0 * rows["tokens"] + rest)).sum())
  size /= num_shards
  processes = min(num_workers, num_shards)
  memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
  available = _MEMORY_SHARE * memory / processes
  if size > available:
    raise OSError(
      f"a shard takes about {size / 2**30:.1f} GiB, too much for {processes} "
      "processes at a time: use --num_shards="
      f"{int(num_shards * size / available) + 1}; the same command with it "
      "goes on where this one stopped."
    )
