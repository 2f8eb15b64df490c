"""The tokenized corpus on disk, and the roles of its documents.

Text is read and tokenized once, for any number of duplicates. The corpus is a
sequence of chunk files, which every process maps into memory. So any process
can make the examples of any document, and "nsp" can draw segments of others.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import hashlib
import os
from typing import NamedTuple, Sequence

import numpy as np

from official_albert import files
from official_albert.tasks.pretraining.data import sentence_pairs

TRAIN, HELDOUT = "train", "heldout"
_MAX_OPEN_CHUNKS = 256  # Each open chunk holds a file descriptor.


def id_dtype(vocab_size: int) -> np.dtype:
  """Returns the smallest type for ids; 2 bytes for up to 65,536 pieces."""
  return np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.int32)


@dataclasses.dataclass(frozen=True, eq=False)
class Documents(Sequence[sentence_pairs.Document]):
  """Some tokenized documents, each with at least one token.

  Attributes:
    ids: <integer>[T], the tokens of all documents.
    lengths: <int32>[segments], the tokens of each segment, above 0.
    ends: <int64>[documents, 2], where the tokens and the segments of each
      document end.
    hashes: <uint64>[documents, 2], those of the text and of the tokens; see
      `hash_text` and `hash_tokens`.
    copies: <int32>[documents], how often each is used for training.
  """

  ids: np.ndarray
  lengths: np.ndarray
  ends: np.ndarray
  hashes: np.ndarray
  copies: np.ndarray

  def __len__(self) -> int:
    return len(self.ends)

  def __getitem__(  # type: ignore[override]  # No slices.
    self, index: int
  ) -> sentence_pairs.Document:
    start, first = self.ends[index - 1] if index else (0, 0)
    stop, end = self.ends[index]
    offsets = np.zeros(end - first + 1, np.int64)
    np.cumsum(self.lengths[first:end], out=offsets[1:])
    return sentence_pairs.Document(self.ids[start:stop], offsets)


def concatenate(parts: Sequence[Documents]) -> Documents:
  """Returns all documents of at least one part."""
  sizes = np.array([[len(part.ids), len(part.lengths)] for part in parts])
  starts = np.cumsum(sizes, axis=0) - sizes
  ends = [part.ends + start for part, start in zip(parts, starts)]
  ids, lengths, hashes, copies = (
    np.concatenate([getattr(part, name) for part in parts])
    for name in ("ids", "lengths", "hashes", "copies")
  )
  return Documents(ids, lengths, np.concatenate(ends), hashes, copies)


def chunk_path(directory: str, number: int) -> str:
  """Returns the path of a chunk of a store."""
  return os.path.join(directory, f"chunk-{number:05d}")


def write_chunk(path: str, documents: Documents) -> None:
  """Writes documents to a file atomically."""
  # The ids come last, as they may have 2 bytes and the others need alignment.
  content = (
    np.array([len(documents), len(documents.lengths)], np.int64),
    documents.ends,
    documents.hashes,
    documents.copies,
    documents.lengths,
    documents.ids,
  )
  files.write_bytes(path, b"".join(part.tobytes() for part in content))


def map_chunk(path: str, vocab_size: int) -> Documents:
  """Maps the documents of a file; raises OSError if it is damaged."""
  # A plain array over the map: slicing np.memmap is ten times slower.
  data = np.asarray(np.memmap(path, np.uint8, mode="r"))
  dtype = id_dtype(vocab_size)
  documents, segments = data[:16].view(np.int64).tolist()
  sizes = [16, 16 * documents, 16 * documents, 4 * documents, 4 * segments]
  edges = np.cumsum(sizes)
  ends, hashes, copies, lengths = (data[a:b] for a, b in zip(edges, edges[1:]))
  ends = ends.view(np.int64).reshape(-1, 2)
  tokens, found = ends[-1] if documents else (0, 0)
  if (len(data), found) != (edges[-1] + tokens * dtype.itemsize, segments):
    raise OSError(
      f"{path} is damaged: remove {os.path.dirname(path)} to start over."
    )
  return Documents(
    data[edges[-1] :].view(dtype),
    lengths.view(np.int32),
    ends,
    hashes.view(np.uint64).reshape(-1, 2),
    copies.view(np.int32),
  )


class TokenStore(Sequence[sentence_pairs.Document]):
  """The documents of all chunks, read on access."""

  def __init__(self, chunk_paths: Sequence[str], vocab_size: int):
    """Maps the chunks, which must be complete."""

    def open_chunk(number: int) -> Documents:
      return map_chunk(chunk_paths[number], vocab_size)

    self.chunk = functools.lru_cache(_MAX_OPEN_CHUNKS)(open_chunk)
    self._firsts = [0]  # The first document of each chunk; the total.
    for chunk in map(self.chunk, range(len(chunk_paths))):
      self._firsts.append(self._firsts[-1] + len(chunk))

  def columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns `hashes`, `copies` and the tokens <int64> of all documents."""
    chunks = [self.chunk(number) for number in range(len(self._firsts) - 1)]
    return (
      np.concatenate(
        [np.zeros((0, 2), np.uint64), *(c.hashes for c in chunks)]
      ),
      np.concatenate([np.zeros(0, np.int32), *(c.copies for c in chunks)]),
      np.concatenate(
        [
          np.zeros(0, np.int64),
          *(np.diff(c.ends[:, 0], prepend=0) for c in chunks),
        ]
      ),
    )

  def __len__(self) -> int:
    return self._firsts[-1]

  def __getitem__(  # type: ignore[override]  # No slices.
    self, index: int
  ) -> sentence_pairs.Document:
    if index >= len(self):
      raise IndexError(index)  # Ends an iteration.
    chunk = bisect.bisect_right(self._firsts, index) - 1
    return self.chunk(chunk)[index - self._firsts[chunk]]


