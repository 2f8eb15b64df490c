"""Which characters of the text that a user gave each piece comes from.

Tokenizers change text before they cut it: runs of white space become one
space, "½" becomes three characters, accents go. What they do to one character
depends on that character alone, so that the way back needs no search: the
lengths of what the characters become, added up, say which character each part
of the result is from.

The smallest stretch that is told apart is a character with the combining marks
that follow it: "e" and its accent are one letter, whether the text writes them
as one character or as two. Offsets count Python's characters (code points).

Letters: N characters of the text before, M after the change.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Callable, NamedTuple

import numpy as np

# What `form` says of a character that leaves nothing and separates nothing.
GONE = -1
# White space: a run of it becomes one space, none at the ends.
SPACE = -2
_SPACE_MARK = "\u2581"


class EncodedText(NamedTuple):
  """Ids, and for each one the half-open range of characters it comes from.

  `starts` and `ends` never fall. Two ids share characters where one letter
  became several ("½"); a range is empty where an id stands for a space alone.
  """

  ids: list[int]
  starts: list[int]
  ends: list[int]


class Spans(NamedTuple):
  """<int64>[M] each: characters [start, end) of the text before."""

  starts: np.ndarray
  ends: np.ndarray


class FormTable(dict):
  """What each character becomes; looked up once for each different one.

  A value is `GONE`, `SPACE`, or twice the length of what the character
  becomes, plus 1 if it is a mark that belongs to the character before.
  """

  def __init__(self, form: Callable[[str], int]):
    super().__init__()
    self._form = form

  def __missing__(self, code: int) -> int:
    value = self[code] = self._form(chr(code))
    return value


def visible_form(length: int, is_mark: bool) -> int:
  """The value for a character that becomes `length` characters."""
  return 2 * length + is_mark


def code_points(text: str) -> np.ndarray:
  """<uint32>[N]; halves of surrogate pairs are code points too."""
  return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def character_spans(text: str, forms: Mapping[int, int]) -> Spans:
  """Where each character of the changed text comes from.

  Args:
    text: N characters, as the user gave them.
    forms: see `FormTable`.

  Returns:
    A span for each of the M characters that `text` becomes when what is
    `GONE` is taken out, then runs of `SPACE` become one space, then each
    character becomes what it becomes.
  """
  codes, inverse = np.unique(code_points(text), return_inverse=True)
  kinds = np.array([forms[code] for code in codes.tolist()], np.int64)[inverse]
  kept = np.flatnonzero(kinds != GONE)
  kinds = kinds[kept]
  is_space = kinds == SPACE
  after_space = np.concatenate([[True], is_space[:-1]])[: len(kinds)]
  lengths = np.where(is_space, ~after_space, kinds >> 1)
  others = np.flatnonzero(~is_space)
  lengths[others[-1] + 1 if len(others) else 0 :] = 0  # No space at the end.
  # A mark after a space has no letter to belong to.
  begins = is_space | after_space | (kinds & 1 == 0)
  heads = np.flatnonzero(begins)
  cluster = np.cumsum(begins) - 1
  tails = np.concatenate([heads[1:], [len(kinds)]])[: len(heads)] - 1
  starts, ends = kept[heads][cluster], kept[tails][cluster] + 1
  return Spans(np.repeat(starts, lengths), np.repeat(ends, lengths))


def piece_spans(
  ids: Sequence[int],
  pieces: Sequence[str],
  cuts: Mapping[int, Sequence[tuple[int, int, int]]],
) -> tuple[list[int], Spans]:
  """Where each piece stands in the text that all of them make.

  Args:
    ids: of the pieces.
    pieces: as SentencePiece writes them, spaces as "\u2581".
    cuts: for the ids that are cut once more: the id of each part, and from
      where to where in the piece it goes.

  Returns:
    [K] ids after that, and K spans that leave out the spaces before a piece.
  """
  count = len(pieces)
  ends = np.cumsum(np.fromiter(map(len, pieces), np.int64, count))
  starts = ends - np.fromiter(map(_visible_length, pieces), np.int64, count)
  spans = Spans(starts, ends)
  if cuts.keys().isdisjoint(ids):
    return list(ids), spans
  parts = []
  for id, piece, start, end in zip(ids, pieces, *map(np.ndarray.tolist, spans)):
    if id in cuts:
      begin = end - len(piece)
      parts += [(new, begin + i, begin + j) for new, i, j in cuts[id]]
    else:
      parts.append((id, start, end))
  new_ids, *bounds = zip(*parts)
  return list(new_ids), Spans(*(np.array(x, np.int64) for x in bounds))


@functools.lru_cache(maxsize=1 << 16)
def _visible_length(piece: str) -> int:
  return len(piece.lstrip(_SPACE_MARK))


def compose(inner: Spans, outer: Spans) -> Spans:
  """Spans of a changed text as spans of the text before.

  Args:
    inner: [K] spans of the changed text, starts and ends never falling.
    outer: [M], where its characters come from.

  Returns:
    [K] spans, starts and ends never falling. An empty one stays empty, unless
    it stood inside of what one letter became.
  """
  bounds = np.append(outer.starts, outer.ends[-1:])
  starts = bounds[inner.starts]
  lasts = outer.ends[np.maximum(inner.ends, 1) - 1]
  ends = np.where(inner.starts == inner.ends, starts, lasts)
  return Spans(starts, np.maximum.accumulate(ends))


def normalizer_spans(
  offsets: Sequence[int], is_visible: Sequence[bool]
) -> Spans:
  """Spans from the offsets that SentencePiece's own normaliser gives.

  It changes up to several characters at once, and says for each character of
  the result where the stretch begins that it comes from.

  Args:
    offsets: M + 1; the last is where the text ends.
    is_visible: N; of characters that the normaliser neither drops nor takes
      for white space.

  Returns:
    [M] spans, without what is not visible at their ends.
  """
  bounds = np.asarray(offsets, np.int64)
  starts = bounds[:-1]
  following = np.searchsorted(bounds, starts, side="right")
  ends = bounds[np.minimum(following, len(bounds) - 1)]
  counts = np.arange(1, len(is_visible) + 1) * np.asarray(is_visible, np.int64)
  visible_ends = np.concatenate([[0], np.maximum.accumulate(counts)])
  return Spans(starts, np.maximum(starts, visible_ends[ends]))
