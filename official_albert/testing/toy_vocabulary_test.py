"""Tests of the vocabularies: ALBERT's pieces, and the size that was asked."""

from __future__ import annotations

import pytest

from official_albert import tokenization
from official_albert.testing import toy_vocabulary


def _open(model: bytes, tmp_path) -> tokenization.Tokenizer:
  path = tmp_path / "tokenizer.model"
  path.write_bytes(model)
  return tokenization.open_tokenizer(str(path))


def test_numbers(tmp_path):
  tokenizer = _open(toy_vocabulary.numbers(12), tmp_path)
  assert tokenizer.vocab_size == 12
  assert tokenizer.encode("7 11") == [7, 11]
  assert tokenizer.mask_id == 4


def test_training(tmp_path):
  lines = ["the mill by the river", "the wheel of the mill"] * 3
  model = toy_vocabulary.train(lines, 30, user_defined_symbols="\u2581mill")
  tokenizer = _open(model, tmp_path)
  assert 5 < tokenizer.vocab_size <= 30
  assert tokenizer.tokenize("the mill")[-1] == "\u2581mill"
  assert tokenizer.unk_id not in tokenizer.encode("the river")


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
