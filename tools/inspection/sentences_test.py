"""Flags and files to batches."""

from __future__ import annotations

import json

import numpy as np
import pytest

from official_albert import tokenization
from official_albert.testing import toy_vocabulary
from tools.inspection import sentences as inspection_sentences


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
  path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.model"
  path.write_bytes(toy_vocabulary.numbers(41))
  return tokenization.open_tokenizer(str(path))


def test_texts_come_before_files_of_both_kinds(tmp_path):
  lines = tmp_path / "a.txt"
  lines.write_text("one\n\n two \nthree\n")
  documents = tmp_path / "b.jsonl"
  documents.write_text(json.dumps({"text": "four\nfive"}) + "\n")
  read = inspection_sentences.read(["zero"], f"{lines},{documents}")
  assert read == ["zero", "one", "two", "three", "four", "five"]
  assert inspection_sentences.read([], "") == []


@pytest.mark.parametrize(
  "texts, files, message",
  [
    (["good", " \t"], "", "--text is empty"),
    ([], "{0}/none-*.txt", "no input file matches"),
  ],
)
def test_bad_input(tmp_path, texts, files, message):
  with pytest.raises((ValueError, OSError), match=message):
    inspection_sentences.read(texts, files.format(tmp_path))


def test_batches_are_of_similar_length_and_padded(tokenizer):
  words = ["5 6 7", "8", *["9 10"] * 16]
  found = inspection_sentences.batch(words, tokenizer, 9)
  assert (found.count, found.tokens, found.cut) == (18, 5 + 3 + 16 * 4, 0)
  shapes = [batch["input_ids"].shape for batch in found.batches]
  assert shapes == [(16, 4), (2, 5)]
  ids = found.batches[0]["input_ids"]
  assert ids[0].tolist() == [2, 8, 3, 0]  # The shortest is in front.
  assert found.batches[0]["input_mask"][0].tolist() == [1, 1, 1, 0]
  assert not found.batches[0]["segment_ids"].any()
  assert found.batches[1]["input_ids"].tolist() == [
    [2, 9, 10, 3, 0],
    [2, 5, 6, 7, 3],
  ]
  assert found.first["input_ids"].tolist() == [[2, 5, 6, 7, 3]]
  assert found.first["input_ids"].dtype == np.int32
  assert found.pieces == ["[CLS]", "▁5", "▁6", "▁7", "[SEP]"]


def test_long_sentences_lose_their_end(tokenizer):
  found = inspection_sentences.batch(["5 6 7 8", "9 10"], tokenizer, 4)
  assert found.pieces == ["[CLS]", "▁5", "▁6", "[SEP]"]
  assert found.cut == 1
  with pytest.raises(ValueError, match="max_seq_length is 2"):
    inspection_sentences.batch(["5"], tokenizer, 2)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
