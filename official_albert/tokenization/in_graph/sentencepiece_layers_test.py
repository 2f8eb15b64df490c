"""Tests that ids in the graph equal those of Python, also after saving."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import pathlib
import subprocess
import sys
import unicodedata

import pytest
import sentencepiece
import tensorflow as tf

from official_albert import tokenization
from official_albert.testing import toy_vocabulary
from official_albert.tokenization.in_graph import (
  sentencepiece_layers as text_layers,
)

_SHARED = pathlib.Path(__file__).resolve().parents[4] / "shared"
_GOLDEN = _SHARED / "golden" / "tokenization.jsonl"
_RELEASED = _SHARED / "data" / "tokenizer" / "30k-clean.model"
_CORPUS = _SHARED / "data" / "corpus" / "wikipedia_sentences_4mb.txt.gz"
needs_released = pytest.mark.skipif(
  not (_GOLDEN.exists() and _RELEASED.exists()),
  reason="the released vocabulary and its goldens are not on this machine",
)
needs_corpus = pytest.mark.skipif(
  not (_CORPUS.exists() and _RELEASED.exists()),
  reason="the corpus is not on this machine",
)

_SENTENCES = [
  "the mill by the river ground barley, oats and rye.",
  "its wheel turned until 1874, when 1874,5 litres broke the dam.",
  "grain lots (3,3,3) and (3,8), (3,1), (3,2) or (3,c) were sold quickly.",
  "a miller is able, and able millers [of oats] are comfortable - always.",
  'nobody said "just fix the wheel" very loudly.',
]

# All kinds of whitespace, marks, case and digits.
_LINES = [
  "",
  " ",
  "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2003\u2028\u202f\u205f\u3000",
  "\u3000The  Mill\u2009by\x85the\x1criver ",
  "In 1874, lots (3,3,3) and 3, were 1,874,3.",
  "ﬁve ½ ① ² ªº ＡＢＬＥ Ⅷ ﷺ ㍿",
  "Cafe\u0301 ÉCLAIR Žižek Ångström tiếng Việt",
  "İstanbul IĞDIR ı Straße ẞ Ǆ ǅ",
  "ΟΔΥΣΣΕΥΣ ΣΑΣ. Σ Α.Σ ΑΣ\u00adΑ ΑΣ\u0301Α ΑΣ:Α",
  "[MASK] [CLS] <pad> <unk> ▁the",
  "你好，世界 한국어 日本語の हिन्दी עִבְרִית",
  "a\x00B \x00 \x01c\x7f \u200b\ufeff\u00ad 👍🏽👩‍👩‍👧",
]


@pytest.fixture(scope="module")
def model_file(tmp_path_factory) -> pathlib.Path:
  proto = toy_vocabulary.train(
    _SENTENCES,
    97,
    user_defined_symbols='(,),",-,.,–,£,€,able,▁able',
    character_coverage=1.0,
  )
  path = tmp_path_factory.mktemp("vocabulary") / "tiny.model"
  path.write_bytes(proto)
  return path


@pytest.fixture(scope="module")
def python(model_file) -> tokenization.SentencePieceTokenizer:
  return tokenization.SentencePieceTokenizer(model_file)


@pytest.fixture(scope="module")
def text_layer(model_file) -> text_layers.SentencePieceTextLayer:
  return text_layers.SentencePieceTextLayer(model_file.read_bytes())


def _differing(model_file, lower_case: bool, lines: list[str]) -> list[str]:
  python = tokenization.SentencePieceTokenizer(model_file, lower_case)
  graph = text_layers.SentencePieceTextLayer(model_file, lower_case)
  rows = tf.function(graph.tokenize)(tf.constant(lines))
  assert rows.dtype == tf.int32 and rows.shape.rank == 2
  pairs = zip(lines, python.encode_batch(lines), rows.to_list())
  return [line for line, expected, got in pairs if expected != got]


@needs_released
@pytest.mark.parametrize("lower_case", [True, False])
def test_equals_python_on_every_golden_line(lower_case):
  golden = [json.loads(line) for line in _GOLDEN.open(encoding="utf-8")]
  lines = [line["text"] for line in golden]
  assert len(lines) == 420
  assert _differing(_RELEASED, lower_case, lines + _LINES + _SENTENCES) == []


@needs_corpus
@pytest.mark.parametrize("lower_case", [True, False])
def test_equals_python_on_real_text(lower_case):
  with gzip.open(_CORPUS, "rt", encoding="utf-8") as file:
    lines = [line.rstrip("\n") for line in itertools.islice(file, 2000)]
  assert sum(map(len, lines)) > 200_000
  assert _differing(_RELEASED, lower_case, lines) == []


@pytest.mark.parametrize("lower_case", [True, False])
def test_equals_python_on_own_lines(model_file, lower_case):
  raw = sentencepiece.SentencePieceProcessor(model_file=str(model_file))
  # The lines have digits and commas at the start of words and inside.
  assert "▁1874," in raw.encode(_LINES[4].lower(), out_type=str)
  assert "3," in raw.encode(_LINES[4].lower(), out_type=str)
  assert _differing(model_file, lower_case, _LINES + _SENTENCES) == []


@pytest.mark.parametrize("lower_case", [True, False])
def test_normalize_equals_python_on_own_lines(model_file, lower_case):
  # This compares normalized text, because SentencePiece ignores extra spaces.
  layer = text_layers.SentencePieceTextLayer(model_file, lower_case)
  lines = [line.replace("\0", "") for line in _LINES]
  got = layer.normalize(tf.constant(lines)).numpy().tolist()
  assert [text.decode("utf-8") for text in got] == [
    tokenization.normalize_text(line, lower_case) for line in lines
  ]


def _characters(*ranges: tuple[int, int]) -> set[str]:
  return {
    chr(code) for first, last in ranges for code in range(first, last + 1)
  }


def test_every_character_is_normalized_as_in_python(text_layer):
  # Decomposed since Unicode 13, decomposed since 14, lower-cased since 14. The
  # docstring of sentencepiece_layers.py says why they differ.
  expected = _characters(
    (0xAB69, 0xAB69), (0x11938, 0x11938), (0x1FBF0, 0x1FBF9)
  )  # fmt: skip
  if unicodedata.unidata_version == "14.0.0":
    expected |= _characters(
      (0xA7F2, 0xA7F4), (0x10781, 0x10785), (0x10787, 0x107B0),
      (0x107B2, 0x107BA),
    ) | _characters(
      (0x2C2F, 0x2C2F), (0xA7C0, 0xA7C0), (0xA7D0, 0xA7D0), (0xA7D6, 0xA7D6),
      (0xA7D8, 0xA7D8), (0x10570, 0x1057A), (0x1057C, 0x1058A),
      (0x1058C, 0x10592), (0x10594, 0x10595),
    )  # fmt: skip
    assert len(expected) == 111
  # Without surrogates, which are not characters, and without the unassigned
  # and private planes 4 to 13, 15 and 16, to save time.
  codes = [*range(0xD800), *range(0xE000, 0x40000), *range(0xE0000, 0xE0200)]
  texts = [f"Q{chr(code)}q" for code in codes]
  got = text_layer.normalize(tf.constant(texts)).numpy().tolist()
  differing = {
    text[1]
    for text, normalized in zip(texts, got)
    if tokenization.normalize_text(text, True).encode() != normalized
  }
  # NUL becomes U+FFFF; no vocabulary has either.
  assert differing == expected | {"\0"}


def test_invalid_bytes_are_dropped(text_layer):
  texts = tf.constant([b"the \xff mill", b"\xe4\xbdable\xf0\x9f"])
  assert text_layer.normalize(texts).numpy().tolist() == [b"the mill", b"able"]


def test_pieces(text_layer, python):
  last = python.vocab_size - 1
  ids = tf.constant([[4, 0, 1], [last, 13, 2]], tf.int64)
  expected = [[python.id_to_piece(i) for i in row] for row in ids.numpy()]
  got = tf.function(text_layer.pieces)(ids)
  assert [[p.decode() for p in row] for row in got.numpy()] == expected
  assert text_layer.vocab_size == python.vocab_size
  for bad in (-1, python.vocab_size):
    for call in (text_layer.pieces, tf.function(text_layer.pieces)):
      with pytest.raises(tf.errors.InvalidArgumentError, match="outside the v"):
        call(tf.constant([3, bad]))


def test_fill_mask_packs_each_text(text_layer, python):
  texts = [
    "the [MASK] by the River",
    "",
    "[MASK]",
    "  \t",
    "[MASK][MASK] [MASK] oats [MASK]",
    "its wheel [mask]",
  ]
  layer = text_layers.FillMaskTextLayer(text_layer, max_seq_length=64)
  got = layer(tf.constant(texts))
  bodies = [
    [*python.encode("the"), 4, *python.encode("by the river")],
    [],
    [4],
    [],
    [4, 4, 4, *python.encode("oats"), 4],
    python.encode("its wheel [mask]"),
  ]
  rows = [[2, *body, 3] for body in bodies]
  longest = max(map(len, rows))
  zeros = [[0] * (longest - len(row)) for row in rows]
  assert got["input_ids"].numpy().tolist() == [
    row + pad for row, pad in zip(rows, zeros)
  ]
  assert got["input_mask"].numpy().tolist() == [
    [1] * len(row) + pad for row, pad in zip(rows, zeros)
  ]
  assert got["segment_ids"].numpy().tolist() == [[0] * longest] * 6
  last = len(rows[4]) - 2
  first = 1 + len(python.encode("the"))
  assert got["mask_positions"].numpy().tolist() == [
    [first, -1, -1, -1],
    [-1, -1, -1, -1],
    [1, -1, -1, -1],
    [-1, -1, -1, -1],
    [1, 2, 3, last],
    [-1, -1, -1, -1],
  ]
  assert {tensor.dtype for tensor in got.values()} == {tf.int32}


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
  ],
)
def test_text_directly_after_a_mask_continues_its_word(
  text_layer, text, pieces
):
  layer = text_layers.FillMaskTextLayer(text_layer, max_seq_length=13)
  ids = layer(tf.constant([text]))["input_ids"]
  got = [piece.decode() for piece in text_layer.pieces(ids)[0].numpy()]
  assert got == ["[CLS]", *pieces, "[SEP]"]


def test_fill_mask_truncates_at_the_end(text_layer, python):
  layer = text_layers.FillMaskTextLayer(text_layer, max_seq_length=7)
  text = "[MASK] the wheel turned [MASK] " * 30 + "[MASK]"
  got = layer(tf.constant([text, "the [MASK]"]))
  body = [4, *python.encode("the wheel turned")][:5]
  assert got["input_ids"].numpy()[0].tolist() == [2, *body, 3]
  assert got["input_mask"].numpy()[0].tolist() == [1] * 7
  assert got["mask_positions"].numpy()[0].tolist() == [1]
  many = layer(tf.constant(["[MASK]" * 100]))["mask_positions"]
  assert many.numpy().tolist() == [[1, 2, 3, 4, 5]]


def test_fill_mask_of_an_empty_batch(text_layer):
  layer = text_layers.FillMaskTextLayer(text_layer, max_seq_length=7)
  empty = tf.function(layer)(tf.constant([], tf.string))
  assert all(tensor.shape == [0, 0] for tensor in empty.values())
  assert text_layer.tokenize(tf.constant([], tf.string)).to_list() == []
  blank = layer(tf.constant([""]))
  assert blank["input_ids"].numpy().tolist() == [[2, 3]]
  assert blank["mask_positions"].shape == [1, 0]


class _Served(tf.Module):
  """The layers as a model for export."""

  def __init__(self, model: bytes):
    super().__init__()
    self.text = text_layers.SentencePieceTextLayer(model)
    self.fill_mask = text_layers.FillMaskTextLayer(self.text, 11)

  @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
  def pack(self, texts):
    return self.fill_mask(texts)

  @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
  def tokenize(self, texts):
    return self.text.tokenize(texts)

  @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)])
  def pieces(self, ids):
    return self.text.pieces(ids)


_LOAD = """
import sys
sys.modules["official_albert"] = sys.modules["sentencepiece"] = None
import json
import tensorflow as tf
import tensorflow_text
path, lines = sys.argv[1], json.loads(sys.argv[2])
served = tf.saved_model.load(path)
packed = served.signatures["serving_default"](tf.constant(lines))
nothing = served.pack(tf.constant([], tf.string))
pieces = served.pieces(packed["input_ids"]).numpy().tolist()
print("RESULT" + json.dumps({
  "tokens": served.tokenize(tf.constant(lines)).to_list(),
  "packed": {k: v.numpy().tolist() for k, v in packed.items()},
  "nothing": [v.shape.as_list() for v in nothing.values()],
  "pieces": [[p.decode() for p in row] for row in pieces],
}))
"""


def test_saved_model_in_a_clean_process(tmp_path, model_file, python):
  lines = [
    "",
    "\u2003 ",
    "[MASK]",
    "The [MASK] IS able, in 1874, [MASK].",
    "IĞDIR [MASK]" + "[MASK]" * 19,
  ]
  served = _Served(model_file.read_bytes())
  path = tmp_path / "export"
  tf.saved_model.save(served, str(path), signatures=served.pack)
  assert not list((path / "assets").glob("*"))
  # A Turkish locale changes how TensorFlow lower-cases "I".
  environment = dict(os.environ, LC_ALL="tr_TR.UTF-8", LANG="tr_TR.UTF-8")
  environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
  done = subprocess.run(
    [sys.executable, "-c", _LOAD, str(path), json.dumps(lines)],
    cwd=tmp_path,
    env=environment,
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == 0, done.stderr
  # Arguments of a process cannot contain NUL; _LINES tests such characters.
  got = json.loads(done.stdout.split("RESULT")[1])
  assert got["tokens"] == python.encode_batch(lines)
  assert got["packed"] == {
    name: tensor.numpy().tolist()
    for name, tensor in served.pack(tf.constant(lines)).items()
  }
  assert got["packed"]["mask_positions"][4][-1] == 9
  assert got["nothing"] == [[0, 0]] * 4
  assert got["pieces"][2][:3] == ["[CLS]", "[MASK]", "[SEP]"]


def test_model_file_errors(tmp_path, model_file):
  with pytest.raises(FileNotFoundError, match="tools.train_vocabulary"):
    text_layers.SentencePieceTextLayer(str(tmp_path / "none.model"))
  half = model_file.read_bytes()[:-9]
  for model in (b"", b"<pad>\t0\n", half):
    with pytest.raises(ValueError, match="are not a SentencePiece model"):
      text_layers.SentencePieceTextLayer(model)


def test_other_special_pieces_are_refused():
  proto = toy_vocabulary.train(
    _SENTENCES, 60, pad_id=-1, unk_id=0, bos_id=1, eos_id=2, control_symbols=""
  )
  with pytest.raises(ValueError, match="lacks <pad> at id 0"):
    text_layers.SentencePieceTextLayer(proto)


@pytest.mark.parametrize("bad", ["a text", [["a"], ["b"]], [3, 5]])
def test_only_batches_of_strings_are_accepted(text_layer, bad):
  fill_mask = text_layers.FillMaskTextLayer(text_layer)
  for call in (text_layer.tokenize, fill_mask):
    with pytest.raises(ValueError, match="texts must be <string>"):
      call(tf.constant(bad))


def test_too_small_maximum_length_is_refused(text_layer):
  with pytest.raises(ValueError, match="at least 3, got 2"):
    text_layers.FillMaskTextLayer(text_layer, max_seq_length=2)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
