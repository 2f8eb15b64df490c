"""The settings of a dataset, and the work that its processes share.

Worker processes call `Job.tokenize`, `Job.make_run` and `Job.write_shard`;
Beam's steps call `Job.tokenize_texts` and `Job.make_examples`. The results
depend only on the arguments and the settings, not on the number and the order
of the workers.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import unicodedata
from typing import Any, NamedTuple, Optional, Sequence

import numpy as np

from official_albert import files, tfrecords, tokenization
from official_albert.settings import check, setting
from official_albert.tasks.pretraining.data import (
  data_statistics,
  documents,
  examples,
  external_sort,
  output_folder,
  token_store,
)
from official_albert.tasks.pretraining.data.example_settings import (
  ExampleSettings,
)

# Estimated bytes of the examples that are in memory at the same time.
_BATCH_BYTES = 1 << 20
# Must increase when the same settings give different pieces or records: another
# release cannot resume the build then.
_FORMAT = 1
# The names of shards have five digits.
_MAX_SHARDS = 99_999


@dataclasses.dataclass(frozen=True)
class BuildSettings:
  """All settings of a dataset.

  Attributes (only those without a generated flag):
    input_files: text files or JSON lines, as comma-separated names and globs.
    output_dir: the folder of the dataset.
    spm_model_file, vocab_file: the SentencePiece model or the WordPiece
      vocabulary; exactly one is given.
    reading: the settings for reading documents from files.
    examples: the settings of the examples.
  """

  input_files: str
  output_dir: str
  spm_model_file: str = ""
  vocab_file: str = ""
  reading: documents.ReaderSettings = documents.ReaderSettings()
  examples: ExampleSettings = ExampleSettings()
  do_lower_case: bool = setting(
    True, "Lower-case the text, as for training the model."
  )
  keep_accents: bool = setting(
    False,
    "Keep accents and other combining marks, as for training the model; the "
    "original loses them.",
  )
  dupe_factor: Optional[int] = setting(
    None,
    "How often each document is used, with different cuts and masks; default: "
    "40, or 10 with --masking=dynamic.",
    least=1,
    most=10_000,  # The number of pieces in memory grows with it.
  )
  random_seed: int = setting(
    12345, "Seed of all choices.", least=0, most=2**63 - 1
  )
  heldout_share: float = setting(
    0.01,
    "Share of documents for evaluation, each used once; 0.01 is enough for a "
    "large corpus.",
    least=0,
    below=1,
  )
  num_shards: int = setting(
    8, "Files of the training split.", least=1, most=_MAX_SHARDS
  )
  num_heldout_shards: int = setting(
    1, "Files of the held-out split.", least=1, most=_MAX_SHARDS
  )
  num_workers: int = setting(
    0,
    "Number of processes, at most 1,024 on any machine; 0 is one for each "
    "processor.",
    least=0,
    most=1024,
  )
  overwrite: bool = setting(False, "Replace the dataset in output_dir.")

  def __post_init__(self):
    check(self)
    if self.dupe_factor is None:
      cuts = 10 if self.examples.masking == "dynamic" else 40
      object.__setattr__(self, "dupe_factor", cuts)

  def open_tokenizer(self) -> tokenization.Tokenizer:
    """Opens the tokenizer."""
    return tokenization.open_tokenizer(
      self.spm_model_file,
      self.vocab_file,
      self.do_lower_case,
      # Without the flag, the original's rule.
      keep_accents=self.keep_accents or None,
    )

  @property
  def splits(self) -> dict[str, tuple[int, int]]:
    """The duplicates of each document and the number of shards, by split."""
    splits = {token_store.TRAIN: (self.dupe_factor, self.num_shards)}
    if self.heldout_share:
      splits[token_store.HELDOUT] = (1, self.num_heldout_shards)
    return splits

  def content(self, paths: Sequence[str]) -> dict[str, Any]:
    """Returns the settings that shape the records, for the manifest."""
    return {
      "input_files": [os.path.basename(path) for path in paths],
      "do_lower_case": self.do_lower_case,
      "keep_accents": self.keep_accents,
      **self.reading.content(paths),
      **dataclasses.asdict(self.examples),
      "dupe_factor": self.dupe_factor,
      "heldout_share": self.heldout_share,
    }

  def fingerprint(
    self, reader: documents.DocumentReader, tokenizer_sha256: str
  ) -> dict[str, Any]:
    """Returns the values that must not change to resume an unfinished build.

    Files are identified by size and modification time. Reading a corpus twice
    for a checksum would take longer than most resumed builds save.
    """
    return {
      "format": _FORMAT,
      # Another release of NumPy may generate other random numbers.
      "numpy": np.__version__,
      # Another release of Python may normalize other characters.
      "unicode": unicodedata.unidata_version,
      "tokenizer": tokenizer_sha256,
      **self.content(list(reader.stats)),
      "random_seed": self.random_seed,
      "num_shards": self.num_shards,
      "num_heldout_shards": self.num_heldout_shards,
      "input_files": [[path, *stat] for path, stat in reader.stats.items()],
    }


class Made(NamedTuple):
  """N encoded examples, the random sort key of each, and their counts."""

  keys: np.ndarray
  records: list[bytes]
  counts: data_statistics.Counts


class Run(NamedTuple):
  """The examples of documents first to end - 1 of a split, in one file."""

  split: str
  duplicate: int
  first: int
  end: int
  path: str
  num_buckets: int


@dataclasses.dataclass(frozen=True)
class Job:
  """The work on a dataset, and the files that each process opens for it.

  A worker that gets a method of a job uses a job of its own, see `open_job`.

  Attributes:
    settings: the settings of the dataset.
    folder: the folder of the unfinished build.
  """

  settings: BuildSettings
  folder: str

  def __reduce__(self):
    return open_job, (self.settings, self.folder)

  @functools.cached_property
  def tokenizer(self) -> tokenization.Tokenizer:
    return self.settings.open_tokenizer()

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
    settings = self.settings.examples
    if settings.masking == "dynamic":
      return tfrecords.unmasked_schema(settings.max_seq_length)
    return tfrecords.pretraining_schema(
      settings.max_seq_length, settings.max_predictions_per_seq
    )

  @property
  def store_folder(self) -> str:
    return os.path.join(self.folder, "store")

  @property
  def chunk_paths(self) -> list[str]:
    """The finished chunks of the token store."""
    paths = (
      token_store.chunk_path(self.store_folder, number)
      for number in itertools.count()
    )
    return list(itertools.takewhile(output_folder.has_note, paths))

  @functools.cached_property
  def store(self) -> token_store.TokenStore:
    """The token store; all text must be tokenized before."""
    return token_store.TokenStore(self.chunk_paths, self.vocabulary.size)

  @functools.cached_property
  def splits(self) -> dict[str, token_store.Split]:
    """The documents of each split; all text must be tokenized before."""
    settings = self.settings
    numbers = token_store.split_documents(
      settings.input_files,
      self.store.hashes(),
      settings.heldout_share,
      settings.examples.sentence_pair,
    )
    return {
      name: token_store.Split(self.store, chosen)
      for name, chosen in numbers.items()
    }

  def estimate_bytes(self, token_counts: np.ndarray) -> np.ndarray:
    """Estimates the bytes of one duplicate of each document's examples.

    The estimate is on the high side. Tokens and bytes are <int64>[documents].
    """
    settings = self.settings.examples
    # Ids have up to 3 bytes, flags 1, positions 2 and weights 4.
    record = 6 * settings.max_seq_length + 300
    record += 9 * settings.max_predictions_per_seq
    full = token_counts / (settings.max_seq_length - 3)
    # The mean of 1 / length, for random lengths, is some 5 / max_seq_length.
    full *= 1 + 5 * settings.short_seq_prob
    if settings.sentence_pair == "nsp":
      full *= 2  # Half of a pair's tokens are from another document.
    return (record * (1 + full)).astype(np.int64)

  def tokenize(
    self, block: documents.Block
  ) -> tuple[token_store.Documents, documents.Skipped]:
    """Reads the documents of a block and tokenizes them."""
    texts, skipped = documents.parse(block, self.settings.reading)
    return self.tokenize_texts(texts), skipped

  def tokenize_texts(
    self, texts: Sequence[Sequence[str]]
  ) -> token_store.Documents:
    """Tokenizes documents, each given as its sentences.

    Sentences without tokens and documents without sentences are omitted.
    """
    rows = self.tokenizer.encode_batch(list(itertools.chain(*texts)))
    lengths = np.fromiter(map(len, rows), np.int32, len(rows))
    token_ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    segment_ends = np.concatenate([[0], np.cumsum(lengths > 0, dtype=np.int64)])
    # The end of each text among the sentences.
    text_ends = np.cumsum([0, *map(len, texts)])
    ends = np.stack([token_ends[text_ends], segment_ends[text_ends]], axis=1)
    ids = np.fromiter(
      itertools.chain.from_iterable(rows),
      token_store.id_dtype(self.vocabulary.size),
      int(token_ends[-1]),
    )
    is_filled = np.diff(ends[:, 0]) > 0
    seed = self.settings.random_seed
    hashes = [token_store.hash_text(text, seed) for text in texts]
    return token_store.Documents(
      ids,
      lengths[lengths > 0],
      ends[1:][is_filled],
      np.array(hashes, np.uint64)[is_filled],
    )

  def make_run(self, run: Run) -> tuple[data_statistics.Counts, np.ndarray]:
    """Makes a run unless it is there and intact.

    Returns:
      The counts of its examples, and the number of records of each bucket
      <int64>.
    """
    table = external_sort.table_path(run.path)
    value = output_folder.find_piece(table)
    if value is not None:
      if external_sort.is_intact(run.path):
        counts = data_statistics.Counts.from_json(value)
        return counts, external_sort.count_records(run.path)
      output_folder.report_damage(run.path)
    split = self.splits[run.split]
    tokens = [len(split[index].ids) for index in range(run.first, run.end)]
    sizes = self.estimate_bytes(np.array(tokens))
    parts = [
      self.make_examples(
        split, run.duplicate, run.first + first, run.first + end
      )
      for first, end in cut(sizes, _BATCH_BYTES)
    ]
    external_sort.write_run(
      run.path,
      np.concatenate([part.keys for part in parts]),
      list(itertools.chain.from_iterable(part.records for part in parts)),
      run.num_buckets,
    )
    counts = sum((part.counts for part in parts), data_statistics.Counts())
    output_folder.finish_piece(table, counts.to_json())
    return counts, external_sort.count_records(run.path)

  def make_examples(
    self, split: token_store.Split, duplicate: int, first: int, end: int
  ) -> Made:
    """Makes the examples of documents `first` to `end` - 1 of a split."""
    settings, vocabulary = self.settings.examples, self.vocabulary
    instances, keys = [], []
    for index in range(first, end):
      rng = examples.generator(
        self.settings.random_seed, int(split.numbers[index]), duplicate
      )
      made = list(
        examples.create_instances(split, index, vocabulary, settings, rng)
      )
      instances += made
      keys.append(rng.integers(1 << external_sort.KEY_BITS, size=len(made)))
    is_kept = np.array([instance is not None for instance in instances], bool)
    instances = [instance for instance in instances if instance is not None]
    features = examples.pad_instances(instances, settings)
    counts = data_statistics.count_examples(
      features,
      vocabulary.mask_id,
      settings.ngram,
      [n for instance in instances for n in instance.ngram_lengths],
    )
    counts.dropped_chunks = int((~is_kept).sum())
    counts.truncated_tokens = sum(i.truncated_tokens for i in instances)
    if not duplicate:
      counts += data_statistics.count_documents(
        map(split.__getitem__, range(first, end)), vocabulary.size
      )
    return Made(
      np.concatenate(keys)[is_kept],
      tfrecords.encode_examples(self.schema, features),
      counts,
    )

  def write_shard(
    self, task: tuple[str, Sequence[str], int, int, int, int]
  ) -> dict[str, Any]:
    """Writes a shard and returns its entry in the manifest.

    Args:
      task: the path of the shard, the paths of all runs, their number of
        buckets, the first bucket to read, the number of its records to skip,
        and the number of records to write.
    """
    path, run_paths, num_buckets, first_bucket, skip, size = task
    records = external_sort.read_sorted(run_paths, first_bucket, num_buckets)
    with tfrecords.ShardWriter(path, self.schema) as shard:
      for record in itertools.islice(records, skip, skip + size):
        shard.write_encoded(record)
    entry = dataclasses.asdict(shard.result)
    output_folder.finish_piece(path, entry)
    return entry


def with_local_tokenizer(job: Job) -> Job:
  """Returns the job with a copy of its tokenizer in its folder."""
  copy = os.path.join(job.folder, tfrecords.TOKENIZER_FILES[job.tokenizer.kind])
  files.copy(job.tokenizer.model_file, copy)
  field = "vocab_file" if job.settings.vocab_file else "spm_model_file"
  own: Any = {field: copy}
  return open_job(dataclasses.replace(job.settings, **own), job.folder)


@functools.lru_cache(maxsize=1)
def open_job(settings: BuildSettings, folder: str) -> Job:
  """Returns the job of this process."""
  return Job(settings, folder)


def cut(sizes: np.ndarray, limit: int) -> list[tuple[int, int]]:
  """Cuts N items of <int64>[N] sizes into parts that reach a limit.

  Returns:
    The first item of each part and the one after its last.
  """
  ends = np.cumsum(sizes)
  edges = [0]
  while edges[-1] < len(sizes):
    done = ends[edges[-1] - 1] if edges[-1] else 0
    edges.append(min(int(np.searchsorted(ends, done + limit)) + 1, len(sizes)))
  return list(zip(edges, edges[1:]))
