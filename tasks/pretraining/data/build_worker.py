"""From documents to the bytes of a shard, for any engine.

    blocks --tokenize--> documents --make_examples--> examples with random keys
    --write_shard--> a shard, sorted by key

All random choices are functions of the seed and the tokens of a document; its
split and the shard of each of its duplicates are functions of the seed and the
text. So a shard is a function of the set of documents and the settings,
whatever the order of the files, the number of workers or the engine.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import itertools
import os
from typing import Any, Iterable, Iterator, Mapping, NamedTuple, Sequence

import numpy as np

from official_albert import files, tfrecords
from official_albert.tasks.pretraining.data import (
  data_statistics,
  documents,
  examples,
  sentence_pairs,
)
from official_albert.tasks.pretraining.data.sentence_pairs import Document
from official_albert.tasks.pretraining.data.settings import BuildSettings

# The folder of an unfinished build, in that of the dataset.
UNFINISHED = ".unfinished"
_ASCII_SPACES = bytes(code for code in range(128) if chr(code).isspace())
# Examples that are padded and encoded at the same time.
_BATCH = 512


class Tokenized(NamedTuple):
  """A document of at least one token.

  Attributes:
    text, content: `hash_text` and `hash_tokens`.
    copies: how often it is used.
    is_heldout: whether it belongs to the held-out split.
    document: its tokens.
  """

  text: int
  content: int
  copies: int
  is_heldout: bool
  document: Document


def hash_text(sentences: Sequence[str], seed: int) -> int:
  """Returns a hash below 2**64 of a seed and a text, but not of its spaces."""
  # To split only what is not ASCII takes a third of the time.
  parts = (x if x.isascii() else "".join(x.split()) for x in sentences)
  return _hash("".join(parts).encode().translate(None, _ASCII_SPACES), seed)


def hash_tokens(document: Document, copies: int) -> int:
  """Returns a hash below 2**64 of all that shapes a document's examples."""
  ids, offsets = document
  parts = (ids.astype("<i4"), offsets.astype("<i8"), np.array([copies], "<i8"))
  return _hash(b"".join(part.tobytes() for part in parts), 0)


def _hash(content: bytes, seed: int) -> int:
  # Python's `hash` may differ between versions.
  salt = seed.to_bytes(8, "little")
  digest = hashlib.blake2b(content, digest_size=8, salt=salt).digest()
  return int.from_bytes(digest, "little")


def shards_of(texts: Any, duplicates: Any, num_shards: int) -> np.ndarray:
  """Returns the shards of documents' duplicates, <int64>[N].

  `texts` are hashes of the texts, and `duplicates` numbers from 0: N of one,
  and N or 1 of the other.
  """
  # The finalizer of SplitMix64 (Steele, Lea and Flood, 2014) is a good hash.
  steps = np.atleast_1d(duplicates).astype(np.uint64) + np.uint64(1)
  mixed = np.asarray(texts, np.uint64) ^ (steps * np.uint64(0x9E3779B97F4A7C15))
  for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
    mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
  mixed ^= mixed >> np.uint64(31)
  return (mixed % np.uint64(num_shards)).astype(np.int64)


class Job:
  """The functions of a dataset and what they need, for any process."""

  def __init__(self, settings: BuildSettings):
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

  def tokenize(self, block: documents.Block) -> Iterator[Tokenized]:
    """Yields the documents of a block, without what has no tokens."""
    settings = self.settings
    texts = documents.parse(block, settings.reading)
    encoded = iter(self.tokenizer.encode_batch([*itertools.chain(*texts)]))
    copies = round(settings.dupe_factor * block.weight)
    for text in texts:
      segments = [x for x in itertools.islice(encoded, len(text)) if x]
      if not segments:
        continue
      offsets = np.cumsum([0, *map(len, segments)])
      ids = np.fromiter(itertools.chain(*segments), np.int32, offsets[-1])
      document = Document(ids, offsets)
      text_hash = hash_text(text, settings.random_seed)
      content = hash_tokens(document, copies)
      # Whatever the other documents are.
      is_heldout = text_hash < int(settings.heldout_share * 2.0**64)
      used = 1 if is_heldout else copies
      yield Tokenized(text_hash, content, used, is_heldout, document)

  def make_examples(
    self, found: Iterable[Tokenized], shard: int, num_shards: int
  ) -> tuple[list[tuple[int, bytes]], collections.Counter, np.ndarray]:
    """Returns the random key and the record of each example of a shard.

    `found` are the documents of the shard, in any order. The counts and the
    pieces are those of `data_statistics.summarize_text`.
    """
    made, counts = list[tuple[int, bytes]](), collections.Counter[str]()
    pieces = np.zeros(self.tokenizer.vocab_size, np.int64)
    kept: list[Tokenized] = []
    # Of one text, those that are used most often come first.
    ordered = sorted(found, key=lambda x: (x.text, -x.copies, x.content))
    for text, equal in itertools.groupby(ordered, lambda x: x.text):
      group = [*equal]
      kept += group[:1] if self.settings.drop_duplicates else group
      # A text is counted in the shard of its first duplicate.
      if shards_of(text, 0, num_shards) == shard:
        counts["duplicate_documents"] += len(group) - 1
    instances = self._create_instances(kept, shard, num_shards, counts, pieces)
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
    found: Sequence[Tokenized],
    shard: int,
    num_shards: int,
    counts: collections.Counter,
    pieces: np.ndarray,
  ) -> Iterator[tuple[int, examples.Instance]]:
    """Yields the random key and each example; adds to the counts."""
    settings, tokenizer = self.settings.examples, self.tokenizer
    documents, occurrence = [x.document for x in found], 0
    for index, item in enumerate(found):
      ids, offsets = item.document
      # Equal documents have other random numbers.
      is_equal = index and found[index - 1][:2] == item[:2]
      occurrence = occurrence + 1 if is_equal else 0
      shards = shards_of(item.text, np.arange(item.copies), num_shards)
      for duplicate in np.flatnonzero(shards == shard).tolist():
        # The only source of randomness of these examples.
        numbers = [item.content, occurrence, duplicate]
        rng = np.random.default_rng([self.settings.random_seed, *numbers])
        made = [
          examples.create_instance(pair, tokenizer, settings, rng)
          for pair in sentence_pairs.create_pairs(
            documents, index, tokenizer.word_start_table, settings, rng
          )
        ]
        yield from zip(rng.integers(1 << 63, size=len(made)).tolist(), made)
        counts["used_tokens"] += len(ids)
        if not duplicate:
          counts.update(documents=1, segments=len(offsets) - 1)
          pieces += np.bincount(ids, minlength=len(pieces))

  def write_shard(
    self, found: Iterable[Tokenized], name: str, index: int
  ) -> int:
    """Writes a shard, sorted by key and content, then its note.

    The note, a JSON file in the folder `UNFINISHED`, has the manifest's entry
    and the counts. `found` are the documents of the shard; `name` is that of
    their split. Returns the number of tokens that are used.
    """
    shards = self.settings.shards[name]
    made, counts, pieces = self.make_examples(found, index, len(shards))
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
    settings = self.settings
    masking_ids = {  # Training with dynamic masks needs them.
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
        "use more text or another --heldout_share, with one sentence on a line."
      )
    text = data_statistics.summarize_text(
      counts, pieces, self.tokenizer.special_ids, self.tokenizer.unk_id
    )
    statistics = {**text, **data_statistics.summarize_examples(counts)}
    return tfrecords.Split(tuple(shards), statistics)
