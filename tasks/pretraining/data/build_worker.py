"""From documents to the bytes of a shard, for any engine.

    blocks --tokenize--> documents --make_examples--> examples with random keys
    --write_shard--> a shard, by key

All random choices are functions of the seed and the tokens of a document; the
shard of each of its duplicates is one of the seed and the text
(`token_store.shards_of`). So a shard is a function of the set of documents and
the settings, whatever the order of the files, the number of workers or the
engine.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import unicodedata
from typing import Any, Mapping, NamedTuple, Optional, Sequence

import numpy as np

from official_albert import files, tfrecords, tokenization
from official_albert.settings import check, setting
from official_albert.tasks.pretraining.data import (
  data_statistics,
  documents,
  examples,
  sentence_pairs,
  token_store,
)
from official_albert.tasks.pretraining.data.example_settings import (
  ExampleSettings,
)

# Estimated bytes of the examples that are made at the same time.
_BATCH_BYTES = 1 << 20
_KEY_BITS = 63
# The names of shards have five digits.
_MAX_SHARDS = 99_999


@dataclasses.dataclass(frozen=True)
class BuildSettings:
  """All settings of a dataset.

  Attributes (only those without a generated flag):
    input_files: comma-separated names and globs, with weights; see
      `documents.find_files`.
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
  drop_duplicates: bool = setting(
    False, "Use one document of each text only; all are counted."
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
  def splits(self) -> dict[str, int]:
    """The number of shards of each split."""
    splits = {token_store.TRAIN: self.num_shards}
    if self.heldout_share:
      splits[token_store.HELDOUT] = self.num_heldout_shards
    return splits

  def with_tokenizer(self, path: str) -> BuildSettings:
    """Returns the settings with a copy of the tokenizer."""
    own: Any = {"vocab_file" if self.vocab_file else "spm_model_file": path}
    return dataclasses.replace(self, **own)

  def content(self, weights: Mapping[str, float]) -> dict[str, Any]:
    """Returns the settings that shape the records, for the manifest.

    `weights` has the weight of each file.
    """
    paths = list(weights)
    weighted = {"input_weights": [*weights.values()]}
    return {
      "input_files": [os.path.basename(path) for path in paths],
      **(weighted if {*weights.values()} != {1.0} else {}),
      "do_lower_case": self.do_lower_case,
      "keep_accents": self.keep_accents,
      **self.reading.content(paths),
      **dataclasses.asdict(self.examples),
      "dupe_factor": self.dupe_factor,
      "drop_duplicates": self.drop_duplicates,
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
      # Another release of NumPy may generate other random numbers.
      "numpy": np.__version__,
      # Another release of Python may normalize other characters.
      "unicode": unicodedata.unidata_version,
      "tokenizer": tokenizer_sha256,
      **self.content(reader.weights),
      "random_seed": self.random_seed,
      "input_files": [[path, *stat] for path, stat in reader.stats.items()],
    }


class Made(NamedTuple):
  """N encoded examples, the random key of each <int64>[N], and their counts."""

  keys: np.ndarray
  records: list[bytes]
  counts: data_statistics.Counts


@dataclasses.dataclass(frozen=True)
class Job:
  """The functions of a dataset, with what they need from files.

  Attributes:
    settings: the settings of the dataset.
  """

  settings: BuildSettings

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
    """Reads the documents of a block and tokenizes them.

    Sentences without tokens and documents without sentences are omitted.
    """
    texts, skipped = documents.parse(block, self.settings.reading)
    sentences = self.tokenizer.encode_batch(list(itertools.chain(*texts)))
    lengths = np.fromiter(map(len, sentences), np.int32, len(sentences))
    # Sums of the sentences before each, and of those before each text.
    sums = np.zeros((2, len(lengths) + 1), np.int64)
    np.cumsum([lengths, lengths > 0], axis=1, out=sums[:, 1:])
    sums = np.diff(sums[:, np.cumsum([0, *map(len, texts)])], axis=1)
    rows = np.zeros(len(texts), token_store.ROW)
    rows["tokens"], rows["segments"] = sums
    rows["copies"] = max(1, round(self.settings.dupe_factor * block.weight))
    seed = self.settings.random_seed
    rows["text"] = [token_store.hash_text(text, seed) for text in texts]
    ids = np.fromiter(
      itertools.chain.from_iterable(sentences),
      token_store.id_dtype(self.vocabulary.size),
      int(lengths.sum()),
    )
    found = token_store.Documents(
      ids, lengths[lengths > 0], rows[rows["tokens"] > 0]
    )
    found.rows["content"] = [
      token_store.hash_tokens(document, int(row["copies"]))
      for document, row in zip(found, found.rows)
    ]
    return found, skipped

  def make_examples(
    self,
    corpus: Sequence[sentence_pairs.Document],
    split: token_store.Split,
    index: int,
    num_shards: int,
  ) -> Made:
    """Makes the examples of the shard with an index.

    `split` has all documents of the corpus that are in the split, or only those
    of the shard if pairs need no others.
    """
    chosen = split.of_shard(index, num_shards)
    sizes = split.rows["tokens"][[item[0] for item in chosen]]
    own = token_store.Selection(corpus, split.indices)
    parts = [
      self._make_batch(own, chosen[first:end])
      for first, end in cut(self.estimate_bytes(sizes), _BATCH_BYTES)
    ]
    return Made(
      np.concatenate([np.zeros(0, np.int64), *(part.keys for part in parts)]),
      list(itertools.chain.from_iterable(part.records for part in parts)),
      sum((part.counts for part in parts), data_statistics.Counts()),
    )

  def _make_batch(
    self,
    split: Sequence[sentence_pairs.Document],
    chosen: Sequence[tuple[int, int, int, int]],
  ) -> Made:
    settings, vocabulary = self.settings.examples, self.vocabulary
    instances: list[Any] = []
    keys = []
    for index, *identity in chosen:
      rng = examples.generator(self.settings.random_seed, *identity)
      made = list(
        examples.create_instances(split, index, vocabulary, settings, rng)
      )
      instances += made
      keys.append(rng.integers(1 << _KEY_BITS, size=len(made)))
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
    counts += data_statistics.count_documents(
      (split[item[0]] for item in chosen if not item[-1]), vocabulary.size
    )
    return Made(
      np.concatenate(keys)[is_kept],
      tfrecords.encode_examples(self.schema, features),
      counts,
    )

  def write_shard(self, path: str, made: Made) -> tfrecords.Shard:
    """Writes examples to a new shard, by key and content, atomically."""
    with tfrecords.ShardWriter(path, self.schema) as shard:
      for _, record in sorted(zip(made.keys.tolist(), made.records)):
        shard.write_encoded(record)
    return shard.result

  def make_split(
    self,
    name: str,
    shards: Sequence[tfrecords.Shard],
    counts: data_statistics.Counts,
    duplicates: int,
  ) -> tfrecords.Split:
    """Returns the manifest's entry of a split."""
    if not counts.instances:
      where = files.quote_paths(self.settings.input_files)
      raise ValueError(
        f"the {name} documents of {where} give no example, because each of "
        "them is a single word: put one sentence on a line, and blank lines "
        "only between documents."
      )
    return tfrecords.Split(
      tuple(shards),
      {
        **data_statistics.summarize_text(
          counts, self.vocabulary.special_ids, self.tokenizer.unk_id
        ),
        "duplicate_documents": duplicates,
        **data_statistics.summarize_examples(counts),
      },
    )

  def make_manifest(
    self,
    weights: Mapping[str, float],
    splits: Mapping[str, tfrecords.Split],
    skipped: documents.Skipped,
  ) -> tfrecords.Manifest:
    """Returns the manifest of the dataset."""
    settings, masking_ids = self.settings, {}
    if settings.examples.masking == "dynamic":  # Training needs them.
      masking_ids = {
        "mask_id": self.vocabulary.mask_id,
        "special_ids": sorted(self.vocabulary.special_ids),
      }
    return tfrecords.Manifest(
      task="pretraining",
      max_seq_length=settings.examples.max_seq_length,
      max_predictions_per_seq=settings.examples.max_predictions_per_seq,
      features=self.schema,
      tokenizer=tfrecords.TokenizerInfo.of(self.tokenizer),
      settings={
        **settings.content(weights),
        **masking_ids,
        "skipped_documents": dataclasses.asdict(skipped),
      },
      random_seed=settings.random_seed,
      splits=splits,
    )


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
