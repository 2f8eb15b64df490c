"""What a tokenizer makes of each character, before it looks for pieces.

There is one table for Python, for the graph (`in_graph/normalization_layer.py`)
and for offsets, which need no search, as each character is changed on its own.
It maps each character to a text:

- SentencePiece's characters are decomposed by NFKD, and combining characters
  are removed.
- WordPiece's characters are decomposed by NFD, and marks are removed. Control
  characters are removed, too, and each Chinese character and punctuation mark
  becomes a word.

Lower case comes last. Only a capital sigma depends on its neighbors: it has
another form at the end of a word.

Deviation: WordPiece keeps 25 marks that are not of Unicode's category Mn, such
as Hangul's tones. The original's NFD also puts several of them in order.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
import unicodedata
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

# Traits of a character. `DELETED` characters are ignored in each way. A run of
# `SPACE` is one space, or none at the ends of a text. An `ALONE` character is a
# word. The others are for the lower-case form of a capital sigma: a `CASED_END`
# before it and no `CASED_START` after it make it final; `CASELESS` characters
# are ignored.
DELETED, SPACE, ALONE, SIGMA, CASED_END, CASED_START, CASELESS = (
  1 << i for i in range(7)
)
LENGTH_BIT = 7  # The length of the text is stored above all traits.
# Beside words of one character. It is deleted from texts, and ignored between a
# sigma and its neighbors.
_SEPARATOR = "\u00ad"
WORD_START = "\u2581"  # SentencePiece's symbol for a space.
# The Chinese characters of the original. They include Hanja and Kanji in
# Korean and Japanese text, but not Hangul, Hiragana and Katakana.
CHINESE = (
  (0x4E00, 0x9FFF),
  (0x3400, 0x4DBF),
  (0x20000, 0x2A6DF),
  (0x2A700, 0x2B73F),
  (0x2B740, 0x2B81F),
  (0x2B820, 0x2CEAF),
  (0xF900, 0xFAFF),
  (0x2F800, 0x2FA1F),
)


def is_control(char: str) -> bool:
  """Returns whether WordPiece removes the character."""
  if char in "\t\n\r":
    return False
  return char in "\0\ufffd" or unicodedata.category(char) in ("Cc", "Cf")


def is_space(char: str) -> bool:
  """Returns whether the character separates WordPiece's words."""
  # The original has no Zl and Zp here, but str.split later splits at them.
  return char in " \t\n\r" or unicodedata.category(char)[0] == "Z"


def is_chinese(char: str) -> bool:
  """Returns whether the character is Chinese, and thus a word of its own."""
  return any(first <= ord(char) <= last for first, last in CHINESE)


def is_punctuation(char: str) -> bool:
  """Returns whether the character is punctuation, and thus a word of its own.

  Punctuation marks are those of Unicode and all printable ASCII characters
  except letters, digits and the space.
  """
  if char.isascii():
    return char.isprintable() and not char.isalnum() and char != " "
  return unicodedata.category(char).startswith("P")


class _Texts(dict[int, str]):
  """The texts of characters that have been looked up."""

  def __init__(self, text_of: Callable[[str], str]):
    self._text_of = text_of

  def __missing__(self, code: int) -> str:
    self[code] = text = self._text_of(chr(code))
    return text


