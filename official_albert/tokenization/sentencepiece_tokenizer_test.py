"""Tests of the SentencePiece tokenizer: goldens and a small vocabulary."""

from __future__ import annotations

import hashlib
import pathlib
import pickle
import re

import numpy as np
import pytest
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from official_albert.testing import toy_vocabulary
from official_albert.tokenization import in_graph, text_offsets_test
from official_albert.tokenization import sentencepiece_tokenizer as tokenization

_SENTENCES = [
  "the harbour froze in 1922, and the ferry waited until may.",
  "(7,7,7,7) is a point, and so are (7,9) and (7,1) but not (7,2) or (7,c).",
  "in 1922, the fisher sold 1922,5 and 1922,2 tons of cod in the port.",
  "a cautious baker measures flour, water and salt with one spoon.",
  'she wrote "open the northern gate" on the wall - twice.',
  "zebras jump quickly over x-shaped fences [in their dreams].",
]


def train_model(path, sentences=_SENTENCES, **options) -> pathlib.Path:
  return text_offsets_test.train(path, sentences, vocab_size=90, **options)


@pytest.fixture(scope="module")
def model_file(tmp_path_factory) -> pathlib.Path:
  return train_model(tmp_path_factory.mktemp("vocabulary") / "tiny.model")


@pytest.fixture(scope="module")
def tokenizer(model_file) -> tokenization.SentencePieceTokenizer:
  return tokenization.SentencePieceTokenizer(str(model_file))


@pytest.mark.golden
@text_offsets_test.needs_released
@pytest.mark.parametrize("key,lower_case", [("lower", True), ("cased", False)])
def test_equals_the_original_on_every_golden_line(key, lower_case):
  released = str(text_offsets_test.RELEASED)
  tokenizer = tokenization.SentencePieceTokenizer(released, lower_case)
  for line in text_offsets_test.golden_lines():
    text, expected = line["text"], line[key]
    assert (
      tokenization.normalize_text(text, lower_case) == expected["normalized"]
    )
    assert tokenizer.tokenize(text) == expected["pieces"]
    assert tokenizer.encode(text) == expected["ids"]


@pytest.mark.golden
@text_offsets_test.needs_released
def test_released_vocabulary():
  released = str(text_offsets_test.RELEASED)
  tokenizer = tokenization.SentencePieceTokenizer(released)
  assert tokenizer.vocab_size == 30000
  assert tokenizer.special_ids == {0, 1, 2, 3, 4}
  assert tokenizer.encode("[MASK]") != [tokenizer.mask_id]
  assert tokenizer.tokenize("[MASK]") == ["▁[", "mask", "]"]
  # One example of each kind in the docstring of starts_word.
  starts = tokenizer.word_start_table
  assert starts.shape == (30000,) and starts.sum() == 23242
  assert starts[tokenizer.piece_to_id("▁the")]
  assert not starts[tokenizer.piece_to_id("ing")]
  assert not starts[tokenizer.mask_id]


def test_decode_inverts_encode(tokenizer):
  for sentence in _SENTENCES:
    pieces = tokenizer.tokenize(sentence)
    assert "".join(pieces).replace("▁", "") == sentence.replace(" ", "")
    assert tokenizer.encode(sentence) == [
      tokenizer.piece_to_id(piece) for piece in pieces
    ]
  # Unknown characters are kept as pieces.
  assert tokenizer.tokenize("漢字 a") == ["▁", "漢字", "▁a"]
  assert tokenizer.encode("漢字 a")[1] == tokenizer.unk_id
  assert tokenizer.piece_to_id("漢字") == tokenizer.unk_id
  # Without digits no word mark is added, so decoding is the inverse.
  assert tokenizer.decode(tokenizer.encode(_SENTENCES[3])) == _SENTENCES[3]
  for bad_id in (-1, 30001):
    for call in (tokenizer.id_to_piece, lambda i: tokenizer.decode([5, i])):
      with pytest.raises(ValueError, match=f"id {bad_id} is outside the voc"):
        call(bad_id)


