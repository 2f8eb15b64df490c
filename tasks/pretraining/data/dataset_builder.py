"""Text files to a folder of pretraining records, start to end.

    text --tokenize--> token store --make--> bucket files --> shards, manifest

Two passes: all text is tokenized into a store on disk; then, for each
duplicate of each document, examples are made and put in a random global order.
The same input, settings and seed give the same bytes for any number of
workers. Everything is written in a folder of its own inside the output folder
and moved into place at the end, the manifest last. After a kill the same
settings go on there where the build stopped, with the same bytes in the end.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import shutil
from typing import Any, Callable, Mapping, Sequence

import numpy as np

import tfrecords
from official_albert import distribution
from tasks.pretraining.data import (
  build_journal,
  build_worker,
  data_statistics,
  documents,
  examples,
  heldout,
  output_folder,
  split_builder,
  token_store,
  worker_pool,
)

_STORE = "token store"  # Its entry in the journal.
# Settings that leave no trace in the records, and files whose content counts
# and not their names.
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

  def duplicates_and_shards(self, split: str) -> tuple[int, int]:
    """Times that a document of a split is used, and files of the split."""
    if split == heldout.TRAIN:
      return self.dupe_factor, self.num_shards
    return 1, self.num_heldout_shards

  def fingerprint(
    self, input_files: Sequence[str], tokenizer_sha256: str
  ) -> dict[str, Any]:
    """What an unfinished build and one that goes on must have in common."""
    values = dataclasses.asdict(self)
    for name in _NOT_CONTENT:
      del values[name]
    values.update(values.pop("examples"))
    del values["reading"]
    values.update(self.reading.content(input_files))
    return build_journal.fingerprint(values, input_files, tokenizer_sha256)


def build_dataset(
  settings: BuildSettings,
  report: Callable[[split_builder.Progress], None] = lambda progress: None,
) -> tfrecords.Manifest:
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
  job = build_worker.Job(
    settings.spm_model_file,
    settings.do_lower_case,
    settings.examples,
    settings.random_seed,
    output_folder.staging_path(settings.output_dir),
    settings.vocab_file,
    settings.reading,
  )
  tokenizer = job.tokenizer  # Complains before any work.
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
    with staging as journal, pool:  # No worker is left when the folder goes.
      skipped = _tokenize(pool, job, reader, journal, report)
      pieces = pool.start(build_worker.count_pieces)
      built = {}
      for name in _split(job, settings):
        built[name] = split_builder.SplitBuilder(
          job,
          name,
          *settings.duplicates_and_shards(name),
          journal,
          settings.output_dir,
        ).build(pool, report)
      texts = _count_texts(job, tuple(built), pieces())
      splits = {
        name: tfrecords.Split(shards, statistics(job, texts[name], counts))
        for name, (shards, counts) in built.items()
      }
      build_worker.set_job(None)
      manifest = make_manifest(settings, job, paths, splits, skipped)
      shutil.copyfile(
        tokenizer.model_file, os.path.join(job.folder, manifest.tokenizer.file)
      )
      output_folder.publish(journal, settings.output_dir, manifest)
  return manifest


def statistics(
  job: build_worker.Job,
  text: data_statistics.TextCounts,
  counts: data_statistics.ExampleCounts,
) -> dict[str, Any]:
  """What the manifest says of a split, whichever engine has built it."""
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
  """The manifest of a dataset, whichever engine has built it."""
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
  """What masking while training has to know of the tokenizer."""
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
  journal: build_journal.Journal,
  report: Callable[[split_builder.Progress], None],
) -> documents.Skipped:
  """Fills the token store; returns what could not be read."""
  vocab_size = job.vocabulary.size
  done = journal.get(_STORE)
  if done and not token_store.is_intact(job.store_folder, done["files"]):
    build_journal.report_damage(job.store_folder)
    done = None
  done = done or {
    "read": dataclasses.asdict(documents.Tally()),
    "documents": 0,
    "tokens": 0,
    "files": None,
    "is_whole": False,
  }
  tally = documents.Tally.from_json(done["read"])
  with token_store.TokenStoreWriter(
    job.store_folder, vocab_size, done["files"]
  ) as store:
    if not done["is_whole"]:
      # Reading again what is in the store already takes little, and needs no
      # way into the middle of a compressed file.
      blocks = itertools.islice(reader.blocks(), tally.blocks, None)
      for made, outcome in pool.map(build_worker.tokenize, blocks):
        tally.add(outcome, job.reading)
        store.append(made)
        done["read"] = dataclasses.asdict(tally)
        done["documents"] += len(made.segments)
        done["tokens"] += len(made.ids)
        if journal.is_due():
          done["files"] = store.state()
          journal.put(_STORE, done)
        fraction = reader.bytes_read / max(1, reader.total_bytes)
        report(
          split_builder.Progress(
            "tokenizing", done["documents"], 0, done["tokens"], fraction
          )
        )
      if not done["documents"]:
        raise ValueError(
          "no text in the input files: there must be at least one document."
        )
      done["files"], done["is_whole"] = store.state(), True
      journal.put(_STORE, done)
  return tally.skipped


def _split(job: build_worker.Job, settings: BuildSettings) -> tuple[str, ...]:
  """Decides which documents are held out; returns the names of the splits."""
  numbers = heldout.split_documents(
    len(job.store),
    settings.heldout_share,
    settings.random_seed,
    settings.examples.sentence_pair,
  )
  for name, values in numbers.items():
    np.save(job.split_file(name), values)
  return tuple(numbers)


def _count_texts(
  job: build_worker.Job, splits: Sequence[str], pieces: np.ndarray
) -> dict[str, data_statistics.TextCounts]:
  """Counts the text of each split, given all pieces' counts <int64>[V]."""
  counts = {
    name: data_statistics.TextCounts.zero(len(pieces)) for name in splits
  }
  counts[heldout.TRAIN] = data_statistics.TextCounts(
    len(job.store), job.store.num_segments, pieces
  )
  if heldout.HELDOUT in counts:
    for document in job.split(heldout.HELDOUT):
      counts[heldout.TRAIN].move(document, counts[heldout.HELDOUT])
  return counts
