"""The work on pretraining data that any process can do: what workers run.

Two jobs, in this order: `tokenize` turns texts into token arrays, `make`
turns documents of the token store into encoded records. Neither depends on
anything but its argument and the settings, so the workers' number and order
leave no trace in the data.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
from typing import NamedTuple, Optional, Sequence

import numpy as np

from official_albert import tokenization
from tasks.pretraining import data_statistics, examples, token_store
from tfrecords import encoding, external_sort, schemas


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
  """

  spm_model_file: str
  do_lower_case: bool
  settings: examples.ExampleSettings
  random_seed: int
  folder: str
  vocab_file: str = ""

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
  def schema(self) -> tuple[schemas.Feature, ...]:
    if self.settings.masking == "dynamic":
      return schemas.unmasked_schema(self.settings.max_seq_length)
    return schemas.pretraining_schema(
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


class Tokenized(NamedTuple):
  """Documents: <integer>[T] ids and <int32>[segments] lengths of each.

  `piece_counts` <int64>[V] are those of all of them together.
  """

  documents: list[tuple[np.ndarray, np.ndarray]]
  piece_counts: np.ndarray


class Unit(NamedTuple):
  """Documents first..end - 1 of a split, for one duplicate."""

  split: str
  duplicate: int
  first: int
  end: int


class Made(NamedTuple):
  """Encoded examples, a random key for the place of each, and counts."""

  unit: Unit
  keys: np.ndarray
  records: list[bytes]
  counts: data_statistics.ExampleCounts


_job: Optional[Job] = None


def set_job(job: Optional[Job]) -> None:
  """The workers' initializer; None lets go of all files."""
  global _job
  _job = job


def tokenize(texts: Sequence[Sequence[str]]) -> Tokenized:
  """Tokenizes documents, given as their sentences."""
  return tokenize_texts(_job, texts)


def tokenize_texts(job: Job, texts: Sequence[Sequence[str]]) -> Tokenized:
  """`tokenize` for those who have the job themselves."""
  rows = iter(
    job.tokenizer.encode_batch(list(itertools.chain.from_iterable(texts)))
  )
  vocab_size = job.vocabulary.size
  documents = []
  for text in texts:
    segments = [row for row in itertools.islice(rows, len(text)) if row]
    ids = np.fromiter(
      itertools.chain.from_iterable(segments),
      token_store.id_dtype(vocab_size),
    )
    lengths = np.fromiter(map(len, segments), np.int32, len(segments))
    documents.append((ids, lengths))
  every_id = np.concatenate([ids for ids, _ in documents])
  return Tokenized(documents, np.bincount(every_id, minlength=vocab_size))


def make(unit: Unit) -> Made:
  """Makes the examples of a unit and encodes them."""
  return make_examples(_job, _job.split(unit.split), unit)


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
    keys.append(rng.integers(1 << external_sort.KEY_BITS, size=len(made)))
  kept = [instance is not None for instance in instances]
  instances = [instance for instance in instances if instance is not None]
  features = examples.pad_instances(instances, settings)
  counts = data_statistics.count_examples(
    features,
    vocabulary.mask_id,
    settings.ngram,
    [n for instance in instances for n in instance.masked.ngram_lengths],
    dropped_chunks=len(kept) - len(instances),
  )
  return Made(
    unit,
    np.concatenate(keys)[np.array(kept, bool)],
    encoding.encode_examples(job.schema, features),
    counts,
  )
