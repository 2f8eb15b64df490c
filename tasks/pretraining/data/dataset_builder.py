"""Builds a folder of pretraining records from text files.

    text --tokenize--> token store --make--> sorted runs --> shards, manifest

There are two passes. First, all text is tokenized into a store on disk. Then
the examples of each duplicate of each document are made and put in a random
global order. The same input, settings and seed give the same bytes for any
number of workers. The work is done in a folder inside the output folder, and
the results are moved into place at the end, the manifest last. A build that
was killed is resumed by the same settings, with the same bytes in the end; see
`pieces`.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import operator
import os
import shutil
from typing import Any, Callable, Iterator, Mapping, Sequence

import numpy as np

import tfrecords
from official_albert import distribution
from tasks.pretraining.data import (
  build_worker,
  data_statistics,
  documents,
  output_folder,
  pieces,
  split_builder,
  token_store,
  worker_pool,
)
from tasks.pretraining.data.example_settings import ExampleSettings

_BLOCKS_PER_CHUNK = 64  # About 16 MB of text.
# Settings that do not change the records, and files that are identified by
# their content instead of their name.
_NOT_CONTENT = (
  "input_files",
  "output_dir",
  "spm_model_file",
  "vocab_file",
  "num_workers",
  "overwrite",
)


@dataclasses.dataclass(frozen=True)
class BuildSettings:
  """All settings of a dataset; see the flags of tools.create_pretraining_data.

  Exactly one of `spm_model_file` (SentencePiece) and `vocab_file` (WordPiece)
  must be given. `num_workers` 0 means one for each processor. Held-out
  documents are used once, whatever `dupe_factor` is.
  """

  input_files: str
  output_dir: str
  spm_model_file: str = ""
  vocab_file: str = ""
  do_lower_case: bool = True
  reading: documents.ReaderSettings = documents.ReaderSettings()
  examples: ExampleSettings = ExampleSettings()
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
        f"heldout_share is {self.heldout_share}, but must be at least 0 and "
        "below 1: it is the share of documents that are not trained on."
      )

  def content(self, input_files: Sequence[str]) -> dict[str, Any]:
    """Returns the settings that shape the records, for the manifest."""
    return {
      "input_files": [os.path.basename(path) for path in input_files],
      "do_lower_case": self.do_lower_case,
      **self.reading.content(input_files),
      **dataclasses.asdict(self.examples),
      "dupe_factor": self.dupe_factor,
      "heldout_share": self.heldout_share,
    }

  def duplicates_and_shards(self, split: str) -> tuple[int, int]:
    """Returns how often each document is used, and the number of shards."""
    if split == token_store.TRAIN:
      return self.dupe_factor, self.num_shards
    return 1, self.num_heldout_shards

  def fingerprint(
    self, input_files: Sequence[str], tokenizer_sha256: str
  ) -> dict[str, Any]:
    """Returns what must be the same for an unfinished build to be resumed."""
    values = dataclasses.asdict(self)
    for name in _NOT_CONTENT:
      del values[name]
    values.update(values.pop("examples"))
    del values["reading"]
    values.update(self.reading.content(input_files))
    return output_folder.fingerprint(values, input_files, tokenizer_sha256)


def build_dataset(
  settings: BuildSettings,
  report: Callable[[split_builder.Progress], None] = lambda progress: None,
) -> tfrecords.Manifest:
  """Builds a dataset, or resumes an unfinished build.

  Args:
    settings: settings of the dataset.
    report: called with the progress after every piece of work.

  Returns:
    The manifest that has been written.

  Raises:
    FileNotFoundError: an input or model file is missing.
    ValueError: a setting or the input is invalid.
    OSError: the output folder cannot be written.
  """
  paths = documents.find_files(settings.input_files)
  reader = documents.DocumentReader(paths, settings.reading)
  job = build_worker.Job(
    settings.spm_model_file,
    settings.do_lower_case,
    settings.examples,
    settings.random_seed,
    output_folder.staging_path(settings.output_dir),
    settings.vocab_file,
    settings.reading,
  )
  tokenizer = job.tokenizer  # Raises an error before any work.
  with worker_pool.WorkerPool(
    settings.num_workers or distribution.cpu_count(),
    build_worker.set_job,
    [job],
  ) as pool:
    staging = output_folder.staging_folder(
      settings.output_dir,
      settings.overwrite,
      settings.fingerprint(paths, tokenizer.sha256),
    )
    with staging, pool:  # The workers end before the folder is removed.
      skipped = _tokenize(pool, job, reader, report)
      texts = _split(pool, job, settings)
      splits = {}
      for name, text in texts.items():
        shards, counts = split_builder.build_split(
          job,
          name,
          *settings.duplicates_and_shards(name),
          settings.output_dir,
          pool,
          report,
        )
        splits[name] = tfrecords.Split(
          tuple(shards), statistics(job, text, counts)
        )
      build_worker.set_job(None)
      manifest = make_manifest(settings, job, paths, splits, skipped)
      shutil.copyfile(
        tokenizer.model_file, os.path.join(job.folder, manifest.tokenizer.file)
      )
      output_folder.publish(settings.output_dir, manifest)
  return manifest


def statistics(
  job: build_worker.Job,
  text: data_statistics.TextCounts,
  counts: data_statistics.ExampleCounts,
) -> dict[str, Any]:
  """Returns a split's statistics for the manifest; used by both engines."""
  return {
    **data_statistics.summarize_text(
      text, job.vocabulary, job.tokenizer.unk_id
    ),
    **data_statistics.summarize_examples(counts),
  }


