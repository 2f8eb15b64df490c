"""The tokenized corpus on disk, so that its size is not bound by memory.

Text is read and tokenized once, whatever `dupe_factor` is; every process maps
the same files, so that any of them can make the examples of any document, and
"nsp" can reach into another one.
"""

from __future__ import annotations

import array
import contextlib
import os
from typing import BinaryIO, Sequence

import numpy as np

from tasks.pretraining import sentence_pairs

_IDS = "ids.bin"
_LENGTHS = "segment_lengths.bin"
_TABLE = "documents.npy"


def id_dtype(vocab_size: int) -> np.dtype:
  """The smallest type for ids: half the disk for all released vocabularies."""
  return np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.int32)


class TokenStoreWriter:
  """Appends documents; leaving its context makes the folder a `TokenStore`."""

  def __init__(self, directory: str, vocab_size: int):
    """Creates the folder."""
    os.makedirs(directory)
    self._directory = directory
    self._dtype = id_dtype(vocab_size)
    self._files = contextlib.ExitStack()
    self._ids = self._open(_IDS)
    self._lengths = self._open(_LENGTHS)
    # Flat pairs: the end of a document's tokens, the end of its segments.
    self._table = array.array("q", (0, 0))

  def _open(self, name: str) -> BinaryIO:
    path = os.path.join(self._directory, name)
    return self._files.enter_context(open(path, "wb"))

  def append(self, ids: np.ndarray, segment_lengths: np.ndarray) -> None:
    """Adds a document.

    Args:
      ids: <integer>[T].
      segment_lengths: <integer>[segments], all above 0, sum T.
    """
    self._ids.write(np.ascontiguousarray(ids, self._dtype))
    self._lengths.write(np.ascontiguousarray(segment_lengths, np.int32))
    self._table.append(self._table[-2] + len(ids))
    self._table.append(self._table[-2] + len(segment_lengths))

  def __enter__(self) -> TokenStoreWriter:
    return self

  def __exit__(self, error_type, error, traceback) -> None:
    self._files.close()
    if error_type is None:
      table = np.array(self._table, np.int64).reshape(-1, 2)
      np.save(os.path.join(self._directory, _TABLE), table)


class TokenStore(Sequence[sentence_pairs.Document]):
  """A sequence of documents, read from mapped files when asked for.

  Attributes:
    token_counts: <int64>[documents].
    num_segments: of all documents.
  """

  def __init__(self, directory: str, vocab_size: int):
    """Maps the files that a `TokenStoreWriter` has closed."""
    self._ids = _map(os.path.join(directory, _IDS), id_dtype(vocab_size))
    self._lengths = _map(os.path.join(directory, _LENGTHS), np.int32)
    table = np.load(os.path.join(directory, _TABLE))
    self._tokens, self._segments = table[:, 0], table[:, 1]
    self.token_counts = np.diff(self._tokens)
    self.num_segments = len(self._lengths)

  def __len__(self) -> int:
    return len(self.token_counts)

  def __getitem__(self, index: int) -> sentence_pairs.Document:
    if not 0 <= index < len(self):
      raise IndexError(f"document {index} of {len(self)}")
    first, end = self._segments[index : index + 2]
    offsets = np.zeros(end - first + 1, np.int64)
    np.cumsum(self._lengths[first:end], out=offsets[1:])
    start, stop = self._tokens[index : index + 2]
    return sentence_pairs.Document(self._ids[start:stop], offsets)


class Split(Sequence[sentence_pairs.Document]):
  """Some documents of a store.

  Attributes:
    numbers: <int64>[documents], their indices in the store.
  """

  def __init__(self, store: TokenStore, numbers: np.ndarray):
    self._store = store
    self.numbers = numbers

  def __len__(self) -> int:
    return len(self.numbers)

  def __getitem__(self, index: int) -> sentence_pairs.Document:
    return self._store[self.numbers[index]]


def _map(path: str, dtype: np.dtype) -> np.ndarray:
  if not os.path.getsize(path):  # An empty file cannot be mapped.
    return np.zeros(0, dtype)
  # A plain array over the map: slicing np.memmap is ten times slower.
  return np.asarray(np.memmap(path, dtype, mode="r"))
