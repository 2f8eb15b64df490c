"""Builds a folder of pretraining records with the processes of one machine.

    text --tokenize--> tokens --write_shard--> shards

The parent reads files, which may be in a bucket; workers load no TensorFlow.
What a build that was killed has done is in JSON files beside the tokens: the
number of blocks, and what is counted in each finished shard.
"""

from __future__ import annotations

import contextlib
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


@contextlib.contextmanager
def open_build(
  settings: build_worker.BuildSettings, **more: Any
) -> Iterator[tuple[build_worker.Job, documents.DocumentReader, str]]:
  """Opens a build, a new one or one with equal settings to resume.

  `more` are other values that have to be equal. Yields what makes the shards,
  the input, and the folder of the unfinished build, which has a copy of the
  tokenizer.
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
    [*itertools.chain(*settings.shards.values())],
  ) as staging:
    copy = os.path.join(staging, tfrecords.TOKENIZER_FILES[tokenizer.kind])
    files.copy(tokenizer.model_file, copy)
    yield job, reader, staging


def build_dataset(
  settings: build_worker.BuildSettings, report: _Report = lambda *unused: None
) -> tfrecords.Manifest:
  """Builds a dataset, or resumes an unfinished build; returns the manifest.

  `report` is called after every piece of work.
  """
  # Another release may cut the text in other blocks.
  with open_build(settings, block_bytes=documents.BLOCK_BYTES) as opened:
    job, reader, staging = opened
    _tokenize(job, reader, staging, report)
    _write_shards(job, staging, report)
    manifest = job.make_manifest(reader.weights, staging)
    output_folder.finish(settings.output_dir, staging, manifest, report)
  return manifest


def _tokenize(
  job: build_worker.Job,
  reader: documents.DocumentReader,
  staging: str,
  report: _Report,
) -> None:
  """Tokenizes what is missing."""
  note = os.path.join(staging, "tokens.json")
  done: dict[str, Any] = {"blocks": 0, "sizes": [0, 0, 0], "is_complete": False}
  if files.exists(note):
    done = files.read_json(note, dict[str, Any], "remove its folder")
  token_store.cut_off(staging, done["sizes"])
  if done["is_complete"]:
    return
  # All blocks are read, because seeking in compressed files is complicated.
  missing = itertools.islice(reader.blocks(), done["blocks"], None)
  num_tokens = 0
  with _map(job, job.tokenize, missing) as made:
    while not done["is_complete"]:
      parts = [*itertools.islice(made, _BLOCKS_PER_NOTE)]
      for part in parts:
        done["sizes"] = token_store.append(staging, part)
        num_tokens += len(part.ids)
      done["blocks"] += len(parts)
      done["is_complete"] = not parts
      files.write_json(note, done)
      share = reader.bytes_read / max(1, reader.total_bytes)
      report("tokenizing", share, num_tokens, f"{done['blocks']:,} blocks")
  if not done["sizes"][0]:
    raise ValueError(
      f"there is no text in {files.quote(job.settings.input_files, most=200)}: "
      "there must be at least one document."
    )


def _map(job, function, items) -> Any:
  """Maps by the processes of the settings; a context manager that ends them."""
  num_workers = job.settings.num_workers or machine.cpu_count()
  mapped = worker_pool.parallel_map(function, items, num_workers)
  return contextlib.closing(mapped)


# A process maps the tokens once.
@functools.lru_cache(1)
def _open_splits(
  job: build_worker.Job, staging: str
) -> dict[str, token_store.Documents]:
  """Returns the documents of each split; all text must be tokenized before."""
  settings = job.settings
  return token_store.split_documents(
    files.quote(settings.input_files, most=200),
    token_store.open_documents(staging, job.tokenizer.vocab_size),
    settings.heldout_share,
    2 if settings.examples.sentence_pair == "nsp" else 1,
    settings.drop_duplicates,
  )


def _write_shard(
  job: build_worker.Job, staging: str, shard: tuple[str, int]
) -> None:
  """Writes the shard with an index of a split."""
  folder = job.settings.output_dir
  if files.is_remote(folder):
    folder = staging
  documents_of_split = _open_splits(job, staging)[shard[0]]
  job.write_shard(folder, staging, documents_of_split, *shard)


def _write_shards(job: build_worker.Job, staging: str, report: _Report) -> None:
  """Writes the missing shards."""
  missing, counts = [], []
  for name, found in _open_splits(job, staging).items():
    shards = job.settings.shards[name]
    _check_memory(job.settings, found.rows, len(shards))
    # Shards have about the same number of tokens.
    tokens = int((found.rows["copies"] * found.rows["tokens"]).sum())
    for index, file in enumerate(shards):
      if not files.exists(os.path.join(staging, f"{file}.json")):
        missing.append((name, index))
        counts.append(tokens / len(shards))
  if not missing:
    return
  output_folder.remove_files(job.settings.output_dir, [tfrecords.MANIFEST_FILE])
  with _map(
    job, functools.partial(_write_shard, job, staging), missing
  ) as made:
    for number, _ in enumerate(made, 1):
      report(
        "making examples",
        number / len(missing),
        int(sum(counts[:number])),
        f"{number:,} of {len(missing):,} shards",
      )


def _check_memory(
  settings: build_worker.BuildSettings, rows: np.ndarray, num_shards: int
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
