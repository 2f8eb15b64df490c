"""Tests that ids in the graph equal those of Python, also after saving."""

from __future__ import annotations

import functools
import pathlib
import random

import numpy as np
import pytest
import tensorflow as tf
from sentencepiece import sentencepiece_model_pb2

from official_albert import tokenization
from official_albert.testing import toy_vocabulary
from official_albert.tokenization import (
  sentencepiece_tokenizer,
  text_offsets_test,
)
from official_albert.tokenization.in_graph import text_layers

both_kinds = pytest.mark.parametrize("kind", ["sentencepiece", "wordpiece"])

_SENTENCES = [
  "the mill by the river ground barley, oats and rye.",
  "its wheel turned until 1874, when 1874,5 litres broke the dam.",
  "grain lots (3,3,3) and (3,8), (3,1), (3,2) or (3,c) were sold quickly.",
  "a miller is able, and able millers [of oats] are comfortable - always.",
  'nobody said "just fix the wheel" very loudly.',
]
_PIECES = """[PAD] [unused1] [UNK] [CLS] [SEP] [MASK] the un ##aff ##able run
##ning 中 国 人 ##国 。 ， 1922 年 . , [ ] mask ' - cafe ß σας ##σ the x ##x
mill tur ##ns river a ##a b ##b in of and to ##s ##ed ##ing
så sa p ##å ệ 각 ##각 中国 ½ Å ##A ΑΣ""".split()

# All kinds of whitespace, marks, case and digits.
_LINES = [
  "",
  " ",
  "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2003\u2028\u202f\u205f\u3000",
  "\u3000The  Mill\u2009by\x85the\x1criver ",
  "In 1874, lots (3,3,3) and 3, were 1,874,3.",
  "ΟΔΥΣΣΕΥΣ ΣΑΣ. Σ Α.Σ ΑΣ\u00adΑ ΑΣ\u0301Α ΑΣ:Α σας",
  "[MASK] [CLS] <pad> <unk> ▁the ##x",
  "a\x00B \x00 \x01c\x7f \u200b\ufeff\u00ad 👍🏽👩‍👩‍👧",
  "unaffable; 他在1922年。中国人，x国x！",
  "the\ufffd\u200bthe \u00adthe\u3000the\u2028the\u2029x th\x1ce\x85",
  "x" * 200 + " " + "x" * 201 + " " + "国" * 201,
  "så sa SÅ sa\u030a på\u0301 ệ e\u0323\u0302 각 \u1100\u1161\u11a8 한국어",
  "ΑΣ ΆΣ. الْعَرَبِيَّة हिन्दी x" + "y" * 100 + " " + "国" * 101,
  "(3,\U0001f104 (\U0001f104",  # A digit and a comma in one character.
  "(7\x01,7) 7\u0301, \u0301a \u0344b 4\u0301, ﾊﾞ か\u3099ガ",
]


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, pathlib.Path]:
  folder = tmp_path_factory.mktemp("vocabulary")
  vocab = folder / "vocab.txt"
  vocab.write_text("\n".join([*_PIECES, "", ""]), "utf-8")
  symbols = '(,),",-,.,–,£,€,able,▁able'
  model = text_offsets_test.train(
    *(folder / "tiny.model", _SENTENCES),
    vocab_size=97,
    user_defined_symbols=symbols,
  )
  return {"sentencepiece": model, "wordpiece": vocab}


@pytest.fixture(scope="module")
def odd_files(tmp_path_factory) -> dict[str, pathlib.Path]:
  folder = tmp_path_factory.mktemp("vocabulary")
  return {
    "sentencepiece": text_offsets_test.train(folder / "tiny.model"),
    "wordpiece": text_offsets_test.vocab_file(folder / "vocab.txt"),
  }


def make_pair(kind: str, file: pathlib.Path, lower_case: bool = True, **rules):
  """Returns the tokenizer of Python and that of the graph."""
  return tuple(
    classes[kind](str(file), lower_case, **rules)
    for classes in (tokenization.TOKENIZERS, text_layers.TEXT_LAYERS)
  )


