"""Builds a folder of pretraining records with the processes of one machine.

    text --tokenize--> tokens --write_shard--> shards

The parent reads files, which may be in a bucket; workers load TensorFlow only
to write to one. What is finished has its own file, and a restart skips it: the
tokens of a block, those of all blocks, and each shard with its note.

Shards get their final names in the output folder, and the manifest is written
last. Everything else is in the folder `.unfinished` inside. It stays there
after a kill or an OSError, and the same command resumes the build; after a
ValueError, it is removed with the shards. For an output folder in a bucket, the
tokens, the settings and the lock are in the user's cache, so that only the same
machine resumes a build.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import math
import os
import re
import shutil
import unicodedata
from typing import Any, Callable, Iterable, Iterator, Mapping

import numpy as np

from official_albert import files, machine, tfrecords, tokenization
from official_albert.tasks.pretraining.data import (
  build_worker,
  documents,
  sentence_pairs,
  worker_pool,
)
from official_albert.tasks.pretraining.data.settings import (
  HELDOUT,
  BuildSettings,
)

_STAGING, _SETTINGS, _LOCK = build_worker.UNFINISHED, "settings.json", ".lock"
# A shard, or what a killed process leaves of one.
_SHARD = re.compile(r"\w+-\d{5}-of-\d{5}\.tfrecord(\.[0-9a-f]{16}\.tmp)?")
# The files with the tokens of all documents, and with what else is known of
# them; the last one appears last.
_COLUMNS = ("marked", "rows")
_ROW = np.dtype(
  {
    "names": ["tokens", "text", "content", "copies", "is_heldout"],
    "formats": [np.int64, np.uint64, np.uint64, np.int32, bool],
  }
)
# What examples may take of the memory; their size is estimated too high.
_MEMORY_SHARE = 0.5
_Report = Callable[[str, float, int, str], None]
_Shared = tuple[build_worker.Job, str]  # With the folder of the tokens.


def local_folder(output_dir: str) -> str:
  """Returns the output folder, or the local one that stands for an address."""
  if not files.is_remote(output_dir):
    return output_dir
  digest = hashlib.sha256(output_dir.rstrip("/").encode()).hexdigest()
  cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
  folder = os.path.join(os.path.expanduser(cache), "official_albert")
  return os.path.join(folder, f"build-{digest[:16]}")


@contextlib.contextmanager
def open_build(
  settings: BuildSettings,
) -> Iterator[tuple[build_worker.Job, documents.DocumentReader, str]]:
  """Opens a build, a new one or one with equal settings to resume.

  Yields what makes the shards, the input, and the local folder of the
  unfinished build, which is removed at the end, unless the build can be resumed
  after an error.
  """
  weights = documents.find_files(settings.input_files)
  for path, weight in weights.items():
    if weight * settings.dupe_factor < 1:
      raise ValueError(
        f"{path} has the weight {weight:g}, but documents are used at least "
        f"once: give --dupe_factor={math.ceil(1 / weight)} or more."
      )
  reader = documents.DocumentReader(weights, settings.reading)
  job = build_worker.Job(settings)  # Raises an error before any work.
  wanted = {
    # Another release of NumPy may generate other random numbers.
    "numpy": np.__version__,
    # Another release of Python may normalize other characters.
    "unicode": unicodedata.unidata_version,
    "tokenizer": job.tokenizer.sha256,
    **settings.content(weights),
    "random_seed": settings.random_seed,
    # Checksums would take longer than most resumed builds save.
    "input_files": [[path, *stat] for path, stat in reader.stats.items()],
    # Another release may cut the text in other blocks.
    "block_bytes": documents.BLOCK_BYTES,
  }
  output_dir = settings.output_dir
  files.check_folder(output_dir)
  if not settings.overwrite and _has_dataset(output_dir):
    raise ValueError(
      f"{output_dir!r} already holds a dataset ({tfrecords.MANIFEST_FILE}): "
      "choose another output_dir, or replace it with --overwrite."
    )
  local = local_folder(output_dir)
  staging, lock = (os.path.join(local, name) for name in (_STAGING, _LOCK))
  os.makedirs(local, exist_ok=True)
  with contextlib.ExitStack() as stack:
    stack.callback(files.remove_empty, local)
    # A file, because NFS locks nothing that is open for reading only.
    stack.enter_context(
      files.lock(
        lock,
        f"another process is building a dataset in {output_dir!r}: wait until "
        "it ends, or choose another output_dir.",
      )
    )
    stack.callback(os.remove, lock)
    _prepare(settings, staging, wanted)
    try:
      yield job, reader, staging
    except BaseException as error:
      if isinstance(error, ValueError) or os.listdir(staging) == [_SETTINGS]:
        _remove(output_dir, staging)
        if not _has_dataset(output_dir):  # It may be there from before.
          remove_files(output_dir, itertools.chain(*settings.shards.values()))
      raise
    _remove(output_dir, staging)


def _prepare(
  settings: BuildSettings, staging: str, wanted: Mapping[str, Any]
) -> None:
  """Makes the folder, or leaves that of the same build as it is."""
  note = os.path.join(staging, _SETTINGS)
  found = {}
  if files.exists(note):
    found = files.read_json(note, dict[str, Any], "remove its folder")
  names = {**found, **wanted}
  different = [x for x in names if found.get(x) != wanted.get(x)]
  if found and different and not settings.overwrite:
    raise ValueError(
      f"{staging} holds an unfinished build with other settings "
      f"({', '.join(different)}): repeat its command to resume it, with the "
      "same Python and packages; use --overwrite or remove it to start over."
    )
  if different:
    _remove(settings.output_dir, staging)
    os.makedirs(staging)
    files.write_json(note, wanted)


def _remove(output_dir: str, staging: str) -> None:
  """Removes an unfinished build, its settings first: no part is resumed."""
  with contextlib.suppress(FileNotFoundError):
    os.remove(os.path.join(staging, _SETTINGS))
  shutil.rmtree(staging, ignore_errors=True)
  files.remove_tree(os.path.join(output_dir, _STAGING))


def _has_dataset(output_dir: str) -> bool:
  return files.exists(os.path.join(output_dir, tfrecords.MANIFEST_FILE))


def list_names(folder: str) -> set[str]:
  """Returns the names in a folder; one in a bucket need not be there."""
  return {*files.list_dir(folder)} if files.is_dir(folder) else set()


def remove_files(output_dir: str, names: Iterable[str]) -> None:
  """Removes files of a folder, as far as they are there."""
  for name in list_names(output_dir) & {*names}:
    files.remove(os.path.join(output_dir, name))


def finish(
  job: build_worker.Job, weights: Mapping[str, float]
) -> tfrecords.Manifest:
  """Completes the folder of a dataset whose shards are made.

  Shards of other datasets are removed, the tokenizer is copied, and the
  manifest is written last. `weights` are those of the input files.
  """
  manifest, output_dir = job.make_manifest(weights), job.settings.output_dir
  shards = [x.file for split in manifest.splits.values() for x in split.shards]
  others = {tfrecords.MANIFEST_FILE, *tokenization.TOKENIZER_FILES.values()}
  others.update(filter(_SHARD.fullmatch, list_names(output_dir)))
  remove_files(output_dir, others - {manifest.tokenizer.file, *shards})
  target = os.path.join(output_dir, manifest.tokenizer.file)
  files.copy(job.tokenizer.model_file, target)
  tfrecords.write_manifest(output_dir, manifest)
  return manifest


def build_dataset(
  settings: BuildSettings, report: _Report = lambda *unused: None
) -> tfrecords.Manifest:
  """Builds a dataset, or resumes an unfinished build; returns the manifest.

  `report` is called after every piece of work with the phase, the share of it
  that is done, the number of tokens, and other numbers as text.
  """
  with open_build(settings) as (job, reader, staging):
    shared, workers = (job, staging), settings.num_workers
    with worker_pool.open_pool(shared, workers) as parallel_map:
      if not files.exists(os.path.join(staging, _COLUMNS[-1])):
        _tokenize(parallel_map, reader, staging, report)
      _write_shards(parallel_map, job, staging, report)
    return finish(job, reader.weights)


def _tokenize(
  parallel_map: worker_pool.ParallelMap,
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

  for count in parallel_map(_tokenize_block, missing()):
    num_tokens += count
    share = reader.bytes_read / max(1, reader.total_bytes)
    report("tokenizing", share, num_tokens, f"{len(paths):,} blocks")
  for name in _COLUMNS:
    target = os.path.join(staging, name)
    with files.replacing(target) as temporary, open(temporary, "wb") as file:
      for path in paths:
        with np.load(path) as part:
          file.write(part[name].tobytes())
  for path in paths:
    os.remove(path)


def _tokenize_block(shared: _Shared, item: tuple[documents.Block, str]) -> int:
  """Writes the tokens of a block, the first of each sentence as ~id."""
  (job, _), (block, path) = shared, item
  parts, rows = [np.zeros(0, np.int32)], []
  for *row, (ids, offsets) in job.tokenize(block):
    ids[offsets[:-1]] ^= -1
    parts.append(ids)
    rows.append((len(ids), *row))
  with files.replacing(path) as temporary, open(temporary, "wb") as file:
    marked = np.concatenate(parts)
    np.savez(file, marked=marked, rows=np.array(rows, _ROW))
  return len(marked)


# A process reads them once.
@functools.lru_cache(1)
def _read_rows(job: build_worker.Job, staging: str) -> np.ndarray:
  """Returns the rows of all documents; the text must be tokenized before."""
  rows = np.fromfile(os.path.join(staging, "rows"), _ROW)
  if not len(rows):
    raise ValueError(
      f"there is no text in {files.quote(job.settings.input_files, most=200)}: "
      "there must be at least one document."
    )
  if job.settings.heldout_share and not rows["is_heldout"].any():
    # A small corpus; Beam would refuse it.
    rows["is_heldout"] = rows["text"] == rows["text"].min()
    rows["copies"][rows["is_heldout"]] = 1
  return rows


def _write_shard(shared: _Shared, shard: tuple[str, int]) -> int:
  """Writes a shard of a split."""
  (job, staging), (name, index) = shared, shard
  rows, num_shards = _read_rows(job, staging), len(job.settings.shards[name])
  is_there = np.zeros(len(rows), bool)
  for duplicate in range(rows["copies"].max()):
    shards = build_worker.shards_of(rows["text"], duplicate, num_shards)
    is_there |= (shards == index) & (rows["copies"] > duplicate)
  is_there &= rows["is_heldout"] == (name == HELDOUT)
  ends = np.cumsum(rows["tokens"])
  # A plain array over the map: slicing np.memmap is ten times slower.
  tokens = np.asarray(np.memmap(os.path.join(staging, "marked"), np.int32, "r"))
  found = []
  for (size, *row), end in zip(rows[is_there].tolist(), ends[is_there]):
    marked = tokens[end - size : end]
    offsets = np.append(np.flatnonzero(marked < 0), size)
    ids = np.where(marked < 0, ~marked, marked)
    row.append(sentence_pairs.Document(ids, offsets))
    found.append(build_worker.Tokenized(*row))
  return job.write_shard(found, name, index)


def _write_shards(
  parallel_map: worker_pool.ParallelMap,
  job: build_worker.Job,
  staging: str,
  report: _Report,
) -> None:
  """Writes the missing shards."""
  folder = job.settings.output_dir
  finished = list_names(os.path.join(folder, build_worker.UNFINISHED))
  missing, rows = [], _read_rows(job, staging)
  for name, shards in job.settings.shards.items():
    is_there = rows["is_heldout"] == (name == HELDOUT)
    _check_memory(job.settings, rows[is_there], len(shards))
    places = enumerate(shards)
    missing += [(name, i) for i, x in places if f"{x}.json" not in finished]
  if not missing:
    return
  remove_files(folder, [tfrecords.MANIFEST_FILE])
  num_tokens = 0
  for number, count in enumerate(parallel_map(_write_shard, missing), 1):
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
  total = float((rows["copies"] * (20.0 * rows["tokens"] + rest)).sum())
  processes = min(settings.num_workers or machine.cpu_count(), num_shards)
  memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
  needed = total * processes / (_MEMORY_SHARE * memory)
  if num_shards < needed:
    raise OSError(
      f"a shard takes about {total / num_shards / 2**30:.1f} GiB, too much for "
      f"{processes} processes at a time: use --num_shards={int(needed) + 1}; "
      "the same command with it goes on where this one stopped."
    )
