"""Tests of notes on text that a vocabulary does not cover."""

from __future__ import annotations

import pytest

from official_albert import tokenization
from official_albert.testing import toy_vocabulary

_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def _wordpiece(pieces, *rules, **more):
  content = "\n".join([*_SPECIAL, *pieces]).encode()
  return tokenization.WordPieceTokenizer(content, *rules, **more)


def test_pieces_that_no_text_gives():
  pieces = ["The", "the", "\u00e5", "##\u00c5", "\uac01", "\u6771", "[unused7]"]
  lower = _wordpiece(pieces)
  dead = ["##\u00c5", "The", "\u00e5", "\uac01"]
  assert tokenization.dead_pieces(lower) == dead
  note = tokenization.vocabulary_note(lower)
  assert "4 of the 12 pieces" in note
  assert "--do_lower_case=false" in note and "--keep_accents" in note
  kept = _wordpiece(pieces, keep_accents=True)
  assert tokenization.dead_pieces(kept) == ["##\u00c5", "The"]
  cased = _wordpiece(pieces, False)
  assert not tokenization.dead_pieces(cased)
  assert not tokenization.vocabulary_note(cased)


def test_sentencepiece_composes_what_was_cut():
  # Hangul is decomposed and composed again; an accent is lost.
  lines = ["\uac01\uac01 The \u00e5 9,"] * 20
  content = toy_vocabulary.train(lines, 60, character_coverage=1.0)
  dead = tokenization.dead_pieces(tokenization.SentencePieceTokenizer(content))
  assert {"T", "\u00e5"} <= {piece[-1] for piece in dead} | {
    piece.strip("\u2581")[:1] for piece in dead
  }
  assert not any("\uac01" in piece for piece in dead)
  kept = tokenization.SentencePieceTokenizer(content, False, keep_accents=True)
  assert not tokenization.dead_pieces(kept)


@pytest.mark.parametrize("kind", ["wordpiece", "sentencepiece"])
def test_unknown_text_is_noticed(kind):
  tokenizer = _wordpiece(["the", "cat", "."])
  if kind == "sentencepiece":
    lines = ["the cat sat. the cat."] * 20
    tokenizer = tokenization.SentencePieceTokenizer(
      toy_vocabulary.train(lines, 30)
    )
  watch = tokenization.Watch(tokenizer)
  watch.see(["the cat.", ["the [MASK] cat.", "cat."], ""])
  assert not watch.note()
  watch.see(["\u6771", "\u4eac"])
  assert "tokens of the text are unknown" in watch.note()
  assert "2 texts have only unknown tokens" in watch.note()
  assert not tokenization.Watch(None).note()


def test_two_unknown_texts_among_many_are_noticed():
  watch = tokenization.Watch(_wordpiece(["the"]))
  watch.see(["the " * 50, "the " * 50, "x", "y"])
  assert watch.note().startswith("2 texts have only unknown tokens")


@pytest.mark.parametrize(("unknown", "noted"), [(5, False), (6, True)])
def test_the_limit_is_five_percent(unknown, noted):
  assert bool(tokenization.unknown_note(unknown, 100, "dev")) == noted
  assert not tokenization.unknown_note(0, 0, "dev")