def make_manifest(
  settings: BuildSettings,
  job: build_worker.Job,
  input_files: Sequence[str],
  splits: Mapping[str, tfrecords.Split],
  skipped: documents.Skipped,
) -> tfrecords.Manifest:
  """Returns the manifest of a dataset; used by both engines."""
  tokenizer = job.tokenizer
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
      **_masking_ids(job),
      "skipped_documents": dataclasses.asdict(skipped),
    },
    random_seed=settings.random_seed,
    splits=splits,
  )


def _masking_ids(job: build_worker.Job) -> dict[str, Any]:
  """Returns the ids that masking during training needs."""
  if job.settings.masking != "dynamic":
    return {}
  return {
    "mask_id": job.vocabulary.mask_id,
    "special_ids": sorted(job.vocabulary.special_ids),
  }


def _tokenize(
  pool: worker_pool.WorkerPool,
  job: build_worker.Job,
  reader: documents.DocumentReader,
  report: Callable[[split_builder.Progress], None],
) -> documents.Skipped:
  """Fills the token store and returns what could not be read."""
  os.makedirs(job.store_folder, exist_ok=True)
  paths = (
    token_store.chunk_path(job.store_folder, number)
    for number in itertools.count()
  )
  started = itertools.takewhile(lambda p: os.path.exists(f"{p}.json"), paths)
  chunks = dict(enumerate(pool.map(pieces.find_piece, started)))

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
        tally.add(outcome, job.reading)
        parts.append(part)
        num_documents += len(part.segments)
        num_tokens += len(part.ids)
        fraction = reader.bytes_read / max(1, reader.total_bytes)
        report(
          split_builder.Progress(
            "tokenizing", num_documents, 0, num_tokens, fraction
          )
        )
      path = token_store.chunk_path(job.store_folder, number)
      token_store.write_chunk(path, parts, job.vocabulary.size)
      chunk = {
        "tally": dataclasses.asdict(tally),
        "documents": num_documents,
        "tokens": num_tokens,
      }
      pieces.finish_piece(path, chunk)
    # The sums up to the end of the chunk.
    tally = documents.Tally.from_json(chunk["tally"])
    num_documents, num_tokens = chunk["documents"], chunk["tokens"]
    number += 1
  if not num_documents:
    raise ValueError(
      "the input files have no text: there must be at least one document."
    )
  return tally.skipped


def _split(
  pool: worker_pool.WorkerPool,
  job: build_worker.Job,
  settings: BuildSettings,
) -> dict[str, data_statistics.TextCounts]:
  """Decides which documents are held out and counts each split's text."""
  numbers = token_store.split_documents(
    len(job.store),
    settings.heldout_share,
    settings.random_seed,
    settings.examples.sentence_pair,
  )
  for name, values in numbers.items():
    np.save(job.split_file(name), values)
  chunks = pool.map(build_worker.count_pieces, range(job.store.num_chunks))
  counts = data_statistics.TextCounts(
    len(job.store),
    job.store.num_segments,
    functools.reduce(operator.add, chunks),
  )
  if token_store.HELDOUT not in numbers:
    return {token_store.TRAIN: counts}
  heldout = data_statistics.TextCounts.of(
    job.split(token_store.HELDOUT), job.vocabulary.size
  )
  return {token_store.TRAIN: counts - heldout, token_store.HELDOUT: heldout}
