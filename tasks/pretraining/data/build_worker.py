"""From documents to the bytes of a shard, for any engine.

    blocks --tokenize--> documents --make_examples--> examples with random keys
    --write_shard--> a shard, sorted by key

All random choices are functions of the seed and the tokens of a document; the
shard of each of its duplicates is one of the seed and the text
(`token_store.shards_of`). So a shard is a function of the set of documents and
the settings, whatever the order of the files, the number of workers or the
engine.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import itertools
import os
import unicodedata
from typing import Any, Iterator, Mapping, Optional

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

# Examples that are padded and encoded at the same time.
_BATCH = 512
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
  def shards(self) -> dict[str, list[str]]:
    """The names of the shards of each split."""
    counts = {token_store.TRAIN: self.num_shards}
    if self.heldout_share:
      counts[token_store.HELDOUT] = self.num_heldout_shards
    return {
      name: [tfrecords.shard_name(name, i, count) for i in range(count)]
      for name, count in counts.items()
    }

  def content(self, weights: Mapping[str, float]) -> dict[str, Any]:
    """Returns the settings that shape the records, for the manifest.

    `weights` has the weight of each file.
    """
    paths, sentencex = list(weights), importlib.metadata.version("sentencex")
    weighted = {"input_weights": [*weights.values()]}
    return {
      "input_files": [os.path.basename(path) for path in paths],
      **(weighted if {*weights.values()} != {1.0} else {}),
      "do_lower_case": self.do_lower_case,
      "keep_accents": self.keep_accents,
      **dataclasses.asdict(self.reading),
      "sentence_splitter": f"sentencex {sentencex}",
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


class Job:
  """The functions of a dataset and what they need, for any process."""

  def __init__(self, settings: BuildSettings):
    """Opens the tokenizer."""
    self.settings = settings
    self.tokenizer = settings.open_tokenizer()
    length = settings.examples.max_seq_length
    self.schema = (
      tfrecords.unmasked_schema(length)
      if settings.examples.masking == "dynamic"
      else tfrecords.pretraining_schema(
        length, settings.examples.max_predictions_per_seq
      )
    )

  def tokenize(self, block: documents.Block) -> token_store.Documents:
    """Reads the documents of a block and tokenizes them.

    Sentences without tokens and documents without sentences are omitted.
    """
    texts = documents.parse(block, self.settings.reading)
    encoded = iter(self.tokenizer.encode_batch([*itertools.chain(*texts)]))
    seed = self.settings.random_seed
    copies = max(1, round(self.settings.dupe_factor * block.weight))
    dtype = token_store.id_dtype(self.tokenizer.vocab_size)
    ids, lengths, rows = [np.zeros(0, dtype)], list[int](), []
    for text in texts:
      segments = [x for x in itertools.islice(encoded, len(text)) if x]
      if not segments:
        continue
      sizes = [*map(len, segments)]
      document = sentence_pairs.Document(
        np.fromiter(itertools.chain(*segments), dtype, sum(sizes)),
        np.cumsum([0, *sizes]),
      )
      hashes = (
        token_store.hash_text(text, seed),
        token_store.hash_tokens(document, copies),
      )
      ids.append(document.ids)
      lengths += sizes
      rows.append((sum(sizes), len(sizes), copies, *hashes, 0, 0))
    return token_store.Documents(
      np.concatenate(ids),
      np.array(lengths, np.int32),
      np.array(rows, token_store.ROW),
    )

  def _create_instances(
    self,
    documents: token_store.Documents,
    shard: int,
    num_shards: int,
    counts: data_statistics.Counts,
  ) -> Iterator[tuple[int, examples.Instance]]:
    """Yields the random key and each example of a shard; adds to `counts`."""
    settings, tokenizer = self.settings, self.tokenizer
    for index, duplicate in documents.of_shard(shard, num_shards):
      row = documents.rows[index]
      rng = examples.generator(
        settings.random_seed,
        int(row["content"]),
        int(row["occurrence"]),
        duplicate,
      )
      made = [
        *examples.create_instances(
          documents, index, tokenizer, settings.examples, rng
        )
      ]
      keys = rng.integers(1 << 63, size=len(made)).tolist()
      yield from ((key, x) for key, x in zip(keys, made) if x)
      counts["dropped_chunks"] += made.count(None)
      if not duplicate:
        found = documents[index]
        counts.add(data_statistics.count_document(found, tokenizer.vocab_size))

  def make_examples(
    self, documents: token_store.Documents, shard: int, num_shards: int
  ) -> tuple[list[tuple[int, bytes]], data_statistics.Counts]:
    """Returns the random key and the record of each example of a shard.

    `documents` are those of the split, as `token_store.arrange` returns them,
    or only those of the shard if pairs need no others.
    """
    rows, counts, made = documents.rows, data_statistics.Counts(), list[Any]()
    # A text is counted in the shard of its first duplicate.
    firsts = token_store.shards_of(rows["text"], 0, num_shards) == shard
    counts["duplicate_documents"] = int(rows["repeats"][firsts].sum())
    instances = self._create_instances(documents, shard, num_shards, counts)
    while pairs := [*itertools.islice(instances, _BATCH)]:
      keys, batch = zip(*pairs)
      features = examples.pad_instances(batch, self.settings.examples)
      counted = data_statistics.count_examples(
        features,
        self.tokenizer.mask_id,
        self.settings.examples.ngram,
        [n for instance in batch for n in instance.ngram_lengths],
      )
      counts.add(counted)
      counts["truncated_tokens"] += sum(x.truncated_tokens for x in batch)
      made += zip(keys, tfrecords.encode_examples(self.schema, features))
    return made, counts

  def write_shard(
    self,
    folder: str,
    notes: str,
    documents: token_store.Documents,
    name: str,
    index: int,
  ) -> None:
    """Writes a shard, sorted by key and content, then its note.

    `folder` is that of the shards. The notes are JSON files with the manifest's
    entry and the `Counts` of each finished shard. `make_examples` describes the
    documents; `name` is that of their split.
    """
    shards = self.settings.shards[name]
    made, counts = self.make_examples(documents, index, len(shards))
    path = os.path.join(folder, shards[index])
    with tfrecords.ShardWriter(path, self.schema) as shard:
      for _, record in sorted(made):
        shard.write_encoded(record)
    note = [
      dataclasses.asdict(shard.result),
      {name: np.asarray(value).tolist() for name, value in counts.items()},
    ]
    path = os.path.join(notes, f"{shards[index]}.json")
    files.write_json(path, note, indent=None)  # Long lists are slow with one.

  def make_manifest(
    self, weights: Mapping[str, float], notes: str
  ) -> tfrecords.Manifest:
    """Returns the manifest of the shards, given the weight of each file."""
    settings, masking_ids = self.settings, {}
    if settings.examples.masking == "dynamic":  # Training needs them.
      masking_ids = {
        "mask_id": self.tokenizer.mask_id,
        "special_ids": sorted(self.tokenizer.special_ids),
      }
    return tfrecords.Manifest(
      task="pretraining",
      max_seq_length=settings.examples.max_seq_length,
      max_predictions_per_seq=settings.examples.max_predictions_per_seq,
      features=self.schema,
      tokenizer=tfrecords.TokenizerInfo.of(self.tokenizer),
      settings={**settings.content(weights), **masking_ids},
      random_seed=settings.random_seed,
      splits={name: self._make_split(name, notes) for name in settings.shards},
    )

  def _make_split(self, name: str, notes: str) -> tfrecords.Split:
    """Returns the manifest's entry of a split."""
    shards, counts = [], data_statistics.Counts()
    for file in self.settings.shards[name]:
      path = os.path.join(notes, f"{file}.json")
      entry, counted = files.read_json(path, list[Any], "remove it")
      shards.append(tfrecords.Shard(**entry))
      counts.add(counted)
    if not counts["instances"]:
      raise ValueError(
        f"the {counts['documents']} {name} documents of "
        f"{files.quote(self.settings.input_files, most=200)} give no example: "
        "use more text or another --heldout_share; put one sentence on a line, "
        "and blank lines only between documents."
      )
    text = data_statistics.summarize_text(
      counts, self.tokenizer.special_ids, self.tokenizer.unk_id
    )
    statistics = {**text, **data_statistics.summarize_examples(counts)}
    return tfrecords.Split(tuple(shards), statistics)
