"""Maps pieces to the characters of the original text that they come from.

Tokenizers change a text before they split it: runs of whitespace become one
space, "½" becomes three characters, accents are removed. Each character is
changed independently of its neighbors, so no search is needed: the position of
a character is repeated for each character that it becomes.

A character and the combining marks that follow it count as one letter. So "e"
with an accent gets the same offsets whether it is one character or two.
Offsets count Python characters (code points).

Letters: N characters of the original text, M characters of the changed text,
K pieces.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from official_albert.tokenization import normalization

WORD_START = "\u2581"  # SentencePiece's symbol for a space.


class EncodedText(NamedTuple):
  """Ids with the half-open range of characters that each one comes from.

  `starts` and `ends` never decrease. Several ids can share a character, such as
  "½". The range of an id that is only a space is empty.
  """

  ids: list[int]
  starts: list[int]
  ends: list[int]


class Spans(NamedTuple):
  """Character ranges [start, end), <int64>[M] each."""

  starts: np.ndarray
  ends: np.ndarray


def character_spans(text: str, normal: normalization.Normalization) -> Spans:
  """Returns the original characters of each character of the changed text.

  The changed text has no deleted characters, and one space for a run of them
  between letters; for WordPiece, none.
  """
  code_points = np.frombuffer(
    text.encode("utf-32-le", "surrogatepass"), np.uint32
  )
  codes, inverse = np.unique(code_points, return_inverse=True)
  traits = np.array([normal.traits[code] for code in codes.tolist()], np.int64)
  traits = traits[inverse]
  kept = np.flatnonzero(traits & normalization.DELETED == 0)
  traits = traits[kept]
  is_space = traits & normalization.SPACE > 0
  after_space = np.concatenate([[True], is_space[:-1]])[: len(kept)]
  lengths = traits >> normalization.LENGTH_BIT
  # The last space of a run stays, except before and after all letters.
  before_space = np.concatenate([is_space[1:], [True]])[: len(kept)]
  lengths[is_space & (before_space | normal.words)] = 0
  lengths[: np.argmin(is_space) if len(kept) else 0] = 0
  # A mark after a space belongs to no letter.
  begins = after_space | (traits & normalization.MARK == 0)
  heads = np.flatnonzero(begins)
  letter = np.cumsum(begins) - 1
  tails = np.concatenate([heads[1:], [len(kept)]])[: len(heads)] - 1
  starts, ends = kept[heads][letter], kept[tails][letter] + 1
  return Spans(np.repeat(starts, lengths), np.repeat(ends, lengths))


def piece_spans(
  ids: Sequence[int],
  pieces: Sequence[str],
  parts_of: Mapping[int, Sequence[tuple[int, int, int]]],
) -> tuple[list[int], Spans]:
  """Returns the range of each piece in the concatenation of all pieces.

  `parts_of` is `SentencePieceTokenizer.digit_comma_parts`.

  Returns:
    [K] ids after the second split, and [K] spans without leading spaces.
  """
  count = len(pieces)
  ends = np.cumsum(np.fromiter(map(len, pieces), np.int64, count))
  starts = ends - np.fromiter(map(_visible_length, pieces), np.int64, count)
  spans = Spans(starts, ends)
  if parts_of.keys().isdisjoint(ids):
    return list(ids), spans
  rows = []
  for id, piece, start, end in zip(ids, pieces, *map(np.ndarray.tolist, spans)):
    if id in parts_of:
      begin = end - len(piece)
      places = [i for i, c in enumerate(piece, begin) if c != WORD_START]
      for part, i, j in parts_of[id]:
        first = places[i]
        rows.append((part, first, places[j - 1] + 1 if j > i else first))
    else:
      rows.append((id, start, end))
  new_ids, *bounds = zip(*rows)
  return list(new_ids), Spans(*(np.array(x, np.int64) for x in bounds))


@functools.lru_cache(maxsize=1 << 16)
def _visible_length(piece: str) -> int:
  return len(piece.lstrip(WORD_START))


def compose(inner: Spans, outer: Spans) -> Spans:
  """Maps K spans of a changed text to spans of the text before the change.

  `outer` has the spans of the M characters of the changed text. An empty span
  stays empty unless it is inside the characters that one letter became.
  """
  bounds = np.append(outer.starts, outer.ends[-1:])
  starts = bounds[inner.starts]
  lasts = outer.ends[np.maximum(inner.ends, 1) - 1]
  ends = np.where(inner.starts == inner.ends, starts, lasts)
  return Spans(starts, np.maximum.accumulate(ends))


def normalizer_spans(
  offsets: Sequence[int], is_visible: Sequence[bool]
) -> Spans:
  """Returns spans from the offsets of SentencePiece's own normalizer.

  This normalizer may change several characters at once. For each character of
  its result, it returns the start of the original characters.

  Args:
    offsets: M + 1 numbers; the last one is the length of the text.
    is_visible: [N], False for characters that the normalizer drops or treats
      as whitespace. Spans do not end with these.
  """
  bounds = np.asarray(offsets, np.int64)
  starts = bounds[:-1]
  following = np.searchsorted(bounds, starts, side="right")
  ends = bounds[np.minimum(following, len(bounds) - 1)]
  counts = np.arange(1, len(is_visible) + 1) * np.asarray(is_visible, np.int64)
  visible_ends = np.concatenate([[0], np.maximum.accumulate(counts)])
  return Spans(starts, np.maximum(starts, visible_ends[ends]))
