"""Tests of the table of characters, against the original's steps on texts."""

from __future__ import annotations

import itertools
import unicodedata

import pytest

from official_albert import tokenization
from official_albert.testing import toy_vocabulary
from official_albert.tokenization import normalization


def _steps(text, lower_case, keep_accents, words, split_chinese):
  """Changes a text as the original does, and returns its words."""
  text = text.encode("utf-8", "ignore").decode("utf-8")
  if not words:
    text = " ".join(text.split())
    if not keep_accents:
      text = unicodedata.normalize("NFKD", text)
      text = "".join(c for c in text if not unicodedata.combining(c))
    return (text.lower() if lower_case else text).split(" ")
  text = "".join(
    " " if normalization.is_space(c) else c
    for c in text
    if not normalization.is_control(c)
  )
  text = text.lower() if lower_case else text
  if not keep_accents:
    text = unicodedata.normalize("NFD", text)
    text = "".join(c for c in text if unicodedata.category(c) != "Mn")
  return "".join(
    f" {c} "
    if normalization.is_punctuation(c)
    or split_chinese
    and normalization.is_chinese(c)
    else c
    for c in text
  ).split()


def _changed(text, normal):
  if normal.words:
    return normal.split(text)
  return tokenization.normalize_text(
    text, normal.lower_case, normal.keep_accents
  ).split(" ")


every_setting = pytest.mark.parametrize(
  "settings",
  [
    *(
      (*pair, False, False)
      for pair in itertools.product([True, False], repeat=2)
    ),
    (True, False, True, True),
    (False, True, True, True),
    (False, False, True, False),
    (True, True, True, False),
  ],
)
# Of the many characters without case or marks, one of 29, and of the scripts
# beyond 16 bits, one of 7.
_CODES = [
  *range(0x3400),
  *range(0x3400, 0xF900, 29),
  *range(0xF900, 0x10000),
  *range(0x10000, 0x20000, 7),
  *range(0x20000, 0x33480, 29),
  *range(0xE0000, 0xE0200),
  0x10FFFF,
]


@every_setting
def test_every_character_among_sigmas(settings):
  normal = normalization.Normalization(*settings)
  for code in _CODES:
    char = chr(code)
    text = f"x{char} A{char}\u03a3{char} {char}\u03a3{char}a{char}"
    assert _changed(text, normal) == _steps(text, *settings), hex(code)


@every_setting
def test_odd_texts(settings):
  normal = normalization.Normalization(*settings)
  for text in [*toy_vocabulary.odd_texts(250, seed=3), "a \ud800 b"]:
    # A deviation: marks that WordPiece keeps are not put in order.
    if not {"\u302e", "\u1b44"} <= {*text}:
      assert _changed(text, normal) == _steps(text, *settings), ascii(text)