def test_digit_comma_pieces_are_split(tokenizer):
  raw = sentencepiece.SentencePieceProcessor(model_file=tokenizer.model_file)
  # The vocabulary must have both kinds of pieces to test the rule.
  assert "▁1922," in raw.encode("in 1922, the", out_type=str)
  assert "7," in raw.encode("(7,", out_type=str)
  year = tokenizer.tokenize("in 1922, the")
  assert year[-2:] == [",", "▁the"] and "".join(year) == "▁in▁1922,▁the"
  # Inside a word, the digits get a word mark, as in the original. (This
  # vocabulary has no "▁7", so it is two pieces.)
  assert tokenizer.tokenize("(7,") == ["▁", "(", "▁", "7", ","]


def test_encode_batch_equals_encode(tokenizer):
  texts = ["", *_SENTENCES, "  ", "Ünknown Ж漢, 9,", "(9, 7)"]
  rows = tokenizer.encode_batch(tuple(texts))
  assert rows == [tokenizer.encode(text) for text in texts]
  assert rows[0] == rows[7] == []
  assert tokenizer.encode_batch([]) == []
  with pytest.raises(TypeError, match="use encode for one"):
    tokenizer.encode_batch("a single text")


def test_special_pieces_and_word_starts(model_file, tokenizer):
  pieces = [tokenizer.id_to_piece(i) for i in range(tokenizer.vocab_size)]
  assert pieces[:5] == ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
  names = ("pad_id", "unk_id", "cls_id", "sep_id", "mask_id")
  assert [getattr(tokenizer, name) for name in names] == [0, 1, 2, 3, 4]
  assert tokenizer.special_ids == {0, 1, 2, 3, 4}
  ids = tokenizer.encode("zebras")
  assert tokenizer.decode([2, *np.array(ids), 4, 3, 0]) == "zebras"
  table = tokenizer.word_start_table
  assert table.dtype == np.bool_
  assert table.tolist() == [tokenization.starts_word(p) for p in pieces]
  assert table[:5].tolist() == [True, True, False, False, False]
  cased = tokenization.SentencePieceTokenizer(model_file, lower_case=False)
  assert cased.unk_id in cased.encode("The Harbour")
  assert tokenizer.sha256 == hashlib.sha256(model_file.read_bytes()).hexdigest()
  copy = pickle.loads(pickle.dumps(tokenizer))
  assert copy.sha256 == tokenizer.sha256
  assert copy.tokenize(_SENTENCES[2]) == tokenizer.tokenize(_SENTENCES[2])


_STARTS = """▁the ▁ <unk> . [ _ € 7 ' = > 1st don't 。 … 中 中国 の ไทย ខ្មែរ ٣
। 👍"""
_CONTINUES = """ing x ING ... [MASK] a-b é ж ского σεις ß यह क्या ות ية
\u1112\u1161"""


@pytest.mark.parametrize("starts, pieces", [(1, _STARTS), (0, _CONTINUES)])
def test_starts_word(starts, pieces):
  for piece in pieces.split():
    assert tokenization.starts_word(piece) == starts, piece


def _changed(change, content: bytes) -> bytes:
  model = sentencepiece_model_pb2.ModelProto.FromString(content)
  change(model)
  return model.SerializeToString()


def _set_type(index, name):
  def change(model):
    model.pieces[index].type = getattr(model.SentencePiece, name)

  return change


def _set_unknown(model):
  _set_type(1, "NORMAL")(model)
  _set_type(7, "UNKNOWN")(model)


@pytest.mark.parametrize(
  "change",
  [
    lambda model: setattr(model.pieces[9], "piece", model.pieces[10].piece),
    lambda model: setattr(model.pieces[9], "piece", ""),
    lambda model: setattr(model.pieces[9], "score", float("nan")),
    _set_type(9, "BYTE"),
    lambda model: setattr(model.trainer_spec, "byte_fallback", True),
    lambda model: setattr(
      model.normalizer_spec,
      "precompiled_charsmap",
      b"\0\4\0\0" + b"\xff" * 2048,
    ),
    lambda content: content.replace("\u2581the".encode(), b"\xed\xa0\x80the"),
    lambda content: content[:-9],
    lambda content: b"",
    lambda content: b"<pad>\t0\n",
  ],
  ids="twice empty nan byte bytes rules utf_8 cut nothing text".split(),
)
def test_damaged_models_are_refused(change, request, tmp_path, model_file):
  content = model_file.read_bytes()
  of_bytes = ("utf_8", "cut", "nothing", "text")
  is_raw = request.node.callspec.id in of_bytes
  path = tmp_path / "damaged.model"
  with pytest.raises(FileNotFoundError, match="tools.train_vocabulary"):
    tokenization.SentencePieceTokenizer(path)
  path.write_bytes(change(content) if is_raw else _changed(change, content))
  with pytest.raises(ValueError, match=f"'{path}' .* is not a SentencePiece"):
    tokenization.SentencePieceTokenizer(str(path))


