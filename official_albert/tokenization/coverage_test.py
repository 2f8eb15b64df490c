"""Tests of notes on text that a vocabulary does not cover."""

from __future__ import annotations

import pytest

from official_albert import tokenization
from official_albert.testing import toy_vocabulary


def _wordpiece(pieces, *rules, **more):
  content = "\n".join(
    [*tokenization.WORDPIECE_SPECIAL_PIECES, *pieces]
  ).encode()
  return tokenization.WordPieceTokenizer(content, *rules, **more)


def test_pieces_that_no_text_gives():
  pieces = ["The", "the", "\u00e5", "##\u00c5", "\uac01", "\u6771", "[unused7]"]
  note = tokenization.vocabulary_note(_wordpiece(pieces))
  assert "4 of the 12 pieces" in note
  assert "--do_lower_case=false" in note and "--keep_accents" in note
  kept = _wordpiece(pieces, keep_accents=True)
  assert "2 of the 12 pieces" in tokenization.vocabulary_note(kept)
  assert not tokenization.vocabulary_note(_wordpiece(pieces, False))


def test_sentencepiece_composes_what_was_cut():
  # Hangul is decomposed and composed again; an accent is lost.
  for text, is_lost in (("\uac01\uac01 9,", False), ("\u00e5\u00e5 9,", True)):
    content = toy_vocabulary.train([text] * 20, 60, character_coverage=1.0)
    tokenizer = tokenization.SentencePieceTokenizer(content)
    assert bool(tokenization.vocabulary_note(tokenizer)) == is_lost
    kept = tokenization.SentencePieceTokenizer(content, keep_accents=True)
    assert not tokenization.vocabulary_note(kept)


@pytest.mark.parametrize("kind", ["wordpiece", "sentencepiece"])
def test_unknown_text_is_noticed(kind):
  tokenizer = _wordpiece(["the", "cat", "."])
  if kind == "sentencepiece":
    lines = ["the cat sat. the cat."] * 20
    tokenizer = tokenization.SentencePieceTokenizer(
      toy_vocabulary.train(lines, 30)
    )
  known = ["the cat.", "the [MASK] cat.", "cat.", ""]
  assert not tokenization.coverage_note(tokenizer, known)
  note = tokenization.coverage_note(tokenizer, [*known, "\u6771", "\u4eac"])
  assert "tokens of the text are unknown" in note
  assert "2 texts have only unknown tokens" in note
  many = ["the cat. " * 9] * 9  # Among which two are few.
  note = tokenization.coverage_note(tokenizer, [*many, "\u6771", "\u4eac"])
  assert note.startswith("2 texts have only unknown tokens")
  assert not tokenization.coverage_note(None, known)


@pytest.mark.parametrize(("unknown", "noted"), [(5, False), (6, True)])
def test_the_limit_is_five_percent(unknown, noted):
  assert bool(tokenization.unknown_note(unknown, 100, "dev")) == noted
  assert not tokenization.unknown_note(0, 0, "dev")
