"""Tests of WordPiece: the rules of BERT, and refused vocabularies."""

from __future__ import annotations

import hashlib
import pickle

import numpy as np
import pytest

from official_albert.tokenization import sentencepiece_tokenizer as tokenization
from official_albert.tokenization import wordpiece

PIECES = """[PAD] [unused1] [UNK] [CLS] [SEP] [MASK] the un ##aff ##able run
##ning 中 国 人 ##国 。 ， 1922 年 . , [ ] mask ' - cafe ca ##fe ß σας ##σ ' the
x ##x""".split()


@pytest.fixture(scope="module")
def vocab_file(tmp_path_factory):
  path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
  # More columns, an empty line and Windows line ends are allowed.
  lines = [*PIECES, "", "zebra\t7", "zoo\r"]
  path.write_bytes(("\n".join(lines) + "\n").encode())
  return path


@pytest.fixture(scope="module")
def tokenizer(vocab_file):
  return wordpiece.WordPieceTokenizer(vocab_file)


def test_ids_are_line_numbers(vocab_file, tokenizer):
  # "the" and "'" are in two lines each; the second one counts.
  assert tokenizer.vocab_size == len(PIECES) + 3 == 40
  assert (tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id) == (0, 2, 3)
  assert (tokenizer.sep_id, tokenizer.mask_id) == (4, 5)
  assert tokenizer.special_ids == {0, 1, 2, 3, 4, 5}
  assert tokenizer.id_to_piece(38) == "zebra"
  assert tokenizer.encode("zoo") == [39]
  assert PIECES[6] == PIECES[34] == "the" and tokenizer.encode("the") == [34]
  assert PIECES[35] == "x" and tokenizer.encode("x") == [35]
  assert tokenizer.piece_to_id("nowhere") == tokenizer.unk_id
  assert tokenizer.sha256 == hashlib.sha256(vocab_file.read_bytes()).hexdigest()
  assert tokenizer.kind == "wordpiece"
  table = tokenizer.word_start_table
  assert table.dtype == np.bool_ and table.shape == (40,)
  ids = tokenizer.encode("unaffable 中国")
  assert table[ids].tolist() == [True, False, False, True, True]


@pytest.mark.parametrize(
  ("text", "pieces"),
  [
    ("unaffable running", "un ##aff ##able run ##ning"),
    ("The 中国人, 1922年。", "the 中 国 人 , 1922 年 。"),
    ("x国x", "x 国 x"),
    ("unaffably", "[UNK]"),
    ("CAFÉ café cafe\u0301", "cafe cafe cafe"),
    ("ß ẞ", "ß ß"),
    ("ΣΑΣ ΣΑΣ:Σ", "σας [UNK] [UNK] [UNK]"),
    ("σας", "σας"),
    ("[MASK]", "[ mask ]"),
    ("the\x00the\ufffd\u200bthe \u00adthe", "[UNK] the"),
    ("the\u3000the\tthe\nthe\u2028the", "the the the the the"),
    ("th\x1ce", "the"),
    ("'the-x.'", "' the - x . '"),
    ("x" * 200, " ".join(["x"] + ["##x"] * 199)),
    ("x" * 201, "[UNK]"),
    ("\ud800the", "the"),
    ("", ""),
    (" \t", ""),
  ],
)
def test_rules(tokenizer, text, pieces):
  assert tokenizer.tokenize(text) == pieces.split()
  assert tokenizer.encode(text) == [
    tokenizer.piece_to_id(piece) for piece in pieces.split()
  ]


def test_decode_and_pickle(tokenizer):
  ids = [3, *tokenizer.encode("unaffable 中国人 the zz。"), 4, 0]
  assert tokenizer.decode(ids) == "unaffable中国人 the [UNK] 。"
  assert tokenizer.marked_piece(4) == "[SEP]"
  assert tokenizer.decode(ids[-1:]) == ""
  for bad_id in (-1, 40):
    with pytest.raises(ValueError, match=f"id {bad_id} is outside"):
      tokenizer.decode([bad_id])
  copy = pickle.loads(pickle.dumps(tokenizer))
  assert copy.encode("unaffable 中国") == tokenizer.encode("unaffable 中国")


@pytest.mark.parametrize(
  ("content", "message"),
  [
    (
      b"[PAD]\n[UNK]\n[CLS]\n[SEP]\nthe\n",
      r"5 pieces\) lacks the piece \[MASK",
    ),
    (
      b"the\n[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]",
      r"has \[PAD\] at id 1, but it must be in line 1",
    ),
    (b"[PAD]\n\n\xff\xfe", "line 3, is not UTF-8: .* spm_model_file"),
  ],
)
def test_bad_vocabularies_are_refused(tmp_path, content, message):
  path = tmp_path / "vocab.txt"
  path.write_bytes(content)
  with pytest.raises(ValueError, match=message):
    wordpiece.WordPieceTokenizer(path)


def test_open_tokenizer(tmp_path, vocab_file):
  opened = tokenization.open_tokenizer(
    vocab_file=str(vocab_file), lower_case=False
  )
  assert opened.kind == "wordpiece" and not opened.rules.lower_case
  for arguments in ({}, {"spm_model_file": "a", "vocab_file": "b"}):
    with pytest.raises(ValueError, match="give either spm_model_file"):
      tokenization.open_tokenizer(**arguments)
  with pytest.raises(FileNotFoundError, match="no WordPiece vocabulary"):
    tokenization.open_tokenizer(vocab_file=str(tmp_path))
