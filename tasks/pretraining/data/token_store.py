"""The tokenized corpus on disk, so that its size is not bound by memory.

Text is read and tokenized once, whatever `dupe_factor` is. The corpus is a
sequence of chunk files. Every process maps them, so that any process can make
the examples of any document, and "nsp" can draw segments of another one.
"""

from __future__ import annotations

import bisect
import functools
import hashlib
import os
from typing import NamedTuple, Sequence

import numpy as np

from official_albert import files
from tasks.pretraining.data import sentence_pairs

TRAIN, HELDOUT = "train", "heldout"
_MAX_OPEN_CHUNKS = 256


def id_dtype(vocab_size: int) -> np.dtype:
  """Returns the smallest type for ids; 2 bytes for up to 65,536 pieces."""
  return np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.int32)


class Documents(NamedTuple):
  """Some tokenized documents, each with at least one token.

  Attributes:
    ids: <integer>[T], the tokens of all documents.
    lengths: <int32>[segments], the tokens of each segment, above 0.
    segments: <int32>[documents], the segments of each document.
  """

  ids: np.ndarray
  lengths: np.ndarray
  segments: np.ndarray

  def ends(self) -> np.ndarray:
    """Returns the end of each document, <int64>[documents, 2].

    The columns count tokens and segments.
    """
    segments = np.cumsum(self.segments, dtype=np.int64)
    tokens = np.cumsum(self.lengths, dtype=np.int64)[segments - 1]
    return np.stack([tokens, segments], axis=1)

  def unpack(self) -> list[sentence_pairs.Document]:
    """Returns the documents one by one."""
    offsets = np.concatenate([[0], np.cumsum(self.lengths, dtype=np.int64)])
    edges = [0, *np.cumsum(self.segments).tolist()]
    parts = [offsets[a : b + 1] for a, b in zip(edges, edges[1:])]
    return [
      sentence_pairs.Document(self.ids[part[0] : part[-1]], part - part[0])
      for part in parts
    ]


def chunk_path(directory: str, number: int) -> str:
  """Returns the path of a chunk of a store."""
  return os.path.join(directory, f"chunk-{number:05d}")


def write_chunk(path: str, parts: Sequence[Documents], vocab_size: int) -> None:
  """Writes documents to a file that appears when it is complete.

  Args:
    path: see `chunk_path`.
    parts: the documents, in order; may be empty.
    vocab_size: V of the tokenizer.

  Raises:
    OSError: the file cannot be written.
  """
  joined = Documents(*map(np.concatenate, zip(*parts)))
  # The ids come last, as they may have 2 bytes and the others need alignment.
  sizes = np.array([len(joined.segments), len(joined.lengths)], np.int64)
  content = (
    sizes,
    joined.ends(),
    np.ascontiguousarray(joined.lengths, np.int32),
    np.ascontiguousarray(joined.ids, id_dtype(vocab_size)),
  )
  files.write_bytes(path, b"".join(part.tobytes() for part in content))


class _Chunk:
  """A mapped chunk file."""

  def __init__(self, path: str, dtype: np.dtype):
    # A plain array over the map: slicing np.memmap is ten times slower.
    data = np.asarray(np.memmap(path, np.uint8, mode="r"))
    documents, segments = data[:16].view(np.int64).tolist()
    lengths_at = 16 + 16 * documents
    ids_at = lengths_at + 4 * segments
    # Where the tokens and segments of each document end, <int64>[documents, 2].
    self.ends = data[16:lengths_at].view(np.int64).reshape(-1, 2)
    self.lengths = data[lengths_at:ids_at].view(np.int32)
    self.ids = data[ids_at:].view(dtype)

  def __getitem__(self, index: int) -> sentence_pairs.Document:
    start, first = self.ends[index - 1] if index else (0, 0)
    stop, end = self.ends[index]
    offsets = np.zeros(end - first + 1, np.int64)
    np.cumsum(self.lengths[first:end], out=offsets[1:])
    return sentence_pairs.Document(self.ids[start:stop], offsets)


