"""What travels between the steps of a Beam pipeline.

Few and large: some hundred documents, or all records of theirs that go to one
place. Arrays are bytes, which every runner hands on as they are.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Iterable, NamedTuple, Sequence

import numpy as np

from tasks.pretraining.data import sentence_pairs, token_store


class Chunk(NamedTuple):
  """Some tokenized documents of a file, those without tokens left out.

  Attributes:
    file, index: the chunk's place in the input.
    ids: bytes of <integer>[tokens], `token_store.id_dtype`.
    lengths: bytes of <int32>[segments].
    segments: bytes of <int32>[documents], the segments of each.
  """

  file: int
  index: int
  ids: bytes
  lengths: bytes
  segments: bytes

  @property
  def num_documents(self) -> int:
    return len(self.segments) // 4

  def documents(self, vocab_size: int) -> list[sentence_pairs.Document]:
    ids = np.frombuffer(self.ids, token_store.id_dtype(vocab_size))
    lengths = np.frombuffer(self.lengths, np.int32)
    ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    made, first = [], 0
    for count in np.frombuffer(self.segments, np.int32).tolist():
      offsets = ends[first : first + count + 1]
      made.append(
        sentence_pairs.Document(
          ids[offsets[0] : offsets[-1]], offsets - offsets[0]
        )
      )
      first += count
    return made


class Order(NamedTuple):
  """What is known when all text is tokenized.

  Attributes:
    first_numbers: for each file <int64>[chunks], the number of a chunk's first
      document among all.
    heldout_numbers: <int64>, ascending.
    num_buckets: of each split; a power of two.
  """

  first_numbers: list[np.ndarray]
  heldout_numbers: np.ndarray
  num_buckets: dict[str, int]


class Records(NamedTuple):
  """Encoded examples on their way, with what puts them in order.

  Attributes:
    first: where they stand before all others with the same keys.
    keys: bytes of <int64>[N].
    sizes: bytes of <int64>[N], of each record.
    data: the records, one after the other.
  """

  first: tuple[int, ...]
  keys: bytes
  sizes: bytes
  data: bytes

  @classmethod
  def pack(
    cls, first: tuple[int, ...], keys: np.ndarray, records: Sequence[bytes]
  ) -> Records:
    sizes = np.fromiter(map(len, records), np.int64, len(records))
    return cls(first, keys.tobytes(), sizes.tobytes(), b"".join(records))

  def unpack(self) -> list[bytes]:
    ends = np.cumsum(np.frombuffer(self.sizes, np.int64)).tolist()
    return [self.data[a:b] for a, b in zip([0, *ends], ends)]


class ChunkSplit(Sequence[sentence_pairs.Document]):
  """The documents of a chunk that belong to a split; see token_store.Split."""

  def __init__(
    self, texts: Sequence[sentence_pairs.Document], numbers: np.ndarray
  ):
    self._texts = texts
    self.numbers = numbers

  def __len__(self) -> int:
    return len(self.numbers)

  def __getitem__(self, index: int) -> sentence_pairs.Document:
    return self._texts[index]


def add_up(values: Iterable[Any]) -> Any:
  """The sum of ExampleCounts or TextCounts, of which there is at least one."""
  values = iter(values)
  total = dataclasses.replace(next(values))
  for value in values:
    for field in dataclasses.fields(total):
      part = getattr(total, field.name) + getattr(value, field.name)
      setattr(total, field.name, part)
  return total
