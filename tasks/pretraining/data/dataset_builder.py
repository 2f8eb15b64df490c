"""Builds a folder of pretraining records with the processes of one machine.

    text --tokenize--> tokens --write_shard--> shards

The parent reads files, which may be in a bucket; workers load TensorFlow only
to write to one. What is finished has its own file, and a restart skips it: the
tokens of a block, those of all blocks, and each shard with its note.
"""

from __future__ import annotations

import contextlib
import functools
import os
import unicodedata
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
from official_albert.tasks.pretraining.data.settings import (
  HELDOUT,
  BuildSettings,
)

# What examples may take of the memory; their size is estimated too high.
_MEMORY_SHARE = 0.5

# Called with the phase, the share of it that is done, the number of tokens, and
# other numbers as text.
_Report = Callable[[str, float, int, str], None]


@contextlib.contextmanager
def open_build(
  settings: BuildSettings, **more: Any
) -> Iterator[tuple[build_worker.Job, documents.DocumentReader, str]]:
  """Opens a build, a new one or one with equal settings to resume.

  `more` are other values that have to be equal. Yields what makes the shards,
  the input, and the local folder of the unfinished build.
  """
  found = documents.find_files(settings.input_files)
  reader = documents.DocumentReader(found, settings.reading)
  job = build_worker.Job(settings)  # Raises an error before any work.
  wanted = {
    # Another release of NumPy may generate other random numbers.
    "numpy": np.__version__,
    # Another release of Python may normalize other characters.
    "unicode": unicodedata.unidata_version,
    "tokenizer": job.tokenizer.sha256,
    **settings.content(found),
    "random_seed": settings.random_seed,
    # Reading a corpus twice for a checksum would take longer than most resumed
    # builds save.
    "input_files": [[path, *stat] for path, stat in reader.stats.items()],
    **more,
  }
  with output_folder.unfinished(settings, wanted) as staging:
    yield job, reader, staging


def build_dataset(
  settings: BuildSettings, report: _Report = lambda *unused: None
) -> tfrecords.Manifest:
  """Builds a dataset, or resumes an unfinished build; returns the manifest.

  `report` is called after every piece of work.
  """
  # Another release may cut the text in other blocks.
  with open_build(settings, block_bytes=documents.BLOCK_BYTES) as opened:
    job, reader, staging = opened
    if not token_store.is_joined(staging):
      _tokenize(job, reader, staging, report)
    _write_shards(job, staging, report)
    return output_folder.finish(job, reader.weights)


def _map(job, function, items) -> Any:
  """Maps by the processes of the settings; a context manager that ends them."""
  num_workers = job.settings.num_workers or machine.cpu_count()
  mapped = worker_pool.parallel_map(function, items, num_workers)
  return contextlib.closing(mapped)


def _tokenize(
  job: build_worker.Job,
  reader: documents.DocumentReader,
  staging: str,
  report: _Report,
) -> None:
  """Tokenizes the blocks that have no file yet, and joins the files of all."""
  paths, num_tokens = list[str](), 0

  def missing() -> Iterator[tuple[documents.Block, str]]:
    # All blocks are read, because seeking in compressed files is complicated.
    for number, block in enumerate(reader.blocks()):
      paths.append(os.path.join(staging, f"{number:08d}.npz"))
      if not files.exists(paths[-1]):
        yield block, paths[-1]

  with _map(job, functools.partial(_tokenize_block, job), missing()) as counts:
    for count in counts:
      num_tokens += count
      share = reader.bytes_read / max(1, reader.total_bytes)
      report("tokenizing", share, num_tokens, f"{len(paths):,} blocks")
  token_store.join_parts(staging, paths)


def _tokenize_block(
  job: build_worker.Job, item: tuple[documents.Block, str]
) -> int:
  block, path = item
  found = job.tokenize(block)
  token_store.write_part(path, found)
  return len(found.marked)


# A process maps the tokens once.
@functools.lru_cache(2)
def _open_split(
  job: build_worker.Job, staging: str, name: str
) -> token_store.Documents:
  """Returns the documents of a split; all text must be tokenized before."""
  del job  # Another build may have the same folder.
  found = token_store.open_documents(staging)
  is_there = found.rows["is_heldout"] == (name == HELDOUT)
  return found.take(np.flatnonzero(is_there))


def _write_shard(
  job: build_worker.Job, staging: str, shard: tuple[str, int]
) -> int:
  """Writes the shard with an index of a split."""
  name, index = shard
  split = _open_split(job, staging, name)
  num_shards = len(job.settings.shards[name])
  duplicates = token_store.duplicates_of(split.rows, index, num_shards)
  own = np.unique([document for document, _ in duplicates]).astype(np.int64)
  return job.write_shard(split.take(own), name, index)


def _write_shards(job: build_worker.Job, staging: str, report: _Report) -> None:
  """Writes the missing shards."""
  folder = job.settings.output_dir
  finished = output_folder.list_names(
    os.path.join(folder, build_worker.UNFINISHED)
  )
  missing = []
  for name, shards in job.settings.shards.items():
    rows = _open_split(job, staging, name).rows
    _check_memory(job.settings, rows, len(shards))
    for index, file in enumerate(shards):
      if f"{file}.json" not in finished:
        missing.append((name, index))
  if not missing:
    return
  output_folder.remove_files(folder, [tfrecords.MANIFEST_FILE])
  write, num_tokens = functools.partial(_write_shard, job, staging), 0
  with _map(job, write, missing) as counts:
    for number, count in enumerate(counts, 1):
      num_tokens += count
      progress = f"{number:,} of {len(missing):,} shards"
      report("making examples", number / len(missing), num_tokens, progress)


def _check_memory(
  settings: BuildSettings, rows: np.ndarray, num_shards: int
) -> None:
  """Raises OSError if each process cannot hold a shard.

  By a high estimate, records have 20 bytes a token of the text; and each
  document ends with one that is not full, with 8 bytes for each position.
  """
  rest = 8 * settings.examples.max_seq_length
  size = float((rows["copies"] * (20.0 * rows["tokens"] + rest)).sum())
  size /= num_shards
  processes = min(settings.num_workers or machine.cpu_count(), num_shards)
  memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
  available = _MEMORY_SHARE * memory / processes
  if size > available:
    raise OSError(
      f"a shard takes about {size / 2**30:.1f} GiB, too much for {processes} "
      "processes at a time: use --num_shards="
      f"{int(num_shards * size / available) + 1}; the same command with it "
      "goes on where this one stopped."
    )
