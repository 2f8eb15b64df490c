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


def letters(
  text: str, normal: normalization.Normalization
) -> tuple[np.ndarray, np.ndarray]:
  """Returns where the letter of each character of the changed text is.

  These are starts and exclusive ends in the original text, <int64>[M] each.
  The changed text has no deleted characters, and one space for a run of them
  between letters; for WordPiece, none.
  """
  traits = normal.traits(text)
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
  return np.repeat(starts, lengths), np.repeat(ends, lengths)