class TokenStore(Sequence[sentence_pairs.Document]):
  """The documents of all chunks in a folder, read when asked for.

  Attributes:
    num_chunks: number of chunks.
    num_segments: number of segments of all documents.
  """

  def __init__(self, directory: str, num_chunks: int, vocab_size: int):
    """Maps the chunks 0 to `num_chunks` - 1."""

    def open_chunk(number: int) -> _Chunk:
      return _Chunk(chunk_path(directory, number), id_dtype(vocab_size))

    # Each map holds a file descriptor.
    self._chunk = functools.lru_cache(_MAX_OPEN_CHUNKS)(open_chunk)
    self._vocab_size = vocab_size
    self.num_chunks = num_chunks
    self.num_segments = 0
    self._firsts = [0]  # The first document of each chunk; the total.
    for chunk in map(self._chunk, range(num_chunks)):
      self.num_segments += len(chunk.lengths)
      self._firsts.append(self._firsts[-1] + len(chunk.ends))

  def token_counts(self) -> np.ndarray:
    """Returns the tokens of each document, <int64>[documents]."""
    chunks = map(self._chunk, range(self.num_chunks))
    return np.concatenate(
      [np.diff(chunk.ends[:, 0], prepend=0) for chunk in chunks]
    )

  def count_pieces(self, chunk: int) -> np.ndarray:
    """Returns how often each token id occurs in a chunk, <int64>[V]."""
    return np.bincount(self._chunk(chunk).ids, minlength=self._vocab_size)

  def __len__(self) -> int:
    return self._firsts[-1]

  def __getitem__(self, index: int) -> sentence_pairs.Document:
    if not 0 <= index < len(self):
      raise IndexError(f"document {index} of {len(self)}")
    chunk = bisect.bisect_right(self._firsts, index) - 1
    return self._chunk(chunk)[index - self._firsts[chunk]]


class Split(Sequence[sentence_pairs.Document]):
  """Some documents of a longer sequence.

  Attributes:
    numbers: <int64>[documents], the number of each document in the dataset.
  """

  def __init__(
    self,
    documents: Sequence[sentence_pairs.Document],
    indices: np.ndarray,
    first_number: int = 0,
  ):
    """Selects `documents[i]` for the `indices`, <int64>[documents].

    `first_number` is the number of `documents[0]` in the dataset.
    """
    self._documents = documents
    self._indices = indices
    self.numbers = indices + first_number

  def __len__(self) -> int:
    return len(self._indices)

  def __getitem__(self, index: int) -> sentence_pairs.Document:
    return self._documents[self._indices[index]]


def split_documents(
  num_documents: int, share: float, seed: int, kind: str
) -> dict[str, np.ndarray]:
  """Splits documents 0 to `num_documents` - 1 at random.

  A document is held out if its hash is among the lowest `share` of all hashes,
  so the choice does not depend on the other documents. However, each split
  gets at least the documents it needs: one, or two for the random pairs of
  "nsp".

  Args:
    num_documents: number of documents, at least 1.
    share: share of the documents to hold out, from 0 to below 1.
    seed: seed of the hash.
    kind: kind of the pairs, one of `example_settings.PAIR_KINDS`.

  Returns:
    "train" and, with a share above 0, "heldout": ascending document numbers,
    <int64>.

  Raises:
    ValueError: there are too few documents.
  """
  least = 2 if kind == "nsp" else 1
  advice = "separate documents by blank lines"
  if num_documents < least:
    raise ValueError(
      "sentence_pair nsp takes random segments from another document, but "
      f"there is only one: {advice}, or use sop."
    )
  if not share:
    return {TRAIN: np.arange(num_documents)}
  if num_documents < 2 * least:
    raise ValueError(
      f"the number of documents is {num_documents}, too few to hold some of "
      f"them out: {advice}, or use --heldout_share=0."
    )
  hashes = np.array(
    [_hash(seed, number) for number in range(num_documents)], np.uint64
  )
  count = int((hashes < share * 2.0**64).sum())
  count = min(max(count, least), num_documents - least)
  order = np.argsort(hashes, kind="stable")
  return {TRAIN: np.sort(order[count:]), HELDOUT: np.sort(order[:count])}


def _hash(seed: int, number: int) -> int:
  """Returns 64 bits. Python's `hash` may differ between versions."""
  text = f"{seed}:{number}".encode()
  return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
