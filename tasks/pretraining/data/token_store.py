"""The tokens of all documents on disk, and the documents of a split or shard.

Text is tokenized once, for any number of duplicates. The tokens are in three
files, which grow while text is read, and which every process then maps into
memory. So any process can make the examples of any document, and "nsp" can draw
segments of others.

Which split and which shards a document belongs to depends on a hash of its
text, so all documents of a text have the same ones.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from typing import Iterator, Optional, Sequence

import numpy as np

from official_albert.tasks.pretraining.data import sentence_pairs

TRAIN, HELDOUT = "train", "heldout"
# What is known of a document besides its tokens: the number of its tokens and
# of its segments, how often it is used for training, `hash_text`,
# `hash_tokens`, and the results of `arrange`: how many equal documents come
# before it, and, in the first of a text, how many others have the same text.
ROW = np.dtype(
  [
    ("tokens", np.int64),
    ("segments", np.int32),
    ("copies", np.int32),
    ("text", np.uint64),
    ("content", np.uint64),
    ("occurrence", np.int32),
    ("repeats", np.int32),
  ]
)
_COLUMNS = ("ids", "lengths", "rows")  # Of `Documents`, and the names of files.


def id_dtype(vocab_size: int) -> np.dtype:
  """Returns the smallest type for ids; 2 bytes for up to 65,536 pieces."""
  return np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.int32)


class Documents(Sequence[sentence_pairs.Document]):
  """Some tokenized documents, each with at least one token.

  Attributes:
    ids: <integer>[T], the tokens of these and perhaps of other documents.
    lengths: <int32>[segments], the tokens of each segment, above 0.
    rows: <ROW>[documents].
    starts: <int64>[documents, 2], the first of its tokens and of its segments.
  """

  def __init__(
    self,
    ids: np.ndarray,
    lengths: np.ndarray,
    rows: np.ndarray,
    starts: Optional[np.ndarray] = None,
  ):
    """By default, documents follow each other."""
    self.ids, self.lengths, self.rows = ids, lengths, rows
    if starts is None:
      sizes = np.stack([rows["tokens"], rows["segments"]], axis=1)
      starts = np.cumsum(sizes, axis=0) - sizes
    self.starts = starts

  def __len__(self) -> int:
    return len(self.rows)

  def __getitem__(  # type: ignore[override]  # No slices.
    self, index: int
  ) -> sentence_pairs.Document:
    row, (token, segment) = self.rows[index], self.starts[index].tolist()
    lengths = self.lengths[segment : segment + row["segments"]]
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return sentence_pairs.Document(self.ids[token:][: row["tokens"]], offsets)

  def take(self, indices: np.ndarray) -> Documents:
    """Returns some of the documents, in the order of their indices."""
    rows, starts = self.rows[indices], self.starts[indices]
    return Documents(self.ids, self.lengths, rows, starts)

  def of_shard(self, shard: int, num_shards: int) -> Iterator[tuple[int, int]]:
    """Yields the index of each document of a shard, and the duplicate."""
    texts, copies = self.rows["text"], self.rows["copies"]
    for duplicate in range(int(copies.max(initial=0))):
      is_there = shards_of(texts, duplicate, num_shards) == shard
      own = np.flatnonzero(is_there & (copies > duplicate))
      own = own[np.argsort(self.starts[own, 0])]  # As they are in the files.
      yield from zip(own.tolist(), itertools.repeat(duplicate))


def append(folder: str, documents: Documents) -> list[int]:
  """Appends documents to the files of a folder; returns their sizes."""
  sizes = []
  for name in _COLUMNS:
    with open(os.path.join(folder, name), "ab") as file:
      file.write(getattr(documents, name).tobytes())
      sizes.append(file.tell())
  return sizes


def cut_off(folder: str, sizes: Sequence[int]) -> None:
  """Removes what was appended after `append` returned the sizes."""
  for name, size in zip(_COLUMNS, sizes):
    with open(os.path.join(folder, name), "ab") as file:
      if file.tell() < size:
        raise OSError(
          f"the tokens in {folder} are damaged: remove it to start over."
        )
      file.truncate(size)


def open_documents(folder: str, vocab_size: int) -> Documents:
  """Maps the files of a folder, which hold at least one document."""
  dtypes = (id_dtype(vocab_size), np.dtype(np.int32), ROW)
  # Plain arrays over the maps: slicing np.memmap is ten times slower.
  return Documents(
    *(
      np.asarray(np.memmap(os.path.join(folder, name), dtype, "r"))
      for name, dtype in zip(_COLUMNS, dtypes)
    )
  )


def hash_text(sentences: Sequence[str], seed: int) -> int:
  """Returns a hash below 2**64 of a seed and a text, but not of its spaces.

  It decides whether a document is held out, and about the shards. Equal texts
  have equal ones.
  """
  text = " ".join(" ".join(sentences).split())
  return _hash(text.encode(), seed)


def hash_tokens(document: sentence_pairs.Document, copies: int) -> int:
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


def arrange(documents: Documents, drop_duplicates: bool = False) -> Documents:
  """Orders the documents of a split, or of a part of it, by their content.

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


def split_documents(
  where: str,
  documents: Documents,
  share: float,
  least: int = 1,
  drop_duplicates: bool = False,
) -> dict[str, Documents]:
  """Splits documents by the hashes of their texts, and arranges them.

  A document is held out if its hash is among the lowest `share` of all hashes,
  so the choice does not depend on the other documents, and equal texts are in
  the same split. However, each split gets at least `least` documents, such as 2
  for the pairs of "nsp". Held-out documents are used once.

  Returns "train" and, with a share above 0, "heldout". A ValueError, which
  names the input by `where`, says that there are too few documents.
  """
  texts = np.sort(documents.rows["text"])
  if drop_duplicates:
    texts = np.unique(texts)
  if len(texts) < least:
    raise ValueError(
      "sentence_pair nsp takes random segments from another document, but "
      f"there is only one in {where}: separate documents by blank lines, or "
      "use sop."
    )
  if not share:
    return {TRAIN: arrange(documents, drop_duplicates)}
  # The lowest hashes that are not held out, at least and at most.
  lowest, highest = int(texts[least - 1]) + 1, int(texts[-least])
  if lowest > highest:
    raise ValueError(
      f"the documents in {where} have too few different texts to hold some of "
      "them out: separate documents by blank lines, or use --heldout_share=0."
    )
  bound = min(max(heldout_bound(share), lowest), highest)
  is_heldout = documents.rows["text"] < np.uint64(bound)
  train, heldout = (
    documents.take(np.flatnonzero(chosen))
    for chosen in (~is_heldout, is_heldout)
  )
  heldout.rows["copies"] = 1
  return {
    TRAIN: arrange(train, drop_duplicates),
    HELDOUT: arrange(heldout, drop_duplicates),
  }


def heldout_bound(share: float) -> int:
  """Returns the hash of a text below which documents are held out."""
  return int(share * 2.0**64)