def test_rules_that_give_no_utf_8_are_refused(model_file):
  def change(model):
    rules = model.normalizer_spec.precompiled_charsmap
    # Behind the trie are the replacements, such as syllables of Hangul.
    size = 4 + int.from_bytes(rules[:4], "little")
    damaged = rules[:size] + re.sub(rb"\0[^\0]+", _not_utf_8, rules[size:])
    model.normalizer_spec.precompiled_charsmap = damaged

  def _not_utf_8(match):
    return match[0][:1] + b"\x8f" * (len(match[0]) - 1)

  content = _changed(change, model_file.read_bytes())
  tokenizer = tokenization.SentencePieceTokenizer(content)
  with pytest.raises(ValueError, match="is damaged, because it cannot"):
    tokenizer.tokenize("\uac00")


@pytest.mark.parametrize(
  "options, change, begin",
  [
    ({"pad_id": 1, "unk_id": 0}, None, "<unk>"),
    ({"control_symbols": "[SEP],[CLS],[MASK]"}, None, "<pad>', '<unk>', ..SEP"),
    ({"control_symbols": "[CLS],[SEP]"}, None, "<pad>"),
    ({}, _set_unknown, "<pad>"),
    # Offsets in the graph would blame another character.
    ({}, "CONTROL", "<pad>"),
    ({}, "UNUSED", "<pad>"),
  ],
)
def test_other_special_pieces_are_refused(tmp_path, options, change, begin):
  path = train_model(tmp_path / "other.model", **options)
  content = path.read_bytes()
  if isinstance(change, str):
    model = sentencepiece_model_pb2.ModelProto.FromString(content)
    pieces = [piece.piece for piece in model.pieces]
    change = _set_type(pieces.index(tokenization.WORD_START), change)
  if change:
    path.write_bytes(_changed(change, content))
  for read in (
    tokenization.SentencePieceTokenizer,
    in_graph.SentencePieceTextLayer,
  ):
    message = f"'{path}' begins with '{begin}.*, but .*<unk>.*train_vocab"
    with pytest.raises(ValueError, match=message):
      read(str(path))


@pytest.mark.parametrize("options", ["user_defined_symbols", "control_symbols"])
def test_text_never_becomes_a_special_piece(options, tmp_path):
  lines = ["is it so [CLS] [MASK] <pad> [SEP]"] * 20
  content = toy_vocabulary.train(
    lines,
    60,
    character_coverage=1.0,
    **{"control_symbols": "", options: "[CLS],[SEP],[MASK]"},
  )
  tokenizer = tokenization.SentencePieceTokenizer(content, False)
  assert tokenizer.special_ids == {0, 1, 2, 3, 4}
  texts = ["it is [MASK] so", "[CLS] it [SEP]", "<pad>", "[MASK][MASK]"]
  for text in texts:
    assert not {0, 2, 3, 4} & {*tokenizer.encode(text)}, text
    assert not {0, 2, 3, 4} & {*tokenizer.encode_with_offsets(text).ids}
  assert tokenizer.content == content  # The file itself stays as it is.
  path = tmp_path / "tokenizer.model"
  path.write_bytes(content)
  layer = in_graph.SentencePieceTextLayer(str(path), False)
  assert layer.tokenize(texts).to_list() == tokenizer.encode_batch(texts)
  # Without brackets in the vocabulary, "[MASK]" is one unknown piece with the
  # name of a control piece.
  path = train_model(path, _SENTENCES[:-1])
  tokenizer = tokenization.SentencePieceTokenizer(path, False)
  assert tokenizer.tokenize("[MASK]") == ["▁", "[MASK]"]
  for text in texts:
    assert not {0, 2, 3, 4} & {*tokenizer.encode(text)}, text
