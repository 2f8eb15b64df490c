"""Text files to a folder of pretraining records, start to end.

    text --tokenize--> token store --make--> bucket files --> shards, manifest

Two passes: all text is tokenized into a store on disk; then, for each
duplicate of each document, examples are made and put in a random global order.
The same input, settings and seed give the same bytes for any number of
workers. Everything is written in a folder of its own inside the output folder
and moved into place at the end, the manifest last; a run that fails leaves
nothing behind.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import shutil
from typing import Any, Callable, Iterator, Sequence

import numpy as np

from tasks.pretraining import (
  build_worker,
  data_statistics,
  documents,
  examples,
  heldout,
  output_folder,
  token_store,
  worker_pool,
)
from tfrecords import external_sort, schemas

_BATCH_CHARACTERS = 1 << 18  # Of text that a worker tokenizes at once.
_UNIT_TOKENS = 1 << 16  # Of text that a worker makes examples of at once.
# Generous: a full sequence of 512 takes 5.3 bytes a token, a short one more.
_BYTES_PER_TOKEN = 8


@dataclasses.dataclass(frozen=True)
class BuildSettings:
  """All settings of a dataset; see the flags of tools.create_pretraining_data.

  Exactly one of `spm_model_file` (SentencePiece) and `vocab_file` (WordPiece)
  must be given. `num_workers` 0 means one for each processor. Held-out
  documents are written once, whatever `dupe_factor` is.
  """

  input_files: str
  output_dir: str
  spm_model_file: str = ""
  vocab_file: str = ""
  do_lower_case: bool = True
  reading: documents.ReaderSettings = documents.ReaderSettings()
  examples: examples.ExampleSettings = examples.ExampleSettings()
  dupe_factor: int = 40
  random_seed: int = 12345
  heldout_share: float = 0.0
  num_shards: int = 8
  num_heldout_shards: int = 1
  num_workers: int = 1
  overwrite: bool = False

  def __post_init__(self):
    for name, least in (
      ("dupe_factor", 1),
      ("random_seed", 0),
      ("num_shards", 1),
      ("num_heldout_shards", 1),
      ("num_workers", 0),
    ):
      if getattr(self, name) < least:
        raise ValueError(
          f"{name} is {getattr(self, name)}, but must be at least {least}."
        )
    if not 0 <= self.heldout_share < 1:
      raise ValueError(
        f"heldout_share is {self.heldout_share}, but must be from 0 to below "
        "1: the share of documents that are not trained on."
      )

  def content(self, input_files: Sequence[str]) -> dict[str, Any]:
    """What shapes the records, for the manifest."""
    return {
      "input_files": [os.path.basename(path) for path in input_files],
      "do_lower_case": self.do_lower_case,
      **self.reading.content(input_files),
      **dataclasses.asdict(self.examples),
      "dupe_factor": self.dupe_factor,
      "heldout_share": self.heldout_share,
    }


@dataclasses.dataclass(frozen=True)
class Progress:
  """How far a run has come; `fraction` is of the phase."""

  phase: str
  documents: int
  instances: int
  tokens: int
  fraction: float


def build_dataset(
  settings: BuildSettings,
  report: Callable[[Progress], None] = lambda progress: None,
) -> schemas.Manifest:
  """Makes the dataset.

  Args:
    settings: what to make of what.
    report: called with the progress after every piece of work.

  Returns:
    The manifest that has been written.

  Raises:
    FileNotFoundError: an input or model file is missing.
    ValueError: a setting or the input is of no use; the message says why.
    OSError: the output folder can't be written.
  """
  paths = documents.find_files(settings.input_files)
  reader = documents.DocumentReader(paths, settings.reading)
  with output_folder.staging_folder(
    settings.output_dir, settings.overwrite
  ) as staging:
    job = build_worker.Job(
      settings.spm_model_file,
      settings.do_lower_case,
      settings.examples,
      settings.random_seed,
      staging,
      settings.vocab_file,
    )
    tokenizer = job.tokenizer  # Loaded here first: complains before any work.
    with worker_pool.WorkerPool(
      settings.num_workers or worker_pool.num_cpus(),
      build_worker.set_job,
      [dataclasses.replace(job)],  # Without what this one has opened.
    ) as pool:
      pieces = _tokenize(pool, job, reader, report)
      splits = {
        name: _make_split(pool, job, name, text, settings, report)
        for name, text in _split(job, pieces, settings).items()
      }
    build_worker.set_job(None)
    manifest = schemas.Manifest(
      task="pretraining",
      max_seq_length=settings.examples.max_seq_length,
      max_predictions_per_seq=settings.examples.max_predictions_per_seq,
      features=job.schema,
      tokenizer=schemas.TokenizerInfo(
        tokenizer.sha256,
        tokenizer.vocab_size,
        tokenizer.lower_case,
        tokenizer.kind,
      ),
      settings={
        **settings.content(paths),
        **_masking_ids(job),
        "skipped_documents": dataclasses.asdict(reader.skipped),
      },
      random_seed=settings.random_seed,
      splits=splits,
    )
    shutil.copyfile(
      tokenizer.model_file, os.path.join(staging, manifest.tokenizer.file)
    )
    output_folder.publish(staging, settings.output_dir, manifest)
  return manifest


def _masking_ids(job: build_worker.Job) -> dict[str, Any]:
  """What masking while training has to know of the tokenizer."""
  if job.settings.masking != "dynamic":
    return {}
  return {
    "mask_id": job.vocabulary.mask_id,
    "special_ids": sorted(job.vocabulary.special_ids),
  }


def _text_batches(
  reader: documents.DocumentReader,
) -> Iterator[list[list[str]]]:
  batch, size = [], 0
  for document in reader:
    batch.append(document)
    size += sum(map(len, document))
    if size >= _BATCH_CHARACTERS:
      yield batch
      batch, size = [], 0
  if batch:
    yield batch


def _tokenize(
  pool: worker_pool.WorkerPool,
  job: build_worker.Job,
  reader: documents.DocumentReader,
  report: Callable[[Progress], None],
) -> np.ndarray:
  """Fills the token store; returns the counts of all pieces, <int64>[V]."""
  vocab_size = job.vocabulary.size
  pieces = np.zeros(vocab_size, np.int64)
  count = tokens = 0
  with token_store.TokenStoreWriter(job.store_folder, vocab_size) as store:
    for result in pool.map(build_worker.tokenize, _text_batches(reader)):
      pieces += result.piece_counts
      for ids, lengths in result.documents:
        if len(ids):
          store.append(ids, lengths)
          count += 1
          tokens += len(ids)
      fraction = reader.bytes_read / max(1, reader.total_bytes)
      report(Progress("tokenizing", count, 0, tokens, fraction))
  if not count:
    raise ValueError(
      "no text in the input files: there must be at least one document."
    )
  return pieces


def _split(
  job: build_worker.Job, pieces: np.ndarray, settings: BuildSettings
) -> dict[str, data_statistics.TextCounts]:
  """Decides which documents are held out; counts the text of each split."""
  numbers = heldout.split_documents(
    len(job.store),
    settings.heldout_share,
    settings.random_seed,
    settings.examples.sentence_pair,
  )
  for name, values in numbers.items():
    np.save(job.split_file(name), values)
  counts = {
    name: data_statistics.TextCounts.zero(len(pieces)) for name in numbers
  }
  counts[heldout.TRAIN] = data_statistics.TextCounts(
    len(job.store), job.store.num_segments, pieces
  )
  for number in numbers.get(heldout.HELDOUT, ()):
    counts[heldout.TRAIN].move(job.store[number], counts[heldout.HELDOUT])
  return counts


def _make_split(
  pool: worker_pool.WorkerPool,
  job: build_worker.Job,
  name: str,
  text: data_statistics.TextCounts,
  settings: BuildSettings,
  report: Callable[[Progress], None],
) -> schemas.Split:
  """Makes, orders and writes the examples of a split."""
  split = job.split(name)
  is_train = name == heldout.TRAIN
  duplicates = settings.dupe_factor if is_train else 1
  num_shards = settings.num_shards if is_train else settings.num_heldout_shards
  doc_tokens = job.store.token_counts[split.numbers]
  total = duplicates * int(doc_tokens.sum())
  counts = data_statistics.ExampleCounts(
    np.zeros(settings.examples.ngram, np.int64)
  )
  done = 0
  with external_sort.ExternalSort(
    os.path.join(job.folder, f"{name}-buckets"),
    external_sort.num_buckets(total * _BYTES_PER_TOKEN),
  ) as order:
    for made in pool.map(
      build_worker.make, _units(name, doc_tokens, duplicates)
    ):
      order.add(made.keys, made.records)
      counts.add(made.counts)
      done += int(doc_tokens[made.unit.first : made.unit.end].sum())
      report(
        Progress(
          f"making {name} examples",
          made.unit.duplicate * len(split) + made.unit.end,
          counts.instances,
          counts.tokens,
          done / total,
        )
      )
    if not counts.instances:
      raise ValueError(
        f"the {name} documents give no example, for each of them is a single "
        "word: one sentence a line and blank lines between documents only."
      )
    shards = _write_shards(job, name, order, num_shards)
  statistics = {
    **data_statistics.summarize_text(
      text, job.vocabulary, job.tokenizer.unk_id
    ),
    **data_statistics.summarize_examples(counts),
  }
  return schemas.Split(shards, statistics)


def _write_shards(
  job: build_worker.Job,
  name: str,
  order: external_sort.ExternalSort,
  num_shards: int,
) -> tuple[schemas.Shard, ...]:
  """Deals the ordered records out; shards differ by one record at most."""
  # Here, because the workers import this module too and need no TensorFlow.
  from tfrecords import writer

  records = order.drain()
  size, larger = divmod(len(order), num_shards)
  shards = []
  for index in range(num_shards):
    path = os.path.join(job.folder, schemas.shard_name(name, index, num_shards))
    with writer.ShardWriter(path, job.schema) as shard:
      for record in itertools.islice(records, size + (index < larger)):
        shard.write_encoded(record)
    shards.append(shard.result)
  return tuple(shards)


def _units(
  name: str, doc_tokens: np.ndarray, duplicates: int
) -> Iterator[build_worker.Unit]:
  """Pieces of work of about `_UNIT_TOKENS`, of whole documents."""
  ends = np.cumsum(doc_tokens)
  edges = [0]
  while edges[-1] < len(ends):
    done = ends[edges[-1] - 1] if edges[-1] else 0
    end = int(np.searchsorted(ends, done + _UNIT_TOKENS)) + 1
    edges.append(min(end, len(ends)))
  for duplicate in range(duplicates):
    for first, end in zip(edges, edges[1:]):
      yield build_worker.Unit(name, duplicate, first, end)
