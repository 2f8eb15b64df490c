"""The tokenized corpus on disk, so that its size is not bound by memory.

Text is read and tokenized once, whatever `dupe_factor` is; every process maps
the same files, so that any of them can make the examples of any document, and
"nsp" can reach into another one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import zlib
from typing import Any, Mapping, NamedTuple, Optional, Sequence

import numpy as np

import tfrecords
from tasks.pretraining.data import sentence_pairs

TRAIN, HELDOUT = "train", "heldout"
_IDS = "ids.bin"
_LENGTHS = "segment_lengths.bin"
_TABLE = "documents.bin"
# A row of the table: where a document's tokens end, where its segments end.
_FIRST_ROW = np.zeros(2, np.int64)
_COUNT_AT_ONCE = 1 << 24  # Ids.


def id_dtype(vocab_size: int) -> np.dtype:
  """The smallest type for ids: half the disk for all released vocabularies."""
  return np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.int32)


def is_intact(directory: str, state: Mapping[str, Any]) -> bool:
  """Whether the files hold what `TokenStoreWriter.state` says."""
  return all(
    tfrecords.is_intact(os.path.join(directory, name), *state[name])
    for name in (_IDS, _LENGTHS, _TABLE)
  )


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

  def __init__(
    self,
    directory: str,
    vocab_size: int,
    state: Optional[Mapping[str, Any]] = None,
  ):
    """Creates the folder, or goes on with one.

    Args:
      directory: of the files.
      vocab_size: V of the tokenizer.
      state: of the writer to go on after; the files are cut to it. See
        `is_intact`.
    """
    os.makedirs(directory, exist_ok=True)
    self._dtype = id_dtype(vocab_size)
    names = (_IDS, _LENGTHS, _TABLE)
    # Of each file: bytes and checksum.
    self._state = {name: (state[name] if state else (0, 0)) for name in names}
    self._closing = contextlib.ExitStack()
    self._files = {}
    for name, (size, _) in self._state.items():
      path = os.path.join(directory, name)
      self._files[name] = self._closing.enter_context(open(path, "ab"))
      self._files[name].truncate(size)
    if not state:
      self._write(_TABLE, _FIRST_ROW)

  def _write(self, name: str, values: np.ndarray) -> None:
    size, checksum = self._state[name]
    self._files[name].write(values)
    self._state[name] = size + values.nbytes, zlib.crc32(values, checksum)

  def append(self, documents: Documents) -> None:
    """Adds them after those that are there."""
    tokens = self._state[_IDS][0] // self._dtype.itemsize
    segments = self._state[_LENGTHS][0] // 4
    table = documents.ends() + (tokens, segments)
    self._write(_IDS, np.ascontiguousarray(documents.ids, self._dtype))
    self._write(_LENGTHS, np.ascontiguousarray(documents.lengths, np.int32))
    self._write(_TABLE, table.astype(np.int64))

  def state(self) -> dict[str, Any]:
    """What the files hold, for another writer to go on; a JSON value.

    The system has the bytes then, so that no kill of the process loses them.
    """
    for file in self._files.values():
      file.flush()
    return dict(self._state)

  def __enter__(self) -> TokenStoreWriter:
    return self

  def __exit__(self, *unused_error) -> None:
    self._closing.close()


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


def split_documents(
  num_documents: int, share: float, seed: int, kind: str
) -> dict[str, np.ndarray]:
  """Splits documents 0..num_documents - 1 at random.

  A document is held out if its hash is in the lowest `share` of all hashes, so
  that its side does not depend on the other documents; but each side gets at
  least the documents it needs, one, or two for the random pairs of "nsp".

  Args:
    num_documents: at least 1.
    share: of the documents to hold out, from 0 to below 1.
    seed: of the choice.
    kind: of the pairs, one of `example_settings.PAIR_KINDS`.

  Returns:
    "train" and, with a share above 0, "heldout": numbers <int64>, ascending.

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
  """64 bits; not Python's `hash`, which may differ between versions."""
  text = f"{seed}:{number}".encode()
  return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def _map(path: str, dtype: np.dtype) -> np.ndarray:
  if not os.path.getsize(path):  # An empty file cannot be mapped.
    return np.zeros(0, dtype)
  # A plain array over the map: slicing np.memmap is ten times slower.
  return np.asarray(np.memmap(path, dtype, mode="r"))