def _differing(pair, *batches: list[str]) -> list[tuple]:
  """Returns the texts whose ids, with or without offsets, are not Python's."""
  python, graph = pair

  def both(texts):
    return graph.tokenize(texts), graph.tokenize_with_offsets(texts)

  spec = tf.TensorSpec([None], tf.string)
  both = tf.function(both, [spec], autograph=False)
  found = []
  for texts in batches:
    ids, got = both(tf.constant(texts, tf.string))
    assert all(rows.dtype == tf.int32 for rows in (ids, *got))
    rows = zip(ids.to_list(), zip(*(part.to_list() for part in got)))
    for text, row in zip(texts, rows):
      expected = tuple(python.encode_with_offsets(text))
      if row != (expected[0], expected):
        found.append((text, expected, row))
  return found


# All rules, by the kind of tokenizer.
SETTINGS = [
  ("sentencepiece", {}),
  ("sentencepiece", {"lower_case": False}),
  ("sentencepiece", {"keep_accents": True}),
  ("sentencepiece", {"keep_accents": True, "lower_case": False}),
  ("wordpiece", {}),
  ("wordpiece", {"lower_case": False}),
  ("wordpiece", {"keep_accents": True}),
  ("wordpiece", {"keep_accents": False, "lower_case": False}),
  ("wordpiece", {"split_chinese": False, "max_word_characters": 100}),
]


@pytest.mark.parametrize(("kind", "rules"), SETTINGS)
def test_equals_python(files, odd_files, kind, rules):
  pair = make_pair(kind, files[kind], **rules)
  assert _differing(pair, _LINES + _SENTENCES, []) == []
  if rules:
    default, _ = make_pair(kind, files[kind])
    assert [*map(pair[0].tokenize, _LINES)] != [*map(default.tokenize, _LINES)]
  odd = make_pair(kind, odd_files[kind], **rules)
  assert _differing(odd, toy_vocabulary.odd_texts(250, seed=7)) == []


@pytest.mark.golden
@text_offsets_test.needs_released
@pytest.mark.parametrize("lower_case", [True, False])
def test_equals_python_on_goldens_and_real_text(files, lower_case):
  texts = text_offsets_test.real_texts(2000)
  files = {**files, "sentencepiece": text_offsets_test.RELEASED}
  for kind, file in files.items():
    assert _differing(make_pair(kind, file, lower_case), texts) == []


def _repeats(count: int) -> list[str]:
  """Returns texts of repeated strings, whose splits have equal scores."""
  rng = random.Random(5)
  units = "s o ha ! . .. ** 6 00 lo m aba 国 あ 😂 - =".split() + [" "]
  texts = []
  for _ in range(count):
    some = rng.sample(units, rng.randint(1, 4))
    repeated = rng.choices(some, k=rng.choice([1, 2, 4, 9]))
    texts.append("".join(x * rng.choice([1, 2, 3, 5, 8, 11]) for x in repeated))
  return texts


@pytest.fixture(scope="module")
def repeating_file(tmp_path_factory) -> pathlib.Path:
  path = tmp_path_factory.mktemp("vocabulary") / "tiny.model"
  return text_offsets_test.train(path, _repeats(2000), vocab_size=290)


@pytest.mark.parametrize(
  "file",
  [
    None,
    pytest.param(
      text_offsets_test.RELEASED,
      marks=[pytest.mark.golden, text_offsets_test.needs_released],
    ),
  ],
)
def test_equal_scores_are_decided_alike(repeating_file, file, monkeypatch):
  unknown = "語" * 200
  texts = ["sooooo hahahaha!!!! 66666", *_repeats(700)]
  texts += [unknown + text for text in texts[:99]]

  def count_differing() -> int:
    python, graph = make_pair("sentencepiece", file or repeating_file)
    pairs = zip(python.encode_batch(texts), graph.tokenize(texts).to_list())
    return sum(ours != other for ours, other in pairs)

  assert count_differing() == 0
  monkeypatch.setattr(sentencepiece_tokenizer, "round_scores", lambda _: None)
  assert count_differing() > 10