@dataclasses.dataclass(frozen=True)
class Normalization:
  """The table, and the settings that it is made from.

  Attributes:
    lower_case: whether text is lower-cased.
    keep_accents: whether characters are not decomposed, and marks stay.
    words: whether the table is that of WordPiece.
    split_chinese: whether each Chinese character is a word; only WordPiece.
  """

  lower_case: bool
  keep_accents: bool = False
  words: bool = False
  split_chinese: bool = False

  def __reduce__(self) -> tuple[Any, ...]:
    return Normalization, dataclasses.astuple(self)  # Without what is cached.

  def __call__(self, text: str) -> str:
    """Returns the text with each of its characters changed.

    Without `words`, white space is merged first.
    """
    if not self.words:
      text = " ".join(text.encode("utf-8", "ignore").decode("utf-8").split())
    if self.words or not text.isascii():
      text = text.translate(self._texts)
    return text.lower() if self.lower_case else text

  def split(self, text: str) -> list[str]:
    """Returns the words that WordPiece splits further."""
    return self(text).replace(_SEPARATOR, " ").split()

  @functools.cached_property
  def _texts(self) -> dict[int, str]:
    return _Texts(self._text)

  @functools.cached_property
  def _traits(self) -> np.ndarray:
    return np.zeros(sys.maxunicode + 1, np.int32)  # 0 is not known yet.

  def traits(self, text: str) -> np.ndarray:
    """Returns traits and length of the text of each character, <int32>[N]."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    for code in {*codes[self._traits[codes] == 0].tolist()}:
      self._traits[code] = self.describe(chr(code))[1]
    return self._traits[codes]

  def describe(self, char: str) -> tuple[str, int]:
    """Returns what the table has for a character: its text and its traits."""
    text = self._text(char)
    traits = DELETED * self._is_deleted(char)
    if text == " ":
      traits = SPACE * self._is_space(char)
    elif self.words and text.startswith(_SEPARATOR):
      text, traits = text[1:-1], ALONE
    if self.lower_case:
      traits |= _sigma_traits(text)
      text = text.lower()
    return text, traits | len(text) << LENGTH_BIT

  def _text(self, char: str) -> str:
    """Returns the text of a character before it is lower-cased."""
    if self._is_deleted(char):
      return ""
    if self._is_space(char):
      return " "
    text = char
    if not self.keep_accents:
      parts = unicodedata.normalize("NFD" if self.words else "NFKD", char)
      text = "".join(part for part in parts if not self._is_lost(part))
    if self.words and any(
      is_punctuation(x) or self.split_chinese and is_chinese(x) for x in text
    ):
      return f"{_SEPARATOR}{text}{_SEPARATOR}"
    return text

  def _is_deleted(self, char: str) -> bool:
    # Unpaired surrogates are not characters.
    is_surrogate = unicodedata.category(char) == "Cs"
    return is_surrogate or self.words and is_control(char)

  def _is_space(self, char: str) -> bool:
    return is_space(char) if self.words else char.isspace()

  def _is_lost(self, char: str) -> bool:
    if self.words:
      return unicodedata.category(char) == "Mn"
    return unicodedata.combining(char) > 0


# Tokenizers share what has been looked up.
make = functools.cache(Normalization)


class EncodedText(NamedTuple):
  """Ids with the half-open range of characters that each one comes from.

  `starts` and `ends` never decrease. Several ids can share a character, such as
  "½". The range of an id that is only a space is empty.
  """

  ids: list[int]
  starts: list[int]
  ends: list[int]


def letters(text: str, normal: Normalization) -> tuple[np.ndarray, np.ndarray]:
  """Returns where each of M characters of the changed text comes from.

  These are starts and exclusive ends in the original text, <int64>[M] each.
  The changed text has no deleted characters, and one space for a run of them
  between words; for WordPiece, none.
  """
  traits = normal.traits(text)
  lengths = traits >> LENGTH_BIT
  begins = np.flatnonzero(lengths)
  kept = np.flatnonzero(traits & DELETED == 0)
  is_space = traits[kept] & SPACE > 0
  # The last space of a run stays, except before and after all words.
  before_space = np.append(is_space, True)[1:]
  lengths[kept[is_space & (before_space | normal.words)]] = 0
  lengths[kept[: np.argmin(is_space) if len(kept) else 0]] = 0
  starts = np.repeat(np.arange(len(text)), lengths)
  following = np.searchsorted(begins, starts, "right")
  return starts, np.append(begins, len(text))[following]


def _sigma_traits(text: str) -> int:
  """Returns what a text means for the lower-case form of a sigma beside it."""
  ends = f"{text}\u03a3".lower().endswith("\u03c2")
  starts = f"a\u03a3{text}".lower()[1] == "\u03c3"
  ignored = not ends and f"a{text}\u03a3".lower().endswith("\u03c2")
  return (
    SIGMA * (text == "\u03a3")
    | CASED_END * ends
    | CASED_START * starts
    | CASELESS * ignored
  )


def character_class(
  predicate: Callable[[str], object], characters: Iterable[str]
) -> str:
  """Returns a regular expression of those characters that `predicate` accepts.

  It has the form of RE2, and is "" for no character. Unicode properties would
  depend on the Unicode version of the program that reads the expression.
  """
  codes = [*map(ord, filter(predicate, characters))]
  runs = np.split(codes, np.flatnonzero(np.diff(codes) > 1) + 1)
  inside = "".join(rf"\x{{{x[0]:x}}}-\x{{{x[-1]:x}}}" for x in runs if len(x))
  return f"[{inside}]" if inside else ""
