"""Cuts documents into pairs of segments A and B with a label.

Consecutive segments (sentences) of a document are joined to chunks of about the
target length, and each chunk is cut between two segments into A and B. With
"sop", A and B are swapped half of the time. With "nsp", B comes from another
document half of the time.

arXiv 1909.11942 section 3.1; reference: google-research/albert
create_pretraining_data.py (create_instances_from_document).
"""

from __future__ import annotations

from typing import Iterator, NamedTuple, Sequence

import numpy as np

from official_albert.tasks.pretraining.data.settings import ExampleSettings


class Document(NamedTuple):
  """The tokens of a document.

  Attributes:
    ids: <integer>[T], all tokens.
    offsets: <int64>[segments + 1], the start of each segment, followed by T.
      No segment is empty.
  """

  ids: np.ndarray
  offsets: np.ndarray


class Pair(NamedTuple):
  """Two segments <integer>[La] and <integer>[Lb], and their label, 0 or 1."""

  a: np.ndarray
  b: np.ndarray
  label: int


def create_pairs(
  documents: Sequence[Document],
  index: int,
  word_start_table: np.ndarray,
  settings: ExampleSettings,
  rng: np.random.Generator,
) -> Iterator[Pair]:
  """Cuts document `index` into pairs, without chunks of a single word.

  `word_start_table` is <bool>[V], whether a piece starts a word.

  As in the original, --masking=compat pairs a chunk of a single segment with a
  random one and labels it 1, even with "sop".

  Deviation: with "sop", a coin decides for each chunk whether it is taken from
  the start (as in the original) or from the end of what remains. The segment
  that crosses the target is longer than the average and would always be in B,
  so the lengths alone would tell the order of up to 59% of the pairs. For the
  same reason, `_draw_cut` balances the cuts.
  """
  kind, compat = settings.sentence_pair, settings.masking == "compat"
  is_balanced = kind == "sop" and not compat
  swaps_later = (settings.masking, kind) == ("dynamic", "sop")
  if swaps_later:
    kind = "none"  # Training swaps A and B.
  ids, offsets = documents[index]
  max_tokens = target = settings.max_seq_length - 3  # [CLS], [SEP], [SEP].
  if rng.random() < settings.short_seq_prob:
    target = int(rng.integers(2, max_tokens + 1))
  first, last = 0, len(offsets) - 1  # The segments that remain.
  while first < last:
    # The fewest segments that reach the target, or all that remain.
    start, end = first, last
    if is_balanced and rng.random() < 0.5:
      reached = np.searchsorted(offsets, offsets[last] - target, "right") - 1
      start = last = max(int(reached), first)
    else:
      reached = np.searchsorted(offsets, offsets[first] + target)
      end = first = min(int(reached), last)
    is_single = end - start == 1
    cut = end if is_single else _draw_cut(offsets, start, end, is_balanced, rng)
    a = ids[offsets[start] : offsets[cut]]
    b = ids[offsets[cut] : offsets[end]]
    label = 0
    if kind == "nsp" or (compat and is_single):
      if is_single or rng.random() < 0.5:
        label = 1
        b = _segments_of_another(documents, index, target - len(a), rng)
        first = cut  # The other segments are for the next chunk.
    else:
      if is_single:
        # Deviation: the original pairs a single segment with a random one and
        # labels the pair 1. The topic would reveal that label, and more than
        # half of the labels would be 1.
        middle = _middle_word_start(a, word_start_table, rng)
        a, b = a[:middle], a[middle:]
      if kind == "sop" and rng.random() < 0.5:
        a, b, label = b, a, 1
    if not len(a) or not len(b):
      continue
    if swaps_later and len(a) + len(b) > max_tokens and rng.random() < 0.5:
      # `truncate_pair` leaves the first segment one token longer if the limit
      # is odd. If that were always A, its length would reveal the swap.
      b, a = truncate_pair(b, a, max_tokens, rng)
    else:
      a, b = truncate_pair(a, b, max_tokens, rng)
    yield Pair(a, b, label)


def _draw_cut(
  offsets: np.ndarray,
  start: int,
  end: int,
  is_balanced: bool,
  rng: np.random.Generator,
) -> int:
  """Draws the segment that begins B, after `start` and before `end`.

  With `is_balanced`, A is as often longer than B as shorter, where the segments
  leave the choice.
  """
  cut = int(rng.integers(start + 1, end))
  if is_balanced:
    # A is shorter than B before the first of these, longer from the second.
    middle = (offsets[start] + offsets[end]) / 2
    equal = int(offsets.searchsorted(middle))
    longer = int(offsets.searchsorted(middle, "right"))
    first, last = (longer, end) if cut < equal else (start + 1, equal)
    is_equal = equal <= cut < longer
    if not is_equal and first < last and rng.random() < 0.5:
      cut = first + int(rng.integers(last - first))
  return cut


def _middle_word_start(
  ids: np.ndarray, word_start_table: np.ndarray, rng: np.random.Generator
) -> int:
  """Returns the word start nearest to the middle, or 0 for a single word.

  Of two, either is drawn: always the first one would tell the order.
  """
  starts = 1 + np.flatnonzero(word_start_table[ids[1:]])
  if not len(starts):
    return 0
  distances = np.abs(starts - len(ids) / 2)
  nearest = starts[distances == distances.min()]
  return int(nearest[rng.integers(len(nearest))])


def _segments_of_another(
  documents: Sequence[Document],
  index: int,
  target: int,
  rng: np.random.Generator,
) -> np.ndarray:
  """Returns the fewest consecutive segments that reach `target` tokens.

  They start at a random segment of a random document other than `index`.

  Deviation: the original uses the document itself after drawing it ten times.
  """
  if len(documents) == 1:
    raise ValueError(
      "nsp and compat take segments from another document, and a shard has "
      "only one: use more text, fewer shards or another --heldout_share, and "
      "separate documents by blank lines."
    )
  other = int(rng.integers(len(documents) - 1))
  ids, offsets = documents[other + (other >= index)]
  first = int(rng.integers(len(offsets) - 1))
  end = int(np.searchsorted(offsets, offsets[first] + target))
  end = min(max(end, first + 1), len(offsets) - 1)
  return ids[offsets[first] : offsets[end]]


def truncate_pair(
  a: np.ndarray, b: np.ndarray, max_tokens: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
  """Shortens the longer segment, or B if they are equal, until both fit.

  Each removed token is the first or the last of its segment with equal
  probability, so the number of tokens removed from the front is binomial.
  """
  excess = len(a) + len(b) - max_tokens
  if excess <= 0:
    return a, b
  # First shorten the longer one to the other's length, then alternate.
  from_longer = min(excess, abs(len(a) - len(b)))
  in_turns = excess - from_longer
  from_a, from_b = in_turns // 2, in_turns - in_turns // 2
  if len(a) > len(b):
    from_a += from_longer
  else:
    from_b += from_longer
  # One call for both would take longer.
  front_a, front_b = rng.binomial(from_a, 0.5), rng.binomial(from_b, 0.5)
  return (
    a[front_a : len(a) - from_a + front_a],
    b[front_b : len(b) - from_b + front_b],
  )