def hash_text(sentences: Sequence[str], seed: int) -> int:
  """Returns a hash below 2**64 of a seed and a text, but not of its spaces.

  It decides whether a document is held out, and equal texts have equal ones.
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


class Split(NamedTuple):
  """The documents of a split, in an order that their content determines.

  Attributes:
    numbers: <int64>[documents], the number of each document in the dataset.
    tokens: <uint64>[documents], the hashes of their tokens.
    occurrences: <int64>[documents], how many documents with the same tokens
      come before it.
    copies: <int32>[documents], how often each is used.
    duplicates: how many documents repeat the text of another one.
  """

  numbers: np.ndarray
  tokens: np.ndarray
  occurrences: np.ndarray
  copies: np.ndarray
  duplicates: int

  def of_shard(
    self, shard: int, num_shards: int
  ) -> list[tuple[int, int, int, int]]:
    """Returns the documents of a shard for `build_worker.Job.make_examples`."""
    by_number = np.argsort(self.numbers)  # Files are read from start to end.
    found = []
    for duplicate in range(int(self.copies.max())):
      shards = shards_of(self.tokens, self.occurrences, duplicate, num_shards)
      chosen = (shards == shard) & (self.copies > duplicate)
      places = by_number[chosen[by_number]]
      found += [
        (*item, duplicate)
        for item in zip(
          places.tolist(),
          self.tokens[places].tolist(),
          self.occurrences[places].tolist(),
        )
      ]
    return found


def shards_of(
  tokens: np.ndarray, occurrences: np.ndarray, duplicate: int, num_shards: int
) -> np.ndarray:
  """Returns the shard of a duplicate of each document, <int64>[documents]."""
  # The finalizer of SplitMix64 (Steele, Lea and Flood, 2014) is a good hash.
  step = 0x9E3779B97F4A7C15 * (duplicate + 1) % 2**64
  mixed = tokens ^ np.uint64(step)
  mixed = mixed + occurrences.astype(np.uint64) * np.uint64(0xD1B54A32D192ED03)
  for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
    mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
  mixed ^= mixed >> np.uint64(31)
  return (mixed % np.uint64(num_shards)).astype(np.int64)


def split_documents(
  where: str,
  hashes: np.ndarray,
  copies: np.ndarray,
  share: float,
  kind: str,
  drop_duplicates: bool = False,
) -> dict[str, Split]:
  """Splits documents by the hashes of their texts.

  A document is held out if its hash is among the lowest `share` of all hashes,
  so the choice does not depend on the other documents, and equal texts are in
  the same split. However, each split gets at least the documents it needs: one,
  or two for the random pairs of `kind` "nsp".

  Args:
    where: the input, for errors.
    hashes: <uint64>[documents, 2], see `Documents`.
    copies: <int32>[documents], see `Documents`.
    share: the share of documents to hold out.
    kind: the kind of sentence pairs.
    drop_duplicates: whether to use one document of each text only.

  Returns:
    "train" and, with a share above 0, "heldout".
  """
  order = np.lexsort(hashes.T[::-1])  # By text, then by tokens.
  texts, tokens = hashes[order].T
  repeats_text = np.zeros(len(order), bool)
  repeats_text[1:] = texts[1:] == texts[:-1]
  repeated = texts[repeats_text]
  if drop_duplicates:
    order, texts, tokens = (x[~repeats_text] for x in (order, texts, tokens))
  same = np.zeros(len(order), bool)
  same[1:] = (texts[1:] == texts[:-1]) & (tokens[1:] == tokens[:-1])
  places = np.arange(len(order))
  occurrences = places - np.maximum.accumulate(np.where(same, 0, places))
  limit = heldout_limit(where, texts, share, kind)
  end, repeats = (
    int(np.searchsorted(x, np.uint64(limit), "right")) if share else 0
    for x in (texts, repeated)
  )

  def split(chosen: slice, duplicates: int) -> Split:
    numbers = order[chosen]
    return Split(
      numbers, tokens[chosen], occurrences[chosen], copies[numbers], duplicates
    )

  splits = {TRAIN: split(slice(end, None), len(repeated) - repeats)}
  if share:
    heldout = split(slice(0, end), repeats)
    splits[HELDOUT] = heldout._replace(copies=np.ones_like(heldout.copies))
  return splits


def heldout_limit(
  where: str, texts: np.ndarray, share: float, kind: str
) -> int:
  """Returns the highest hash of a text that is held out; -1 for none.

  Args:
    where: the input, for errors.
    texts: <uint64>[documents], the hash of the text of each.
    share: the share of documents to hold out.
    kind: the kind of sentence pairs.

  Raises:
    ValueError: there are too few documents.
  """
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
    return -1
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
  wanted = int((values < share * 2.0**64).sum()) - 1
  return int(values[np.clip(wanted, possible[0], possible[-1])])
