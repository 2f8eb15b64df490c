"""Stores the tokenized corpus on disk, so its size is not limited by memory.

Text is read and tokenized once, for any `dupe_factor`. The corpus is a sequence
of chunk files. Every process maps them, so any process can make the examples of
any document, and "nsp" can draw segments of other documents.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import hashlib
import os
from typing import Sequence

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
    hashes: <uint64>[documents], see `hash_text`.
  """

  ids: np.ndarray
  lengths: np.ndarray
  ends: np.ndarray
  hashes: np.ndarray

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


def chunk_path(directory: str, number: int) -> str:
  """Returns the path of a chunk of a store."""
  return os.path.join(directory, f"chunk-{number:05d}")


def write_chunk(path: str, parts: Sequence[Documents]) -> None:
  """Writes documents to a file atomically."""
  sizes = np.array([[len(part.ids), len(part.lengths)] for part in parts])
  starts = np.cumsum(sizes, axis=0) - sizes
  ends = [part.ends + start for part, start in zip(parts, starts)]
  num_documents = sum(map(len, parts))
  # The ids come last, as they may have 2 bytes and the others need alignment.
  content = (
    np.array([num_documents, sizes[:, 1].sum()], np.int64),
    *ends,
    *(part.hashes for part in parts),
    *(part.lengths for part in parts),
    *(part.ids for part in parts),
  )
  files.write_bytes(path, b"".join(part.tobytes() for part in content))


def _map_chunk(path: str, dtype: np.dtype) -> Documents:
  # A plain array over the map: slicing np.memmap is ten times slower.
  data = np.asarray(np.memmap(path, np.uint8, mode="r"))
  documents, segments = data[:16].view(np.int64).tolist()
  hashes_at = 16 + 16 * documents
  lengths_at = hashes_at + 8 * documents
  ids_at = lengths_at + 4 * segments
  return Documents(
    data[ids_at:].view(dtype),
    data[lengths_at:ids_at].view(np.int32),
    data[16:hashes_at].view(np.int64).reshape(-1, 2),
    data[hashes_at:lengths_at].view(np.uint64),
  )


class TokenStore(Sequence[sentence_pairs.Document]):
  """The documents of all chunks, read on access."""

  def __init__(self, chunk_paths: Sequence[str], vocab_size: int):
    """Maps the chunks, which must be complete."""

    def open_chunk(number: int) -> Documents:
      return _map_chunk(chunk_paths[number], id_dtype(vocab_size))

    self._chunk = functools.lru_cache(_MAX_OPEN_CHUNKS)(open_chunk)
    self._firsts = [0]  # The first document of each chunk; the total.
    for chunk in map(self._chunk, range(len(chunk_paths))):
      self._firsts.append(self._firsts[-1] + len(chunk))

  def token_counts(self) -> np.ndarray:
    """Returns the tokens of each document, <int64>[documents]."""
    chunks = map(self._chunk, range(len(self._firsts) - 1))
    return np.concatenate(
      [np.diff(chunk.ends[:, 0], prepend=0) for chunk in chunks]
    )

  def hashes(self) -> np.ndarray:
    """Returns the hash of each document, <uint64>[documents]."""
    chunks = map(self._chunk, range(len(self._firsts) - 1))
    return np.concatenate([chunk.hashes for chunk in chunks])

  def __len__(self) -> int:
    return self._firsts[-1]

  def __getitem__(  # type: ignore[override]  # No slices.
    self, index: int
  ) -> sentence_pairs.Document:
    if index >= len(self):
      raise IndexError(index)  # Ends an iteration.
    chunk = bisect.bisect_right(self._firsts, index) - 1
    return self._chunk(chunk)[index - self._firsts[chunk]]


class Split(Sequence[sentence_pairs.Document]):
  """Selected documents of a dataset, given consecutive `documents` of it.

  Attributes:
    numbers: <int64>[documents], the number of each document in the dataset.
  """

  def __init__(
    self,
    documents: Sequence[sentence_pairs.Document],
    numbers: np.ndarray,
    first_number: int = 0,
  ):
    """Selects documents; `first_number` is the number of `documents[0]`."""
    self._documents = documents
    self._first_number = first_number
    self.numbers = numbers

  def __len__(self) -> int:
    return len(self.numbers)

  def __getitem__(  # type: ignore[override]  # No slices.
    self, index: int
  ) -> sentence_pairs.Document:
    return self._documents[self.numbers[index] - self._first_number]


def hash_text(sentences: Sequence[str], seed: int) -> int:
  """Returns a hash below 2**64 of a seed and a text, but not of its spaces."""
  text = " ".join(" ".join(sentences).split())
  # Python's `hash` may differ between versions.
  digest = hashlib.blake2b(
    text.encode(), digest_size=8, salt=seed.to_bytes(8, "little")
  ).digest()
  return int.from_bytes(digest, "little")


def split_documents(
  input_files: str, hashes: np.ndarray, share: float, kind: str
) -> dict[str, np.ndarray]:
  """Splits documents by the hashes of their texts, <uint64>[documents].

  A document is held out if its hash is among the lowest `share` of all hashes,
  so the choice does not depend on the other documents, and equal texts are in
  the same split. However, each split gets at least the documents it needs: one,
  or two for the random pairs of `kind` "nsp".

  Returns:
    "train" and, with a share above 0, "heldout": ascending document numbers,
    <int64>.
  """
  least = 2 if kind == "nsp" else 1
  advice = "separate documents by blank lines"
  where = files.quote_paths(input_files)
  num_documents = len(hashes)
  if not num_documents:
    raise ValueError(
      f"there is no text in {where}: there must be at least one document."
    )
  if num_documents < least:
    raise ValueError(
      "sentence_pair nsp takes random segments from another document, but "
      f"there is only one in {where}: {advice}, or use sop."
    )
  if not share:
    return {TRAIN: np.arange(num_documents)}
  if num_documents < 2 * least:
    raise ValueError(
      f"the number of documents in {where} is {num_documents}, too few to "
      f"hold some of them out: {advice}, or use --heldout_share=0."
    )
  values, counts = np.unique(hashes, return_counts=True)
  # The documents that are held out if the first, the first two ... values are.
  ends = np.cumsum(counts)
  possible = np.flatnonzero((ends >= least) & (num_documents - ends >= least))
  if not len(possible):
    raise ValueError(
      f"the documents in {where} have too few different texts to hold some of "
      "them out: use --heldout_share=0."
    )
  wanted = int((values < share * 2.0**64).sum()) - 1
  last = values[np.clip(wanted, possible[0], possible[-1])]
  return {
    TRAIN: np.flatnonzero(hashes > last),
    HELDOUT: np.flatnonzero(hashes <= last),
  }