def test_scores_are_rounded_and_symbols_obeyed(repeating_file, tmp_path):
  content = repeating_file.read_bytes()
  model = sentencepiece_model_pb2.ModelProto.FromString(content)
  kinds = model.SentencePiece
  symbol = next(piece for piece in model.pieces if piece.piece == "haha")
  symbol.type = kinds.USER_DEFINED
  # The model's rules change this one.
  model.pieces.add(piece="\u00bd", type=kinds.USER_DEFINED)
  before = [piece.score for piece in model.pieces]
  sentencepiece_tokenizer.round_scores(model)
  rounded = [piece.score for piece in model.pieces]
  unit = 1 / 2048  # 512 scores of -8 to -16 have a sum above -8192.
  assert -16 < min(rounded) < -8
  assert all(score % unit == 0 for score in rounded)
  assert symbol.score == rounded[5] == -205 * unit  # "haha" and "(": -0.1.
  changes = np.sort(np.abs(np.subtract(rounded, before)))
  assert 0 < changes[-11] <= unit / 2  # All but ten symbols.
  assert symbol.type == kinds.NORMAL
  assert model.pieces[-1].type == kinds.USER_DEFINED
  file = tmp_path / "symbols.model"
  file.write_bytes(model.SerializeToString())
  pair = make_pair("sentencepiece", file, keep_accents=True)
  assert pair[0].tokenize("ahaha\u00bd")[-2:] == ["haha", "\u00bd"]
  assert _differing(pair, ["ahaha\u00bd", *_repeats(50)]) == []


@both_kinds
def test_equals_python_on_each_character(odd_files, kind):
  codes = [*range(0xD800), *range(0xE000, 0x33480), *range(0xE0000, 0xE0200)]
  texts = [f"a{chr(c)} {chr(c)}Σz{chr(c)}" for c in [*codes, 0xFFFFE, 0x10FFFF]]
  # Letters that nothing changes are alike.
  texts = [text for i, text in enumerate(texts) if i % 97 == 0 or i < 0x3000]
  assert _differing(make_pair(kind, odd_files[kind]), texts) == []


