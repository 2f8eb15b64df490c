"""Tokenized documents, and which of them a shard has.

The split and the shards of a document are hashes of its text, so all documents
of a text have the same ones.
"""

from __future__ import annotations

import hashlib
from typing import Any, Sequence

import numpy as np

from official_albert.tasks.pretraining.data.sentence_pairs import Document

# What is known of a document besides its tokens: their number, how often it is
# used, whether it is held out, `hash_text`, `hash_tokens`, and the results of
# `arrange`: how many equal documents come before it, and, in the first of a
# text, how many others have the same text.
ROW = np.dtype(
  [
    ("tokens", np.int64),
    ("copies", np.int32),
    ("is_heldout", bool),
    ("text", np.uint64),
    ("content", np.uint64),
    ("occurrence", np.int32),
    ("repeats", np.int32),
  ]
)


class Documents(Sequence[Document]):
  """Some tokenized documents, each with at least one token.

  Attributes:
    marked: <int32>[T], the tokens of these and perhaps of other documents. The
      first one of a segment is negative: ~id.
    rows: <ROW>[documents].
    starts: <int64>[documents], the first of its tokens.
  """

  def __init__(self, marked: np.ndarray, rows: np.ndarray, starts: Any = None):
    """By default, documents follow each other."""
    self.marked, self.rows, self.starts = marked, rows, starts
    if starts is None:
      self.starts = np.cumsum(rows["tokens"]) - rows["tokens"]

  def __len__(self) -> int:
    return len(self.rows)

  def __getitem__(  # type: ignore[override]  # No slices.
    self, index: int
  ) -> Document:
    marked = self.marked[self.starts[index] :][: self.rows[index]["tokens"]]
    is_first = marked < 0
    offsets = np.append(np.flatnonzero(is_first), len(marked))
    return Document(np.where(is_first, ~marked, marked), offsets)

  def take(self, indices: np.ndarray) -> Documents:
    """Returns some of the documents, in the order of their indices."""
    return Documents(self.marked, self.rows[indices], self.starts[indices])


def mark(document: Document) -> np.ndarray:
  """Returns the tokens of a document as in `Documents`."""
  marked = document.ids.astype(np.int32)
  marked[document.offsets[:-1]] ^= -1
  return marked


def hash_text(sentences: Sequence[str], seed: int) -> int:
  """Returns a hash below 2**64 of a seed and a text, but not of its spaces."""
  text = " ".join(" ".join(sentences).split())
  return _hash(text.encode(), seed)


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


def shards_of(texts: np.ndarray, duplicate: int, num_shards: int) -> np.ndarray:
  """Returns the shard of a duplicate of each document, <int64>[documents].

  `texts` <uint64>[documents] are the hashes of their texts.
  """
  # The finalizer of SplitMix64 (Steele, Lea and Flood, 2014) is a good hash.
  mixed = texts ^ np.uint64(0x9E3779B97F4A7C15 * (duplicate + 1) % 2**64)
  for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
    mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
  mixed ^= mixed >> np.uint64(31)
  return (mixed % np.uint64(num_shards)).astype(np.int64)


def duplicates_of(
  rows: np.ndarray, shard: int, num_shards: int
) -> list[tuple[int, int]]:
  """Returns the index of each document of a shard, and the duplicate."""
  found: list[tuple[int, int]] = []
  for duplicate in range(int(rows["copies"].max(initial=0))):
    is_there = shards_of(rows["text"], duplicate, num_shards) == shard
    own = np.flatnonzero(is_there & (rows["copies"] > duplicate))
    found += [(index, duplicate) for index in own.tolist()]
  return found


def arrange(documents: Documents, drop_duplicates: bool = False) -> Documents:
  """Orders the documents of a shard by their content.

  With `drop_duplicates`, one document of each text remains: one that is used
  most often.
  """
  rows = documents.rows
  order = np.lexsort((rows["content"], -rows["copies"], rows["text"]))
  arranged = documents.take(order)
  rows = arranged.rows
  is_first, is_new = np.ones((2, len(rows)), bool)
  is_first[1:] = rows["text"][1:] != rows["text"][:-1]
  is_new[1:] = is_first[1:] | (rows["content"][1:] != rows["content"][:-1])
  places, firsts = np.arange(len(rows)), np.flatnonzero(is_first)
  rows["occurrence"] = places - np.maximum.accumulate(places * is_new)
  rows["repeats"][firsts] = np.diff(firsts, append=len(rows)) - 1
  return arranged.take(firsts) if drop_duplicates else arranged
