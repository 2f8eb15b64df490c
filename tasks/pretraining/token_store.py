"""The tokenized corpus on disk, so that its size is not bound by memory.

Text is read and tokenized once, whatever `dupe_factor` is; every process maps
the same files, so that any of them can make the examples of any document, and
"nsp" can reach into another one.
"""

from __future__ import annotations

import contextlib
import os
from typing import BinaryIO, NamedTuple, Sequence

import numpy as np

from tasks.pretraining import sentence_pairs

_IDS = "ids.bin"
_LENGTHS = "segment_lengths.bin"
_TABLE = "documents.bin"
# Of a document in the table: where its tokens end, where its segments end.
_ROW_BYTES = 2 * 8
_COUNT_AT_ONCE = 1 << 24  # Ids.


def id_dtype(vocab_size: int) -> np.dtype:
  """The smallest type for ids: half the disk for all released vocabularies."""
  return np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.int32)


def holds(directory: str, vocab_size: int, num_documents: int) -> bool:
  """Whether the files of a store have at least so many documents."""
  if not num_documents:
    return True
  try:
    row = _row(directory, num_documents)
    sizes = [
      os.path.getsize(os.path.join(directory, f)) for f in (_IDS, _LENGTHS)
    ]
  except OSError:
    return False
  if len(row) < 2:
    return False
  tokens, segments = row
  return sizes[0] >= tokens * id_dtype(vocab_size).itemsize and (
    sizes[1] >= segments * 4
  )


def _row(directory: str, index: int) -> list[int]:
  """Of the table: where the tokens and segments before `index` end."""
  path = os.path.join(directory, _TABLE)
  return np.fromfile(path, np.int64, 2, offset=index * _ROW_BYTES).tolist()


class Documents(NamedTuple):
  """Some tokenized documents, each with at least one token.

  Attributes:
    ids: <integer>[T], of all of them.
    lengths: <int32>[segments], the tokens of each segment, above 0.
    segments: <int32>[documents], the segments of each document.
  """

  ids: np.ndarray
  lengths: np.ndarray
  segments: np.ndarray

  def ends(self) -> np.ndarray:
    """Where the tokens and the segments of each end, <int64>[documents, 2]."""
    segments = np.cumsum(self.segments, dtype=np.int64)
    tokens = np.cumsum(self.lengths, dtype=np.int64)[segments - 1]
    return np.stack([tokens, segments], axis=1)


class TokenStoreWriter:
  """Appends documents; leaving its context makes the folder a `TokenStore`."""

  def __init__(self, directory: str, vocab_size: int, num_documents: int = 0):
    """Creates the folder, or goes on with one.

    Args:
      directory: of the files.
      vocab_size: V of the tokenizer.
      num_documents: how many to keep of those that it `holds`.
    """
    os.makedirs(directory, exist_ok=True)
    self._directory = directory
    self._dtype = id_dtype(vocab_size)
    self._tokens = self._segments = 0
    if num_documents:
      self._tokens, self._segments = _row(directory, num_documents)
    self._files = contextlib.ExitStack()
    self._ids = self._open(_IDS, self._tokens * self._dtype.itemsize)
    self._lengths = self._open(_LENGTHS, self._segments * 4)
    # Its first row is (0, 0).
    rows = num_documents + 1 if num_documents else 0
    self._table = self._open(_TABLE, rows * _ROW_BYTES)
    if not num_documents:
      self._table.write(np.zeros(2, np.int64))

  def _open(self, name: str, size: int) -> BinaryIO:
    """Opens a file to append to its first `size` bytes."""
    path = os.path.join(self._directory, name)
    file = self._files.enter_context(open(path, "ab"))
    file.truncate(size)
    return file

  def append(self, documents: Documents) -> None:
    """Adds them after those that are there."""
    self._ids.write(np.ascontiguousarray(documents.ids, self._dtype))
    self._lengths.write(np.ascontiguousarray(documents.lengths, np.int32))
    table = documents.ends() + (self._tokens, self._segments)
    self._table.write(table.astype(np.int64))
    self._tokens += len(documents.ids)
    self._segments += len(documents.lengths)

  def flush(self) -> None:
    """Gives all that was appended to the system, so that no kill loses it."""
    for file in (self._ids, self._lengths, self._table):
      file.flush()

  def __enter__(self) -> TokenStoreWriter:
    return self

  def __exit__(self, *unused_error) -> None:
    self._files.close()


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
    table = _map(os.path.join(directory, _TABLE), np.int64).reshape(-1, 2)
    self._tokens, self._segments = table[:, 0], table[:, 1]
    self.token_counts = np.diff(self._tokens)
    self.num_segments = len(self._lengths)

  def count_pieces(self, vocab_size: int) -> np.ndarray:
    """How often each piece occurs, <int64>[V]."""
    counts = np.zeros(vocab_size, np.int64)
    for start in range(0, len(self._ids), _COUNT_AT_ONCE):
      part = self._ids[start : start + _COUNT_AT_ONCE]
      counts += np.bincount(part, minlength=vocab_size)
    return counts

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
