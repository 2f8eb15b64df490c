"""The work on pretraining data that any process can do: what workers run.

Three jobs, in this order: `tokenize` turns text into token arrays, `make`
turns documents of the token store into encoded records, and `write_shards`
puts these in order. None depends on anything but its argument and the
settings, so the workers' number and order leave no trace in the data.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
from typing import Any, Mapping, NamedTuple, Optional, Sequence

import numpy as np

import tfrecords
from official_albert import files, tokenization
from tasks.pretraining.data import (
  data_statistics,
  documents,
  examples,
  token_store,
)


@dataclasses.dataclass(frozen=True)
class Job:
  """What all workers have to know, and what they open of it when needed.

  Attributes:
    spm_model_file: of the tokenizer; empty if `vocab_file` is given.
    do_lower_case: whether text is lower-cased.
    settings: what examples look like.
    random_seed: of all random choices.
    folder: where the token store and the splits are.
    vocab_file: of a WordPiece tokenizer.
    reading: how text becomes sentences.
  """

  spm_model_file: str
  do_lower_case: bool
  settings: examples.ExampleSettings
  random_seed: int
  folder: str
  vocab_file: str = ""
  reading: documents.ReaderSettings = documents.ReaderSettings()

  def __getstate__(self) -> dict[str, Any]:
    # What is opened belongs to one process.
    return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

  @functools.cached_property
  def tokenizer(self) -> tokenization.Tokenizer:
    return tokenization.open_tokenizer(
      self.spm_model_file, self.vocab_file, self.do_lower_case
    )

  @functools.cached_property
  def vocabulary(self) -> examples.Vocabulary:
    return examples.Vocabulary(
      self.tokenizer.word_start_table,
      self.tokenizer.special_ids,
      self.tokenizer.cls_id,
      self.tokenizer.sep_id,
      self.tokenizer.mask_id,
    )

  @functools.cached_property
  def schema(self) -> tuple[tfrecords.Feature, ...]:
    if self.settings.masking == "dynamic":
      return tfrecords.unmasked_schema(self.settings.max_seq_length)
    return tfrecords.pretraining_schema(
      self.settings.max_seq_length, self.settings.max_predictions_per_seq
    )

  @property
  def store_folder(self) -> str:
    return os.path.join(self.folder, "store")

  @functools.cached_property
  def store(self) -> token_store.TokenStore:
    """Can be opened when all text is tokenized."""
    return token_store.TokenStore(self.store_folder, self.vocabulary.size)

  def split_file(self, name: str) -> str:
    """The numbers of a split's documents, <int64>, as np.save writes them."""
    return os.path.join(self.folder, f"{name}.npy")

  @functools.cached_property
  def _splits(self) -> dict[str, token_store.Split]:
    return {}

  def split(self, name: str) -> token_store.Split:
    if name not in self._splits:
      numbers = np.load(self.split_file(name))
      self._splits[name] = token_store.Split(self.store, numbers)
    return self._splits[name]


class Unit(NamedTuple):
  """Documents first..end - 1 of a split, for one duplicate.

  `num_buckets` are those of the sort that the examples go to.
  """

  split: str
  duplicate: int
  first: int
  end: int
  num_buckets: int = 1


class Made(NamedTuple):
  """Encoded examples, a random key for the place of each, and counts."""

  keys: np.ndarray
  records: list[bytes]
  counts: data_statistics.ExampleCounts


class Shards(NamedTuple):
  """Neighbouring shards of a split.

  Attributes:
    directory: of the sort that has the records.
    state: of that sort.
    first: place of their first record in the order.
    paths: of the shards.
    sizes: the number of records of each.
  """

  directory: str
  state: Mapping[str, Any]
  first: int
  paths: Sequence[str]
  sizes: Sequence[int]


_job: Optional[Job] = None


def set_job(job: Optional[Job]) -> None:
  """The workers' initializer; None lets go of all files."""
  global _job
  _job = job


def tokenize(
  block: documents.Block,
) -> tuple[token_store.Documents, documents.Outcome]:
  """Reads the documents of a block and tokenizes them.

  Raises:
    ValueError: see `documents.parse`.
  """
  texts, outcome = documents.parse(block, _job.reading)
  return tokenize_texts(_job, texts), outcome


def tokenize_texts(
  job: Job, texts: Sequence[Sequence[str]]
) -> token_store.Documents:
  """Tokenizes documents, given as their sentences.

  Sentences without tokens are left out, and documents without any.
  """
  rows = job.tokenizer.encode_batch(list(itertools.chain.from_iterable(texts)))
  lengths = np.fromiter(map(len, rows), np.int32, len(rows))
  ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
  # A document's segments are the sentences with tokens up to its end, less
  # those up to its beginning.
  filled = np.concatenate([[0], np.cumsum(lengths > 0)])[ends]
  segments = np.diff(filled, prepend=0).astype(np.int32)
  return token_store.Documents(
    np.fromiter(
      itertools.chain.from_iterable(rows),
      token_store.id_dtype(job.vocabulary.size),
      int(lengths.sum()),
    ),
    lengths[lengths > 0],
    segments[segments > 0],
  )


def count_pieces() -> np.ndarray:
  """How often each piece occurs in the whole token store, <int64>[V]."""
  return _job.store.count_pieces(_job.vocabulary.size)


def make(
  unit: Unit,
) -> tuple[Unit, list[tfrecords.Part], data_statistics.ExampleCounts]:
  """Makes the examples of a unit and packs them for their buckets."""
  made = make_examples(_job, _job.split(unit.split), unit)
  parts = tfrecords.pack_key(made.keys, made.records, unit.num_buckets)
  return unit, parts, made.counts


def make_examples(job: Job, documents: token_store.Split, unit: Unit) -> Made:
  """`make` for those who have the job and the documents of the split."""
  settings, vocabulary = job.settings, job.vocabulary
  instances, keys = [], []
  for index in range(unit.first, unit.end):
    rng = examples.generator(
      job.random_seed, int(documents.numbers[index]), unit.duplicate
    )
    made = list(
      examples.create_instances(documents, index, vocabulary, settings, rng)
    )
    instances += made
    keys.append(rng.integers(1 << tfrecords.KEY_BITS, size=len(made)))
  kept = [instance is not None for instance in instances]
  instances = [instance for instance in instances if instance is not None]
  features = examples.pad_instances(instances, settings)
  counts = data_statistics.count_examples(
    features,
    vocabulary.mask_id,
    settings.ngram,
    [n for instance in instances for n in instance.masked.ngram_lengths],
    dropped_chunks=len(kept) - len(instances),
    truncated_tokens=sum(i.truncated_tokens for i in instances),
  )
  return Made(
    np.concatenate(keys)[np.array(kept, bool)],
    tfrecords.encode_examples(job.schema, features),
    counts,
  )


def write_shards(shards: Shards) -> list[dict[str, Any]]:
  """Writes shards; returns what a build remembers of each.

  Raises:
    OSError: the disk is full, or a file was changed by others.
  """
  num_buckets = len(shards.state["records"])
  order = tfrecords.ExternalSort(shards.directory, num_buckets, shards.state)
  records = order.drain(shards.first)
  written = []
  for path, size in zip(shards.paths, shards.sizes):
    with tfrecords.ShardWriter(path, _job.schema) as shard:
      for record in itertools.islice(records, size):
        shard.write_encoded(record)
    written.append(
      {"shard": dataclasses.asdict(shard.result), "sha256": files.sha256(path)}
    )
  return written
