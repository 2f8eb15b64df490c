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

import collections
import dataclasses
import itertools
import os
from typing import Any, Iterable, Iterator, Mapping

import numpy as np

from official_albert import files, tfrecords
from official_albert.tasks.pretraining.data import (
  data_statistics,
  documents,
  examples,
  sentence_pairs,
  token_store,
)
from official_albert.tasks.pretraining.data.settings import BuildSettings

# The folder of an unfinished build, in that of the dataset.
UNFINISHED = ".unfinished"
# Examples that are padded and encoded at the same time.
_BATCH = 512


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
    settings, parts, rows = self.settings, [np.zeros(0, np.int32)], []
    texts = documents.parse(block, settings.reading)
    encoded = iter(self.tokenizer.encode_batch([*itertools.chain(*texts)]))
    copies = max(1, round(settings.dupe_factor * block.weight))
    # Documents are held out by hash, whatever the other documents are.
    heldout_bound = int(settings.heldout_share * 2.0**64)
    for text in texts:
      segments = [x for x in itertools.islice(encoded, len(text)) if x]
      if not segments:
        continue
      offsets = np.cumsum([0, *map(len, segments)])
      ids = np.fromiter(itertools.chain(*segments), np.int32, offsets[-1])
      document = sentence_pairs.Document(ids, offsets)
      text_hash = token_store.hash_text(text, settings.random_seed)
      content = token_store.hash_tokens(document, copies)
      is_heldout = text_hash < heldout_bound
      used = 1 if is_heldout else copies
      parts.append(token_store.mark(document))
      rows.append((len(ids), used, is_heldout, text_hash, content, 0, 0))
    return token_store.Documents(
      np.concatenate(parts), np.array(rows, token_store.ROW)
    )

  def make_examples(
    self, documents: token_store.Documents, shard: int, num_shards: int
  ) -> tuple[list[tuple[int, bytes]], collections.Counter, np.ndarray]:
    """Returns the random key and the record of each example of a shard.

    `documents` are those of the shard, in any order. The counts and the pieces
    are those of `data_statistics.summarize_text`.
    """
    documents = token_store.arrange(documents, self.settings.drop_duplicates)
    rows, made = documents.rows, list[tuple[int, bytes]]()
    pieces = np.zeros(self.tokenizer.vocab_size, np.int64)
    # A text is counted in the shard of its first duplicate.
    firsts = token_store.shards_of(rows["text"], 0, num_shards) == shard
    counts: collections.Counter = collections.Counter(
      duplicate_documents=int(rows["repeats"][firsts].sum())
    )
    duplicates = token_store.duplicates_of(rows, shard, num_shards)
    instances = self._create_instances(documents, duplicates, counts, pieces)
    while pairs := [*itertools.islice(instances, _BATCH)]:
      keys, batch = zip(*pairs)
      features = examples.pad_instances(batch, self.settings.examples)
      counts.update(
        data_statistics.count_examples(features, self.tokenizer.mask_id)
      )
      made += zip(keys, tfrecords.encode_examples(self.schema, features))
    return made, counts, pieces

  def _create_instances(
    self,
    documents: token_store.Documents,
    duplicates: Iterable[tuple[int, int]],
    counts: collections.Counter,
    pieces: np.ndarray,
  ) -> Iterator[tuple[int, examples.Instance]]:
    """Yields the random key and each example; adds to the counts."""
    settings, tokenizer = self.settings, self.tokenizer
    for index, duplicate in duplicates:
      row = documents.rows[index]
      numbers = [int(row["content"]), int(row["occurrence"]), duplicate]
      # The only source of randomness of these examples.
      rng = np.random.default_rng([settings.random_seed, *numbers])
      made = [
        examples.create_instance(pair, tokenizer, settings.examples, rng)
        for pair in sentence_pairs.create_pairs(
          documents, index, tokenizer.word_start_table, settings.examples, rng
        )
      ]
      yield from zip(rng.integers(1 << 63, size=len(made)).tolist(), made)
      counts["used_tokens"] += int(row["tokens"])
      if not duplicate:
        ids, offsets = documents[index]
        counts.update(documents=1, segments=len(offsets) - 1)
        pieces += np.bincount(ids, minlength=len(pieces))

  def write_shard(
    self, documents: token_store.Documents, name: str, index: int
  ) -> int:
    """Writes a shard, sorted by key and content, then its note.

    The note, a JSON file in the folder `UNFINISHED`, has the manifest's entry
    and the counts. `make_examples` describes the documents; `name` is that of
    their split. Returns the number of tokens that are used.
    """
    shards = self.settings.shards[name]
    made, counts, pieces = self.make_examples(documents, index, len(shards))
    path = os.path.join(self.settings.output_dir, shards[index])
    shard = tfrecords.write_shard(path, (record for _, record in sorted(made)))
    note = [dataclasses.asdict(shard), counts, pieces.tolist()]
    files.write_json(self._note(shards[index]), note, indent=None)
    return counts["used_tokens"]

  def _note(self, shard: str) -> str:
    folder = os.path.join(self.settings.output_dir, UNFINISHED)
    return os.path.join(folder, f"{shard}.json")

  def make_manifest(self, weights: Mapping[str, float]) -> tfrecords.Manifest:
    """Returns the manifest of the shards, given the weight of each file."""
    settings, masking_ids = self.settings, dict[str, Any]()
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
      splits={name: self._make_split(name) for name in settings.shards},
    )

  def _make_split(self, name: str) -> tfrecords.Split:
    """Returns the manifest's entry of a split."""
    shards, counts = [], collections.Counter[str]()
    pieces = np.zeros(self.tokenizer.vocab_size, np.int64)
    for file in self.settings.shards[name]:
      entry, counted, counted_pieces = files.read_json(
        self._note(file), list[Any], "remove its folder"
      )
      shards.append(tfrecords.Shard(**entry))
      counts.update(counted)
      pieces += counted_pieces
    if not counts["instances"]:
      raise ValueError(
        f"the {counts['documents']} {name} documents of "
        f"{files.quote(self.settings.input_files, most=200)} give no example: "
        "use more text or another --heldout_share; put one sentence on a line, "
        "and blank lines only between documents."
      )
    text = data_statistics.summarize_text(
      counts, pieces, self.tokenizer.special_ids, self.tokenizer.unk_id
    )
    statistics = {**text, **data_statistics.summarize_examples(counts)}
    return tfrecords.Split(tuple(shards), statistics)
