"""Tests that WordPiece in the graph equals Python, also after saving."""

from __future__ import annotations

import gzip
import itertools
import pathlib
import unicodedata

import pytest
import tensorflow as tf
import tensorflow_text

from official_albert import tokenization
from official_albert.tokenization.in_graph import (
  sentencepiece_layers as text_layers,
)
from official_albert.tokenization.in_graph import (
  wordpiece_layer as wordpiece_text_layer,
)

_CORPUS = (
  pathlib.Path(__file__).resolve().parents[4]
  / "shared/data/corpus/wikipedia_sentences_4mb.txt.gz"
)
_PIECES = """[PAD] [unused1] [UNK] [CLS] [SEP] [MASK] the un ##aff ##able run
##ning 中 国 人 ##国 。 ， 1922 年 . , [ ] mask ' - cafe ß σας ##σ the x ##x
mill tur ##ns river a ##a b ##b in of and to ##s ##ed ##ing""".split()
_LINES = [
  "",
  " \t",
  "The mill turns, unaffable; the river runs.",
  "他在1922年。中国人，x国x！",
  "CAFÉ café cafe\u0301 ß ẞ İx",
  "ΣΑΣ ΣΑΣ:Σ σας",
  "[MASK] [CLS] ##x",
  "the\ufffd\u200bthe \u00adthe\u3000the\u2028the\u2029x th\x1ce\x85",
  "x" * 200 + " " + "x" * 201 + " " + "国" * 201,
  "한국어 日本語が ภาษา हिन्दी 👍🏽 \U0002f81a",
]


@pytest.fixture(scope="module")
def vocab_file(tmp_path_factory):
  path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
  path.write_text("\n".join([*_PIECES, "", ""]), "utf-8")
  return path


def _differing(vocab_file, lower_case, lines):
  python = tokenization.WordPieceTokenizer(vocab_file, lower_case)
  layer = wordpiece_text_layer.WordPieceTextLayer(vocab_file, lower_case)
  rows = tf.function(layer.tokenize)(tf.constant(lines))
  assert rows.dtype == tf.int32 and rows.shape.rank == 2
  pairs = zip(lines, python.encode_batch(lines), rows.to_list())
  return [line for line, expected, got in pairs if expected != got]


@pytest.mark.parametrize("lower_case", [True, False])
def test_equals_python(vocab_file, lower_case):
  assert _differing(vocab_file, lower_case, _LINES) == []


@pytest.mark.skipif(not _CORPUS.exists(), reason="no corpus on this machine")
def test_equals_python_on_real_text(vocab_file):
  with gzip.open(_CORPUS, "rt", encoding="utf-8") as file:
    lines = [line.rstrip("\n") for line in itertools.islice(file, 2000)]
  assert _differing(vocab_file, True, lines) == []


def test_every_character_equals_python(vocab_file):
  # Without surrogates, private and unassigned characters, and planes above 1.
  lines = [
    f"a{chr(code)}b {chr(code)}"
    for code in range(1, 0x20000)
    if unicodedata.category(chr(code)) not in ("Cs", "Co", "Cn")
  ]
  assert len(lines) > 77_000
  differing = {line[1] for line in _differing(vocab_file, True, lines)}
  # Marks and letters new in Unicode 13 and 14; Python 3.10 has 13.
  assert len(differing) <= 3, sorted(map(hex, map(ord, differing)))


def test_equals_tensorflow_texts_bert_tokenizer(tmp_path):
  # BertTokenizer follows the same rules, except that it folds case: "ß"
  # becomes "ss" and "，" becomes ",".
  path = tmp_path / "vocab.txt"
  pieces = list(dict.fromkeys(_PIECES))  # It wants no piece twice.
  path.write_text("\n".join(pieces), "utf-8")
  other = tensorflow_text.BertTokenizer(
    str(path), token_out_type=tf.int32, lower_case=True
  )
  layer = wordpiece_text_layer.WordPieceTextLayer(path)
  lines = [
    _LINES[2],
    _LINES[3].replace("，", "。"),
    "CAFÉ cafe\u0301s [İ",
    "國人",
  ]
  lines = tf.constant(lines)
  got = layer.tokenize(lines).to_list()
  expected = other.tokenize(lines).merge_dims(1, 2).to_list()
  assert expected == got
  unknown = pieces.index("[UNK]")
  assert sum(i != unknown for row in got for i in row) > 25


def test_saved_with_masks(vocab_file, tmp_path):
  layer = text_layers.FillMaskTextLayer(
    text_layers.make_text_layer("wordpiece", str(vocab_file), True), 11
  )
  module = tf.Module()
  module.layer = layer
  module.fill = tf.function(
    layer, input_signature=[tf.TensorSpec([None], tf.string)]
  )
  tf.saved_model.save(module, str(tmp_path / "saved"))
  fill = tf.saved_model.load(str(tmp_path / "saved")).fill
  answer = fill(tf.constant(["中[MASK]人。", "the [MASK]s the"]))
  python = tokenization.WordPieceTokenizer(vocab_file)
  assert answer["input_ids"].numpy().tolist() == [
    [3, *python.encode("中"), 5, *python.encode("人。"), 4],
    [3, *python.encode("the"), 5, *python.encode("s the"), 4],
  ]
  assert answer["mask_positions"].numpy().tolist() == [[2], [2]]


def test_pieces(vocab_file):
  layer = wordpiece_text_layer.WordPieceTextLayer(vocab_file)
  # "the" occurs twice; the empty line is a piece.
  assert layer.vocab_size == len(set(_PIECES)) + 1 == len(_PIECES) == 49
  got = layer.pieces(tf.constant([[5, 8]])).numpy().tolist()
  assert got == [[b"[MASK]", b"##aff"]]


def test_bad_arguments(vocab_file, tmp_path):
  with pytest.raises(FileNotFoundError, match="no WordPiece vocabulary"):
    wordpiece_text_layer.WordPieceTextLayer(tmp_path / "none.txt")
  (tmp_path / "vocab.txt").write_text("[PAD]\nthe\n")
  with pytest.raises(ValueError, match=r"lacks the piece \[UNK\]"):
    wordpiece_text_layer.WordPieceTextLayer(tmp_path / "vocab.txt")
  layer = wordpiece_text_layer.WordPieceTextLayer(vocab_file)
  with pytest.raises(ValueError, match="texts must be <string>"):
    layer.tokenize(tf.constant("the"))


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
