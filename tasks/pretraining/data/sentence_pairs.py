"""Documents to pairs of segments A and B with an order label.

Consecutive segments (sentences) of a document are gathered into chunks of
about the target length, and each chunk is cut between two segments into A and
B. With "sop" the two are swapped half of the time, with "nsp" B comes from
another document half of the time.

arXiv 1909.11942 section 3.1; reference: google-research/albert
create_pretraining_data.py (create_instances_from_document).
"""

from __future__ import annotations

from typing import Iterator, NamedTuple, Optional, Sequence

import numpy as np


class Document(NamedTuple):
  """Segments laid end to end.

  Attributes:
    ids: <integer>[T], all tokens.
    offsets: <int64>[segments + 1], where segments begin; the last is T. No
      segment is empty.
  """

  ids: np.ndarray
  offsets: np.ndarray

  @classmethod
  def from_segments(cls, segments: Sequence[Sequence[int]]) -> Document:
    """Joins segments; empty ones vanish."""
    lengths = [len(segment) for segment in segments if len(segment)]
    ids = [token for segment in segments for token in segment]
    return cls(np.array(ids, np.int32), np.cumsum([0, *lengths]))


class Pair(NamedTuple):
  """Two segments <integer>[La], <integer>[Lb] and their label, 0 or 1.

  `truncated_tokens` is the number of tokens that did not fit.
  """

  a: np.ndarray
  b: np.ndarray
  label: int
  truncated_tokens: int = 0


def create_pairs(
  documents: Sequence[Document],
  index: int,
  rng: np.random.Generator,
  *,
  max_tokens: int,
  short_seq_prob: float,
  kind: str,
  word_start_table: np.ndarray,
) -> Iterator[Optional[Pair]]:
  """Pairs from document `index`.

  Args:
    documents: only documents[index] is looked at, and with "nsp" others that
      `rng` draws.
    index: of the document.
    rng: all that is random.
    max_tokens: A and B together, at most.
    short_seq_prob: probability that the target length is not `max_tokens` but
      anything from 2 tokens up, drawn once for the document.
    kind: one of `example_settings.PAIR_KINDS`.
    word_start_table: <bool>[V], whether a piece starts a word.

  Yields:
    A pair, or None for a chunk that had to be dropped.

  Raises:
    ValueError: "nsp" with a single document.
  """
  ids, offsets = documents[index]
  target = draw_target(max_tokens, short_seq_prob, rng)
  first = 0
  while first < len(offsets) - 1:
    end, a_end = draw_chunk(offsets, first, target, rng)
    a = ids[offsets[first] : offsets[a_end]]
    b = ids[offsets[a_end] : offsets[end]]
    label = 0
    if kind == "nsp":
      if not len(b) or rng.random() < 0.5:
        label = 1
        other = _another_document(documents, index, rng)
        b = random_segments(other, target - len(a), rng)
        end = a_end  # The other segments are for the next chunk.
    else:
      if not len(b):
        # Deviation: the original pairs a single segment with a random one,
        # labelled 1, which gives away the order by the topic and puts label 1
        # above one half.
        cut = _middle_word_start(a, word_start_table)
        a, b = a[:cut], a[cut:]
      if kind == "sop" and rng.random() < 0.5:
        a, b, label = b, a, 1
    first = end
    if len(a) and len(b):
      yield fitted_pair(a, b, label, max_tokens, rng)
    else:
      yield None


def _middle_word_start(ids: np.ndarray, word_start_table: np.ndarray) -> int:
  """Where the word nearest to the middle starts; 0 for a single word."""
  starts = 1 + np.flatnonzero(word_start_table[ids[1:]])
  if not len(starts):
    return 0
  return int(starts[np.argmin(np.abs(starts - len(ids) / 2))])


def draw_target(
  max_tokens: int, short_seq_prob: float, rng: np.random.Generator
) -> int:
  """Tokens that the chunks of a document are to have."""
  if rng.random() < short_seq_prob:
    return int(rng.integers(2, max_tokens + 1))
  return max_tokens


def draw_chunk(
  offsets: np.ndarray, first: int, target: int, rng: np.random.Generator
) -> tuple[int, int]:
  """Where the chunk that begins with segment `first` ends, and A in it.

  Args:
    offsets: the document's.
    first: a segment.
    target: tokens that the chunk is to have, at least.
    rng: draws the end of A.

  Returns:
    The segments that the chunk ends before and that A ends before; they are
    the same for a chunk of one segment.
  """
  # The fewest segments that reach the target, or all that are left.
  end = int(np.searchsorted(offsets, offsets[first] + target))
  end = min(end, len(offsets) - 1)
  if end - first < 2:
    return end, end
  return end, first + int(rng.integers(1, end - first))


def _another_document(
  documents: Sequence[Document], index: int, rng: np.random.Generator
) -> Document:
  """A random document other than `index`, for "nsp".

  Deviation: never the document itself, which the original resorts to after
  ten vain draws.

  Raises:
    ValueError: there is no other document.
  """
  if len(documents) < 2:
    raise ValueError(
      "sentence_pair nsp takes its random segments from another document, "
      "but there is only one: separate documents by blank lines, or use sop."
    )
  other = int(rng.integers(len(documents) - 1))
  return documents[other + (other >= index)]


def random_segments(
  document: Document, target: int, rng: np.random.Generator
) -> np.ndarray:
  """<integer>[Lb]: segments from a random one on, to `target` tokens or more.

  At least one segment; fewer tokens where the document ends.
  """
  ids, offsets = document
  first = int(rng.integers(len(offsets) - 1))
  end = int(np.searchsorted(offsets, offsets[first] + target))
  end = min(max(end, first + 1), len(offsets) - 1)
  return ids[offsets[first] : offsets[end]]


def fitted_pair(
  a: np.ndarray,
  b: np.ndarray,
  label: int,
  max_tokens: int,
  rng: np.random.Generator,
) -> Pair:
  """The pair after `truncate_pair`, which counts the tokens removed."""
  excess = max(0, len(a) + len(b) - max_tokens)
  return Pair(*truncate_pair(a, b, max_tokens, rng), label, excess)


def truncate_pair(
  a: np.ndarray, b: np.ndarray, max_tokens: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
  """Shortens the longer of two segments until both fit, B if they are equal.

  Each removed token is the segment's first or last with equal probability, so
  that the number taken from the front is binomial.
  """
  excess = len(a) + len(b) - max_tokens
  if excess <= 0:
    return a, b
  # First the longer one down to the other's length, then in turns.
  from_longer = min(excess, abs(len(a) - len(b)))
  in_turns = excess - from_longer
  from_a, from_b = in_turns // 2, in_turns - in_turns // 2
  if len(a) > len(b):
    from_a += from_longer
  else:
    from_b += from_longer
  front_a, front_b = rng.binomial([from_a, from_b], 0.5).tolist()
  return (
    a[front_a : len(a) - from_a + front_a],
    b[front_b : len(b) - from_b + front_b],
  )