@both_kinds
def test_invalid_bytes_are_not_counted(odd_files, kind):
  python, layer = make_pair(kind, odd_files[kind])
  rng = random.Random(3)
  alphabet = [b"a", b"9,", b" ", "é".encode(), "日".encode(), "🙂".encode()]
  alphabet += [b"\xff", b"\xe6\x97", b"\xf0\x9f", b"\x80", b"\xed\xa0\x80"]
  alphabet += [b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\xef\xbb\xbf"]
  texts = [
    b"".join(rng.choices(alphabet, k=rng.randrange(9))) for _ in range(700)
  ]
  got = layer.tokenize_with_offsets(tf.constant(texts))
  for text, *row in zip(texts, *(part.to_list() for part in got)):
    expected = python.encode_with_offsets(text.decode("utf-8", "ignore"))
    assert tuple(row) == expected, text


@pytest.mark.parametrize("name", text_offsets_test.OTHER_OPTIONS)
def test_models_with_other_options(tmp_path, name):
  options = text_offsets_test.OTHER_OPTIONS[name]
  file = text_offsets_test.train(tmp_path / "other", **options)
  lines = _LINES + _SENTENCES + toy_vocabulary.odd_texts(20, seed=5)
  assert _differing(make_pair("sentencepiece", file), lines) == []


def test_models_that_make_characters_longer(tmp_path):
  rules = tmp_path / "rules.tsv"
  rules.write_text("DF\t73 73\n")  # "ß" to "ss".
  file = text_offsets_test.train(tmp_path / "a", normalization_rule_tsv=rules)
  texts = ["a\u00df \u1e9e.", "\u00df", "x\u00df\u0301"]
  assert _differing(make_pair("sentencepiece", file), texts) == []
  file = text_offsets_test.train(tmp_path / "b", byte_fallback=True)
  python, layer = make_pair("sentencepiece", file)
  for call, text in (
    (python.encode_with_offsets, "a"),
    (layer.tokenize_with_offsets, ["a"]),
  ):
    with pytest.raises(ValueError, match="byte_fallback"):
      call(text)


@both_kinds
def test_pieces_and_special_ids(files, kind):
  python, graph = make_pair(kind, files[kind])
  for name in "vocab_size pad_id unk_id cls_id sep_id mask_id".split():
    assert getattr(graph, name) == getattr(python, name)
  ids = tf.constant([[4, 0, 1], [python.vocab_size - 1, 13, 2]], tf.int64)
  expected = [[python.id_to_piece(i) for i in row] for row in ids.numpy()]
  got = tf.function(graph.pieces)(ids)
  assert [[p.decode() for p in row] for row in got.numpy()] == expected
  for bad in (-1, python.vocab_size):
    for call in (graph.pieces, tf.function(graph.pieces)):
      with pytest.raises(tf.errors.InvalidArgumentError):
        call(tf.constant([3, bad]))


def _assert_same(packed, inputs) -> None:
  assert list(inputs) == list(packed)
  for name, value in inputs.items():
    assert packed[name].dtype == value.dtype == np.int32
    np.testing.assert_array_equal(packed[name], value, name)


def _assert_packed(packed, rows) -> None:
  """Compares with rows of ids and segments, padded with 0 as in records."""
  ids, segments = zip(*rows)
  mask = [[1] * len(row) for row in ids]
  columns = {"input_ids": ids, "input_mask": mask, "segment_ids": segments}
  for name, column in columns.items():
    columns[name] = tf.ragged.constant(column, np.int32).to_tensor()
  _assert_same(packed, columns)


@both_kinds
def test_layers_outlive_a_new_seed_and_another_layer(files, kind):
  layer = text_layers.TEXT_LAYERS[kind](files[kind])
  call = tf.function(lambda x: layer.tokenize(x))
  texts = tf.constant(["a cat", "19 mats"])
  expected = layer.tokenize(texts).to_list()
  assert call(texts).to_list() == expected
  tf.keras.utils.set_random_seed(3)
  assert call(texts).to_list() == layer.tokenize(texts).to_list() == expected
  other = text_layers.TEXT_LAYERS[kind](files[kind])
  assert other.tokenize(texts).to_list() == expected
  del other
  assert layer.tokenize(texts).to_list() == expected


@pytest.mark.parametrize("longest", [5, 6, 13])
def test_packing_every_pair_of_lengths_equals_python(longest):
  lengths = [(a, b) for a in range(12) for b in range(11)]
  rng = np.random.default_rng(longest)
  firsts = [rng.integers(5, 90, a).tolist() for a, _ in lengths]
  seconds = [rng.integers(5, 90, b).tolist() for _, b in lengths]
  pack = tf.function(text_layers.pack_pair)
  pair = [tf.ragged.constant(x, tf.int32) for x in (firsts, seconds)]
  one, two = (
    [tokenization.pack_pair(a, b, longest, 2, 3) for a, b in zip(firsts, bs)]
    for bs in ([None] * len(firsts), seconds)
  )
  _assert_packed(pack(*pair, longest, 2, 3), two)
  _assert_packed(pack(pair[0], None, longest, 2, 3), one)


@both_kinds
def test_packed_texts_equal_a_call_of_the_tokenizer(files, kind):
  python, graph = make_pair(kind, files[kind])
  pairs = [*zip(_LINES, _SENTENCES + _LINES), *zip(_SENTENCES, _LINES)]
  firsts, seconds = map(list, zip(*pairs))
  layer = functools.partial(graph.pack, 19)
  packed = tf.function(layer, autograph=False)(
    tf.constant(firsts), tf.constant(seconds)
  )
  _assert_same(packed, python(firsts, seconds, 19))
  none = tf.zeros([0], tf.string)
  _assert_same(layer(none), python([]))
  _assert_same(layer(none, none), python([], []))
  # Bytes that are not UTF-8 are dropped.
  damaged = [b"the \xff mill", b"\xe4"]
  _assert_same(layer(tf.constant(damaged)), python(damaged))


@both_kinds
def test_the_first_ids_of_long_texts(files, kind):
  python, graph = make_pair(kind, files[kind])
  lines = [" ".join(_SENTENCES + _LINES) * 9, *_LINES, *_SENTENCES]
  lines.append(" \u3000" * 20_000 + "the mill.")
  if kind == "wordpiece":
    lines += ["x" * 33_000 + " the mill.", "\u200b " * 9000 + "the mill."]
  expected = python.encode_batch(lines)
  tokenize = tf.function(graph.tokenize, autograph=False)
  for most in (1, 501):
    rows = tokenize(tf.constant(lines), most).to_list()
    for row, ids in zip(rows, expected, strict=True):
      assert row[:most] == ids[:most]
      # Not far more of them.
      assert row == ids[: len(row)] and len(row) <= 32_768
  assert graph.tokenize(tf.constant(lines)).to_list() == expected
  dots = graph.tokenize(tf.constant(["." * 10**6]), 7)
  assert dots.row_lengths()[0] == {"wordpiece": 7}.get(kind, 32_769)
  fill_mask = functools.partial(graph.pack_masked, 9)
  masked = [" " * 40_000 + "[MASK] the", "[MASK]" + "\t" * 40_000 + "the"]
  masked += ["[MASK]" * 40_000, "the" + "[MASK]" * 40_000]
  brief = ["[MASK] the", "[MASK] the", "[MASK]" * 9, "the" + "[MASK]" * 9]
  _assert_same(fill_mask(tf.constant(brief)), fill_mask(tf.constant(masked)))


def test_fill_mask_packs_each_text(files):
  python, graph = make_pair("sentencepiece", files["sentencepiece"])
  bodies = {
    "the [MASK] by the River": [
      *python.encode("the"), 4, *python.encode("by the river")
    ],
    "": [],
    "[MASK]": [4],
    "  \t": [],
    "[MASK][MASK] [MASK] oats [MASK]": [4, 4, 4, *python.encode("oats"), 4],
    "its wheel [mask]": python.encode("its wheel [mask]"),
  }  # fmt: skip
  layer = functools.partial(graph.pack_masked, 64)
  got = layer(tf.constant(list(bodies)))
  positions = got.pop("mask_positions")
  rows = [[2, *body, 3] for body in bodies.values()]
  _assert_packed(got, [(row, [0] * len(row)) for row in rows])
  expected = [[i for i, id in enumerate(row) if id == 4] for row in rows]
  assert [*map(len, expected)] == [1, 0, 1, 0, 4, 0]
  assert positions.dtype == tf.int32
  assert positions.numpy().tolist() == [
    columns + [-1] * (4 - len(columns)) for columns in expected
  ]
  # A longer text is cut off at the end.
  short = functools.partial(graph.pack_masked, 7)
  got = short(["[MASK] the wheel turned " * 30 + "[MASK]", "[MASK]" * 100])
  body = [4, *python.encode("the wheel turned")][:5]
  assert got["input_ids"].numpy().tolist() == [[2, *body, 3], [2, *[4] * 5, 3]]
  assert got["mask_positions"].numpy()[0].tolist() == [1, -1, -1, -1, -1]
  empty = tf.function(layer)(tf.constant([], tf.string))
  assert empty["input_ids"].shape == [0, 2]
  assert empty["mask_positions"].shape == [0, 0]


@pytest.mark.parametrize(
  "text,pieces",
  [
    ("[MASK].", ["[MASK]", "."]),
    ("[MASK] .", ["[MASK]", "▁", "."]),
    ("[MASK]\u3000.", ["[MASK]", "▁", "."]),
    (".[MASK]", ["▁", ".", "[MASK]"]),
    ("[MASK]able", ["[MASK]", "able"]),
    ("[MASK] able", ["[MASK]", "▁able"]),
    ("[MASK][MASK], [MASK]", ["[MASK]", "[MASK]", ",", "[MASK]"]),
    # The vocabulary has no "oats" inside a word, so the piece keeps its mark.
    ("[MASK]oats", ["[MASK]", "▁oats"]),
    # In WordPiece, text after a mask is a new word.
    ("中[MASK]人。", ["中", "[MASK]", "人", "。"]),
    ("the [MASK]the", ["the", "[MASK]", "the"]),
  ],
)
def test_text_directly_after_a_mask(files, text, pieces):
  kind = "wordpiece" if pieces[0] in ("the", "中") else "sentencepiece"
  _, graph = make_pair(kind, files[kind])
  layer = functools.partial(graph.pack_masked, 13)
  ids = layer(tf.constant([text]))["input_ids"]
  got = [piece.decode() for piece in graph.pieces(ids)[0].numpy()]
  assert got == ["[CLS]", *pieces, "[SEP]"]


@both_kinds
def test_wrong_files_and_texts_are_refused(tmp_path, files, kind):
  with pytest.raises(FileNotFoundError, match="there is no "):
    text_layers.TEXT_LAYERS[kind](str(tmp_path / "none"), True)
  (tmp_path / "file").write_text("[PAD]\nthe\n")
  with pytest.raises(ValueError, match="not a SentencePiece|lacks the piece"):
    text_layers.TEXT_LAYERS[kind](str(tmp_path / "file"), True)
  _, layer = make_pair(kind, files[kind])
  fill_mask = functools.partial(layer.pack_masked, 5)
  for bad in ("a text", [["a"], ["b"]], [3, 5]):
    for call in (layer.tokenize, fill_mask):
      with pytest.raises(ValueError, match=r"texts must be <string>\[B\]"):
        call(bad)
