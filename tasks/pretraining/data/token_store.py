"""The tokenized corpus on disk, its splits, and the documents of a shard.

Text is read and tokenized once, for any number of duplicates. The corpus is
three files, which grow while it is read, and which every process then maps into
memory. So any process can make the examples of any document, and "nsp" can draw
segments of others.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
from typing import Any, NamedTuple, Sequence

import numpy as np

from official_albert.tasks.pretraining.data import sentence_pairs

TRAIN, HELDOUT = "train", "heldout"
# What is known of a document besides its tokens: the number of its tokens and
# of its segments, how often it is used for training, `hash_text` and
# `hash_tokens`.
ROW = np.dtype(
  [
    ("tokens", np.int64),
    ("segments", np.int32),
    ("copies", np.int32),
    ("text", np.uint64),
    ("content", np.uint64),
  ]
)
_COLUMNS = ("ids", "lengths", "rows")  # Of `Documents`, and the names of files.


def id_dtype(vocab_size: int) -> np.dtype:
  """Returns the smallest type for ids; 2 bytes for up to 65,536 pieces."""
  return np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.int32)


@dataclasses.dataclass(frozen=True, eq=False)
class Documents(Sequence[sentence_pairs.Document]):
  """Some tokenized documents, each with at least one token.

  Attributes:
    ids: <integer>[T], the tokens of all documents.
    lengths: <int32>[segments], the tokens of each segment, above 0.
    rows: <ROW>[documents].
  """

  ids: np.ndarray
  lengths: np.ndarray
  rows: np.ndarray

  @functools.cached_property
  def _ends(self) -> np.ndarray:
    """Where the tokens and the segments of each document end."""
    ends = np.zeros((len(self.rows) + 1, 2), np.int64)
    for column, name in enumerate(("tokens", "segments")):
      np.cumsum(self.rows[name], out=ends[1:, column])
    return ends

  def __len__(self) -> int:
    return len(self.rows)

  def __getitem__(  # type: ignore[override]  # No slices.
    self, index: int
  ) -> sentence_pairs.Document:
    if index >= len(self):
      raise IndexError(index)  # Ends an iteration.
    (start, first), (stop, end) = self._ends[index : index + 2]
    offsets = np.zeros(end - first + 1, np.int64)
    np.cumsum(self.lengths[first:end], out=offsets[1:])
    return sentence_pairs.Document(self.ids[start:stop], offsets)

  def alone(self, index: int) -> Documents:
    """Returns a document without the others."""
    ids, offsets = self[index]
    lengths = np.diff(offsets).astype(np.int32)
    return Documents(ids, lengths, self.rows[index : index + 1].copy())


def concatenate(parts: Sequence[Documents]) -> Documents:
  """Returns all documents of at least one part."""
  return Documents(
    *(np.concatenate([getattr(p, name) for p in parts]) for name in _COLUMNS)
  )


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
      file.truncate(size)


def open_documents(folder: str, vocab_size: int) -> Documents:
  """Maps the files of a folder; raises OSError if they are damaged."""
  dtypes = (id_dtype(vocab_size), np.int32, ROW)
  found = Documents(
    *(_map(os.path.join(folder, x), y) for x, y in zip(_COLUMNS, dtypes))
  )
  sizes = [len(found.ids), len(found.lengths)]
  if sizes != [found.rows[name].sum() for name in ("tokens", "segments")]:
    raise OSError(
      f"the tokens in {folder} are damaged: remove it to start over."
    )
  return found


def _map(path: str, dtype: Any) -> np.ndarray:
  size = os.path.getsize(path) // np.dtype(dtype).itemsize
  if not size:  # Nothing can be mapped.
    return np.empty(0, dtype)
  # A plain array over the map: slicing np.memmap is ten times slower.
  return np.asarray(np.memmap(path, dtype, "r", shape=(size,)))


class Selection(Sequence[sentence_pairs.Document]):
  """Some of the documents, by their indices <int64>[documents]."""

  def __init__(
    self, documents: Sequence[sentence_pairs.Document], indices: np.ndarray
  ):
    self._documents, self._indices = documents, indices

  def __len__(self) -> int:
    return len(self._indices)

  def __getitem__(  # type: ignore[override]  # No slices.
    self, index: int
  ) -> sentence_pairs.Document:
    return self._documents[int(self._indices[index])]


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


class Split(NamedTuple):
  """Documents in an order that their content determines.

  All documents of a text have the same shards, so a part of a split that holds
  the documents of some shards is enough to make these.

  Attributes:
    indices: <int64>[documents], where each was before.
    rows: <ROW>[documents].
    occurrences: <int64>[documents], how many equal documents come before it.
    repeated: <uint64>[repeats], the hash of the text of each document whose
      text occurs before.
  """

  indices: np.ndarray
  rows: np.ndarray
  occurrences: np.ndarray
  repeated: np.ndarray

  def of_shard(
    self, shard: int, num_shards: int
  ) -> list[tuple[int, int, int, int]]:
    """Returns the documents of a shard for `build_worker.Job.make_examples`.

    Each has its place, the hash of its tokens, its occurrence and the number of
    the duplicate, from 0.
    """
    found = []
    by_index = np.argsort(self.indices)  # Files are read from start to end.
    for duplicate in range(int(self.rows["copies"].max(initial=0))):
      shards = shards_of(self.rows["text"], duplicate, num_shards)
      chosen = (shards == shard) & (self.rows["copies"] > duplicate)
      places = by_index[chosen[by_index]]
      contents = self.rows["content"][places].tolist()
      occurrences = self.occurrences[places].tolist()
      found += [
        (*item, duplicate)
        for item in zip(places.tolist(), contents, occurrences)
      ]
    return found


def arrange(rows: np.ndarray, drop_duplicates: bool = False) -> Split:
  """Arranges documents <ROW>[documents], those of a split or of a part of it.

  With `drop_duplicates`, one document of each text remains: one that is used
  most often.
  """
  order = np.lexsort((rows["content"], -rows["copies"], rows["text"]))
  sorted_rows = rows[order]
  repeats, same = (np.zeros(len(rows), bool) for _ in range(2))
  texts, contents = sorted_rows["text"], sorted_rows["content"]
  repeats[1:] = texts[1:] == texts[:-1]
  same[1:] = repeats[1:] & (contents[1:] == contents[:-1])
  places = np.arange(len(rows))
  occurrences = places - np.maximum.accumulate(np.where(same, 0, places))
  kept = ~repeats if drop_duplicates else slice(None)
  return Split(
    order[kept], sorted_rows[kept], occurrences[kept], texts[repeats]
  )


def split_documents(
  where: str,
  rows: np.ndarray,
  share: float,
  kind: str,
  drop_duplicates: bool = False,
) -> dict[str, Split]:
  """Splits documents <ROW>[documents] by the hashes of their texts.

  A document is held out if its hash is among the lowest `share` of all hashes,
  so the choice does not depend on the other documents, and equal texts are in
  the same split. However, each split gets at least the documents it needs: one,
  or two for the random pairs of `kind` "nsp". Held-out documents are used once.

  Args:
    where: the input, for errors.
    rows: what is known of each.
    share: the share of documents to hold out.
    kind: the kind of sentence pairs.
    drop_duplicates: whether to use one document of each text only.

  Returns:
    "train" and, with a share above 0, "heldout".

  Raises:
    ValueError: there are too few documents.
  """
  texts = np.unique(rows["text"]) if drop_duplicates else rows["text"]
  least, count = 2 if kind == "nsp" else 1, len(texts)
  advice = "separate documents by blank lines"
  if not count:
    raise ValueError(
      f"there is no text in {where}: there must be at least one document."
    )
  if count < least:
    raise ValueError(
      "sentence_pair nsp takes random segments from another document, but "
      f"there is only one in {where}: {advice}, or use sop."
    )
  if not share:
    return {TRAIN: arrange(rows, drop_duplicates)}
  if count < 2 * least:
    raise ValueError(
      f"the number of documents in {where} is {count}, too few to hold some of "
      f"them out: {advice}, or use --heldout_share=0."
    )
  values, counts = np.unique(texts, return_counts=True)
  # The documents that are held out if the first, the first two ... values are.
  ends = np.cumsum(counts)
  possible = np.flatnonzero((ends >= least) & (count - ends >= least))
  if not len(possible):
    raise ValueError(
      f"the documents in {where} have too few different texts to hold some of "
      "them out: use --heldout_share=0."
    )
  wanted = np.searchsorted(values, np.uint64(heldout_bound(share))) - 1
  last = values[np.clip(wanted, possible[0], possible[-1])]
  is_heldout = rows["text"] <= last
  splits = {}
  for name, chosen in ((TRAIN, ~is_heldout), (HELDOUT, is_heldout)):
    own = rows[chosen]
    if name == HELDOUT:
      own["copies"] = 1
    split = arrange(own, drop_duplicates)
    indices = np.flatnonzero(chosen)[split.indices]
    splits[name] = split._replace(indices=indices)
  return splits


def heldout_bound(share: float) -> int:
  """Returns the hash of a text below which documents are held out."""
  return int(share * 2.0**64)
