"""Tests with a vocabulary of each kind, made here."""

from __future__ import annotations

import pathlib

import pytest

from official_albert import tokenization
from official_albert.checkpoints import piece_cutting

_RELEASED = (
  pathlib.Path(__file__).resolve().parents[3]
  / "shared/data/tokenizer/30k-clean.model"
)


def wordpiece(path, pieces):
  special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
  path.write_text("\n".join([*special, *pieces]) + "\n", encoding="utf-8")
  return tokenization.WordPieceTokenizer(path)


def test_wordpiece(tmp_path):
  tokenizer = wordpiece(
    tmp_path / "vocab.txt", ["他", "port", "##s", "##ide", "##t", "##他", "t"]
  )
  assert piece_cutting.pieces_of(tokenizer)[4:7] == ["[MASK]", "他", "port"]
  cut = piece_cutting.cutter(tokenizer)
  assert cut("ports") == ["port", "##s"]
  assert cut("Portside") == ["port", "##s", "##ide"]  # As text is read.
  assert cut("##side") == ["##s", "##ide"]
  assert cut("##st") == ["##s", "##t"]
  # Within a word it is unknown, so it is cut like a word.
  assert cut("##port") == ["port"]
  assert cut("##x") == ["[UNK]"]
  assert cut("##") == ["[UNK]", "[UNK]"]
  assert cut("他t") == ["他", "t"]


def test_sentencepiece(tmp_path):
  path = tokenization.train_model(tmp_path / "tiny.model")
  tokenizer = tokenization.SentencePieceTokenizer(str(path))
  pieces = piece_cutting.pieces_of(tokenizer)
  assert pieces[:5] == list(tokenization.SPECIAL_PIECES)
  assert len(pieces) == tokenizer.vocab_size
  cut = piece_cutting.cutter(tokenizer)
  assert cut("▁ferry") == tokenizer.tokenize("ferry")
  assert cut("▁the▁port") == tokenizer.tokenize("the port")
  # Within a word no piece has the mark of a space.
  inside = cut("erry")
  assert "".join(inside) == "erry" and set(inside) <= set(pieces)
  assert cut("щerry") == ["щ", *inside]
  assert cut("▁щ") == ["▁", "щ"]
  assert cut("▁") == []


def test_a_vocabulary_that_cuts_the_unknown_into_bytes(tmp_path):
  path = tokenization.train_model(
    tmp_path / "bytes.model", byte_fallback=True, vocab_size=350
  )
  cut = piece_cutting.cutter(tokenization.SentencePieceTokenizer(str(path)))
  assert cut("щ")[-2:] == ["<0xD1>", "<0x89>"]


@pytest.mark.skipif(not _RELEASED.exists(), reason="needs the released model")
def test_the_released_vocabulary():
  cut = piece_cutting.cutter(
    tokenization.SentencePieceTokenizer(str(_RELEASED))
  )
  assert cut("▁harbourfront") == ["▁harbour", "front"]
  assert cut("front") == ["front"]
  assert cut("1922,") == ["1922", ","]


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
