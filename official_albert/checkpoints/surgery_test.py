"""Tests of surgery on small tables; conversion_test.py compares models."""

from __future__ import annotations

import numpy as np
import pytest

from official_albert import AlbertConfig
from official_albert.checkpoints import portable, surgery, tokenizer_file
from official_albert.testing import toy_vocabulary

_WORDS = "bert/embeddings/word_embeddings"
_POSITIONS = "bert/embeddings/position_embeddings"
_BIAS = "cls/predictions/output_bias"
_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def _tiny(tensors, **changes):
  values = {"vocab_size": 7, "max_position_embeddings": 3}
  config = AlbertConfig(**{**values, **changes})
  return portable.PortableCheckpoint("there", config, tensors, "none")


def test_positions():
  table = np.array([[0, 6], [3, 0], [9, 12]], np.float32)
  for length, expected in (
    (7, [[0, 6], [3, 0], [9, 12], [0, 6], [3, 0], [9, 12], [0, 6]]),
    (2, [[0, 6], [3, 0]]),
  ):
    checkpoint = _tiny({_POSITIONS: table, _WORDS: table})
    surgery.resize_positions(checkpoint, length)
    assert checkpoint.config.max_position_embeddings == length
    np.testing.assert_array_equal(checkpoint.tensors[_POSITIONS], expected)
    assert checkpoint.tensors[_WORDS] is table
    assert f"{length} positions instead of 3" in checkpoint.notes[0]
  with pytest.raises(ValueError, match="must be at least 1, got 0"):
    surgery.resize_positions(_tiny({_POSITIONS: table}), 0)


def _wordpiece(path, pieces):
  path.write_text("\n".join([*_SPECIAL, *pieces]) + "\n", encoding="utf-8")
  return tokenizer_file.TokenizerFile(str(path), "wordpiece")


def _words_and_bias():
  table = np.array([[9, 9]] * 5 + [[1, 2], [3, 8]], np.float32)
  bias = np.array([7, 7, 7, 7, 7, -1, -4], np.float32)
  return {_WORDS: table, _BIAS: bias}


def test_rows_of_common_and_new_pieces(tmp_path):
  checkpoint = _tiny(_words_and_bias())
  before = dict(checkpoint.tensors)
  checkpoint.tokenizer = _wordpiece(tmp_path / "old", ["a", "##b"])
  new = _wordpiece(tmp_path / "new", ["##b", "ab", "c", "[X]", "abb"])
  surgery.change_vocabulary(checkpoint, new)
  assert checkpoint.tokenizer == new
  assert checkpoint.config.vocab_size == 10
  result = checkpoint.tensors
  # "c" and "[X]" are unknown, so they get the mean of all ordinary pieces.
  expected = np.array([[3, 8], [2, 5], [2, 5], [2, 5], [7 / 3, 6]], np.float32)
  np.testing.assert_array_equal(result[_WORDS][:5], before[_WORDS][:5])
  np.testing.assert_array_equal(result[_WORDS][5:], expected)
  np.testing.assert_array_equal(
    result[_BIAS], np.array([7] * 5 + [-4, -2.5, -2.5, -2.5, -3], np.float32)
  )
  assert result[_BIAS].dtype == result[_WORDS].dtype == np.float32
  assert checkpoint.notes == [
    "another vocabulary: 6 pieces copied, 2 new ones made from the old pieces "
    "they are cut into, 2 from the mean of all, 1 old ones dropped."
  ]


def test_vocabularies_that_do_not_fit(tmp_path):
  checkpoint = _tiny(_words_and_bias())
  old = _wordpiece(tmp_path / "old", ["a", "##b"])
  with pytest.raises(ValueError, match="if the old one is known"):
    surgery.change_vocabulary(checkpoint, old)
  checkpoint.tokenizer = _wordpiece(tmp_path / "short", ["a"])
  with pytest.raises(ValueError, match="old vocabulary has 6 pieces, but .* 7"):
    surgery.change_vocabulary(checkpoint, old)
  path = tmp_path / "tiny.model"
  path.write_bytes(toy_vocabulary.numbers(9))
  new = tokenizer_file.TokenizerFile(str(path), "sentencepiece")
  with pytest.raises(ValueError, match="is of wordpiece, the new one of sent"):
    surgery.change_vocabulary(checkpoint, new)


def test_pieces_are_cut_into_the_longest_known_ones(tmp_path):
  def parts(old, new, kind="wordpiece"):
    ids = {piece: i for i, piece in enumerate(old)}
    return [old[i] for i in surgery._cut(new, ids)]

  words = ["他", "port", "##s", "##ide", "##t", "##他", "t"]
  assert parts(words, "ports") == ["port", "##s"]
  assert parts(words, "##side") == ["##s", "##ide"]
  # "port" is no part of a word there, but has the meaning.
  assert parts(words, "##ports") == ["port", "##s"]
  assert parts(words, "他t") == ["他", "##t"]
  assert parts(words, "##x") == parts(words, "##") == []
  pieces = ["▁", "▁harbour", "▁har", "front", "f", "r"]
  assert parts(pieces, "▁harbourfront") == ["▁harbour", "front"]
  assert parts(pieces, "щfrщont") == ["f", "r"]
  assert parts(pieces, "▁щ") == []
