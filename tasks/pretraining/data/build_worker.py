"""The work on pretraining data that any process can do.

Worker processes run `tokenize`, `count_pieces`, `make_run` and `write_shard`;
Beam's steps call the functions below these. The results depend on the
arguments and the settings only, so the number and the order of the workers
leave no trace in the data.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import operator
import os
from typing import Any, Iterator, NamedTuple, Optional, Sequence

import numpy as np

import tfrecords
from official_albert import tokenization
from tasks.pretraining.data import (
  data_statistics,
  documents,
  example_settings,
  examples,
  external_sort,
  pieces,
  token_store,
)

# Estimated bytes of the examples that are arrays at the same time.
_BATCH_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True)
class Job:
  """What all workers know, and what they open when they need it.

  Attributes:
    spm_model_file: SentencePiece model; empty if `vocab_file` is given.
    do_lower_case: whether text is lower-cased.
    settings: settings of the examples.
    random_seed: seed of all random choices.
    folder: folder of the unfinished build.
    vocab_file: WordPiece vocabulary.
    reading: how text becomes sentences.
  """

  spm_model_file: str
  do_lower_case: bool
  settings: example_settings.ExampleSettings
  random_seed: int
  folder: str
  vocab_file: str = ""
  reading: documents.ReaderSettings = documents.ReaderSettings()

  def __getstate__(self) -> dict[str, Any]:
    # Open files belong to one process.
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
    """The token store; all text must be tokenized."""
    num_chunks = sum("." not in name for name in os.listdir(self.store_folder))
    return token_store.TokenStore(
      self.store_folder, num_chunks, self.vocabulary.size
    )

  def split_file(self, name: str) -> str:
    """Returns the file with the document numbers of a split, <int64>."""
    return os.path.join(self.folder, f"{name}.npy")

  @functools.cached_property
  def _splits(self) -> dict[str, token_store.Split]:
    return {}

  def split(self, name: str) -> token_store.Split:
    """Returns the documents of a split."""
    if name not in self._splits:
      numbers = np.load(self.split_file(name))
      self._splits[name] = token_store.Split(self.store, numbers)
    return self._splits[name]

  def estimate_bytes(self, token_counts: np.ndarray) -> np.ndarray:
    """Estimates the size of a document's examples; rather high than low.

    Args:
      token_counts: <int64>[documents], the tokens of each document.

    Returns:
      <int64>[documents], bytes for one duplicate.
    """
    settings = self.settings
    # Ids have up to 3 bytes, flags 1, positions 2 and weights 4.
    record = 6 * settings.max_seq_length + 300
    record += 9 * settings.max_predictions_per_seq
    full = token_counts / (settings.max_seq_length - 3)
    # The mean of 1 / length, for random lengths, is some 5 / max_seq_length.
    full *= 1 + 5 * settings.short_seq_prob
    if settings.sentence_pair == "nsp":
      full *= 2  # Half of a pair's tokens are from another document.
    return (record * (1 + full)).astype(np.int64)


def cut(sizes: np.ndarray, limit: int) -> list[tuple[int, int]]:
  """Cuts a sequence into parts of about `limit`, each of one item at least.

  Args:
    sizes: <int64>[N], the size of each item.
    limit: size of a part. The item that reaches it is the part's last.

  Returns:
    The first item of each part and the one after its last.
  """
  ends = np.cumsum(sizes)
  edges = [0]
  while edges[-1] < len(sizes):
    done = ends[edges[-1] - 1] if edges[-1] else 0
    edges.append(min(int(np.searchsorted(ends, done + limit)) + 1, len(sizes)))
  return list(zip(edges, edges[1:]))


class Unit(NamedTuple):
  """Documents first to end - 1 of a split, for one duplicate."""

  split: str
  duplicate: int
  first: int
  end: int


class Made(NamedTuple):
  """N encoded examples, the random sort key of each, and what was counted."""

  keys: np.ndarray
  records: list[bytes]
  counts: data_statistics.ExampleCounts


class Run(NamedTuple):
  """A unit of work whose examples go to one run file of the sort."""

  unit: Unit
  path: str
  num_buckets: int


class FinishedRun(NamedTuple):
  """A run file that can be read.

  Attributes:
    counts: of the run's examples.
    bucket_records: <int64>[num_buckets], the records of each bucket.
    first_bucket: the buckets before this one have been cut off.
  """

  counts: data_statistics.ExampleCounts
  bucket_records: np.ndarray
  first_bucket: int


class ShardTask(NamedTuple):
  """A shard to be written.

  Attributes:
    path: path of the shard.
    run_paths: all runs of the split.
    num_buckets: number of buckets of each run.
    first_bucket: the bucket of the shard's first record.
    skip: records of that bucket that belong to earlier shards.
    size: number of records.
  """

  path: str
  run_paths: Sequence[str]
  num_buckets: int
  first_bucket: int
  skip: int
  size: int


_job: Optional[Job] = None


def set_job(job: Optional[Job]) -> None:
  """Initializes a worker; None closes all files."""
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


def count_pieces(chunk: int) -> np.ndarray:
  """Returns how often each piece occurs in a chunk, <int64>[V]."""
  return _job.store.count_pieces(chunk)


def make_run(run: Run) -> FinishedRun:
  """Finds an intact run file, or makes it. Buckets may have been cut off."""
  value = pieces.find_piece(run.path)
  if value is not None:
    bucket, is_cut = external_sort.first_intact_bucket(
      run.path, run.num_buckets
    )
    if is_cut:
      counts = data_statistics.ExampleCounts.from_json(value)
      records = external_sort.count_records(run.path, run.num_buckets)
      return FinishedRun(counts, records, bucket)
    pieces.report_damage(run.path)
  return remake_run(run)


def remake_run(run: Run) -> FinishedRun:
  """Makes a run file, whether or not there is one."""
  made = list(_make_batches(run.unit))
  counts = functools.reduce(operator.add, (batch.counts for batch in made))
  external_sort.write_run(
    run.path,
    np.concatenate([batch.keys for batch in made]),
    list(itertools.chain.from_iterable(batch.records for batch in made)),
    run.num_buckets,
  )
  pieces.finish_piece(
    run.path, counts.to_json(), external_sort.table_bytes(run.num_buckets)
  )
  records = external_sort.count_records(run.path, run.num_buckets)
  return FinishedRun(counts, records, 0)


def _make_batches(unit: Unit) -> Iterator[Made]:
  """Yields the examples of a unit, few documents at a time."""
  split = _job.split(unit.split)
  numbers = range(unit.first, unit.end)
  tokens = np.array([len(split[index].ids) for index in numbers])
  for first, end in cut(_job.estimate_bytes(tokens), _BATCH_BYTES):
    part = unit._replace(first=unit.first + first, end=unit.first + end)
    yield make_examples(_job, split, part)


def write_shard(task: ShardTask) -> dict[str, Any]:
  """Writes a shard and returns its entry in the manifest.

  Raises:
    OSError: the disk is full, or a run file was changed.
  """
  records = external_sort.read_sorted(
    task.run_paths, task.first_bucket, task.num_buckets
  )
  with tfrecords.ShardWriter(task.path, _job.schema) as shard:
    for record in itertools.islice(records, task.skip, task.skip + task.size):
      shard.write_encoded(record)
  entry = dataclasses.asdict(shard.result)
  pieces.finish_piece(task.path, entry)
  return entry


def tokenize_texts(
  job: Job, texts: Sequence[Sequence[str]]
) -> token_store.Documents:
  """Tokenizes documents, each given as its sentences.

  Sentences without tokens are left out, and so are documents without any.
  """
  rows = job.tokenizer.encode_batch(list(itertools.chain.from_iterable(texts)))
  lengths = np.fromiter(map(len, rows), np.int32, len(rows))
  ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
  # A document's segments are the non-empty sentences up to its end, less those
  # up to its beginning.
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


def make_examples(job: Job, documents: token_store.Split, unit: Unit) -> Made:
  """Makes the examples of a unit, given the documents of its split."""
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
    truncated_tokens=sum(i.truncated_tokens for i in instances),
  )
  return Made(
    np.concatenate(keys)[np.array(kept, bool)],
    tfrecords.encode_examples(job.schema, features),
    counts,
  )
