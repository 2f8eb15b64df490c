"""Tests of tokenizer files.

tokenizer.json is run by the package `tokenizers`, which transformers runs it
with, where that is installed.
"""

from __future__ import annotations

import gzip
import itertools
import json
import pathlib

import pytest
from sentencepiece import sentencepiece_model_pb2

from official_albert import tokenization
from official_albert.checkpoints import checkpoint_files, hf_tokenizer
from official_albert.testing import toy_vocabulary

_SHARED = pathlib.Path(__file__).resolve().parents[3] / "shared"
_MODEL = _SHARED / "data" / "tokenizer" / "30k-clean.model"
_LINES = [
  "Well-known -- e.g. \"3.14\", ``quoted'' and 'single' (see below)...",
  ".hidden .. ... file.txt --x -5 1922, 9,5 then 12,345 in 2005, (9, 10)",
  " \t Two  spaces\u3000here\x0b and\u200bthere\u00a0\n",
  "naïve façade, Ångström, Straße, İstanbul, ﬁne ½ ② ™ x²",
  "\u0301 accent first \x01 and e\u0301 a\u0327 within \x7f",
  "Ο ΟΔΥΣΣΕΑΣ και ο Σ. ΣΑΣ'Σ, ΑΣ\u0301 ΤΕΛΟΣ",
  "한국어 문장 각각, 日本語のガギ ﾊﾟﾋﾟ、「東京」。 中文 1922年",
  "Быстрый ЁЖ, العربيّة أإ, अर्थ क्षत्रिय, ไทยกำลังดี",
  "\U0001f600 \U0001f468\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f",
  "\U0001f1e9\U0001f1ea!",
  "– — … · « » „ “ ‘ ’ ” £5 €6 ₤ $7 100%",
  "",
  " ",
]
_VOCABULARY = [
  *("[PAD] [UNK] [CLS] [SEP] [MASK] 1922 年 東 京 日 本 中 文".split()),
  *"abcdefghijklmnopqrstuvwxyzABEΣσς0123456789.,-'\"()…「」。“”",
  *(f"##{char}" for char in "abcdefghijklmnopqrstuvwxyz0123456789σς"),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
  """A vocabulary for the lines, with pieces of all kinds."""
  lines = [
    tokenization.normalize_text(line, lower_case)
    for line in [*_LINES, "in 1922, and 2005, or 1922, 12,345 were 2005,"]
    for lower_case in (True, False)
    for _ in range(20)
  ]
  proto = sentencepiece_model_pb2.ModelProto()
  proto.ParseFromString(
    toy_vocabulary.train(
      lines,
      420,
      user_defined_symbols="(,),-,.,–",
      character_coverage=1.0,
      split_by_number=False,
    )
  )
  # docs/checkpoints.md lists the exception of such pieces within a word.
  commas = [
    p for p in proto.pieces if tokenization.ends_in_digit_comma(p.piece)
  ]
  for piece in commas:
    if not piece.piece.startswith(tokenization.WORD_START):
      piece.type = proto.SentencePiece.UNUSED
  assert len({piece.type for piece in commas}) == 2
  path = tmp_path_factory.mktemp("model") / "tokenizer.model"
  path.write_bytes(proto.SerializeToString())
  return path


def _written(folder, path, kind, lower_case):
  """Writes the folder and returns its tokenizer.json."""
  folder.mkdir()
  file = checkpoint_files.TokenizerFile(str(path), kind, lower_case)
  assert not hf_tokenizer.write(file, str(folder), 33)
  return json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))


def _check_ids(folder, ours, texts):
  fast = pytest.importorskip("tokenizers").Tokenizer.from_file(
    str(folder / "tokenizer.json")
  )
  theirs = fast.encode_batch(texts, add_special_tokens=False)
  differing = [
    (text, ours.tokenize(text), encoded.tokens)
    for text, encoded in zip(texts, theirs)
    if encoded.ids != ours.encode(text)
  ]
  assert not differing


def _wild(letters):
  return toy_vocabulary.odd_texts(letters, 2000, 5, lambda rng: "")


@pytest.mark.parametrize("lower_case", [True, False])
def test_sentencepiece_gives_the_same_ids(lower_case, model, tmp_path):
  folder = tmp_path / "out"
  _written(folder, model, "sentencepiece", lower_case)
  ours = tokenization.SentencePieceTokenizer(str(model), lower_case)
  letters = [*"".join(_LINES), *"   \u0301\u200b", " 1922, ", " 2005, ", "--"]
  texts = [*_LINES, *_wild(letters)]
  assert len(set(texts)) > 1800
  _check_ids(folder, ours, texts)


def test_special_pieces_in_text(model, tmp_path):
  values = _written(tmp_path / "out", model, "sentencepiece", True)
  special = [token["content"] for token in values["added_tokens"]]
  assert special == list(tokenization.SPECIAL_PIECES)
  tokenizers = pytest.importorskip("tokenizers")
  fast = tokenizers.Tokenizer.from_str(json.dumps(values))
  ours = tokenization.SentencePieceTokenizer(str(model))
  pair = fast.encode("see below", " files")
  first, second = ours.encode("see below"), ours.encode("files")
  assert pair.ids == [2, *first, 3, *second, 3]
  assert pair.type_ids == [0] * (len(first) + 2) + [1] * (len(second) + 1)
  # Text that touches the mask does not start a word.
  ids = fast.encode("see  [MASK].", add_special_tokens=False).ids
  assert ids == [*ours.encode("see"), 4, ours.piece_to_id(".")]
  ids = fast.encode("[MASK] see", add_special_tokens=False).ids
  assert ids == [4, *ours.encode("see")]


def test_pieces_that_are_never_used_are_renamed(tmp_path):
  kinds = sentencepiece_model_pb2.ModelProto.SentencePiece
  proto = sentencepiece_model_pb2.ModelProto()
  proto.ParseFromString(toy_vocabulary.numbers(6))
  proto.pieces.add(piece="\u25817,", type=kinds.NORMAL, score=-3.0)
  proto.pieces.add(piece="--", type=kinds.USER_DEFINED, score=0.0)
  proto.pieces.add(piece="gone", type=kinds.UNUSED, score=-4.0)
  proto.pieces[5].score = -2.5
  proto.normalizer_spec.add_dummy_prefix = False
  path = tmp_path / "tokenizer.model"
  path.write_bytes(proto.SerializeToString())
  values = _written(tmp_path / "out", path, "sentencepiece", True)
  # A user-defined piece gets its length times the best score, less 0.1.
  expected = {"\u25815": -2.5, "\u25817, ": -3.0, "--": -5.1, "gone ": -4.0}
  assert dict(values["model"]["vocab"][5:]) == pytest.approx(expected)
  assert values["pre_tokenizer"]["prepend_scheme"] == "never"


def test_models_without_a_tokenizer_json(tmp_path):
  proto = sentencepiece_model_pb2.ModelProto()
  proto.ParseFromString(toy_vocabulary.numbers(7))
  proto.trainer_spec.model_type = proto.trainer_spec.BPE
  path, folder = tmp_path / "source", tmp_path / "out"
  path.write_bytes(proto.SerializeToString())
  file = checkpoint_files.TokenizerFile(str(path), "sentencepiece")
  folder.mkdir()
  (note,) = hf_tokenizer.write(file, str(folder), 33)
  assert "not a unigram model" in note
  assert not (folder / "tokenizer.json").exists()
  settings = json.loads((folder / "tokenizer_config.json").read_text())
  assert settings["tokenizer_class"] == "AlbertTokenizer"


@pytest.mark.parametrize("lower_case", [True, False])
def test_wordpiece_gives_the_same_ids(lower_case, tmp_path):
  path = tmp_path / "vocab.txt"
  # The second "a" has no id of its own.
  path.write_text("\n".join([*_VOCABULARY, "a", "\u570b"]), encoding="utf-8")
  values = _written(tmp_path / "out", path, "wordpiece", lower_case)
  ours = tokenization.WordPieceTokenizer(str(path), lower_case)
  assert values["model"]["vocab"]["\u570b"] == ours.vocab_size - 1
  letters = "abzABEΣ019.,-'\"()…「」。“”年東京é\u0301\u200b\u00ad\ufeff \t\n"
  texts = [*_LINES, "a" * 200, "a" * 201, *_wild(letters)]
  _check_ids(tmp_path / "out", ours, texts)


@pytest.mark.skipif(not _MODEL.exists(), reason="needs the released vocabulary")
@pytest.mark.parametrize("lower_case", [True, False])
def test_the_released_vocabulary_gives_the_same_ids(lower_case, tmp_path):
  _written(tmp_path / "out", _MODEL, "sentencepiece", lower_case)
  golden = (_SHARED / "golden/tokenization.jsonl").read_text(encoding="utf-8")
  texts = [json.loads(line)["text"] for line in golden.strip().split("\n")]
  assert len(texts) == 420
  texts.remove("[CLS] [SEP] [MASK] <pad> <unk>")  # Special pieces there.
  corpus = _SHARED / "data" / "corpus" / "wikipedia_sentences_4mb.txt.gz"
  with gzip.open(corpus, "rt", encoding="utf-8") as file:
    texts += itertools.islice(file, 1000)
  ours = tokenization.SentencePieceTokenizer(str(_MODEL), lower_case)
  _check_ids(tmp_path / "out", ours, texts)


@pytest.mark.parametrize(
  "kind, name, pad, content",
  [
    ("sentencepiece", "spiece.model", "<pad>", toy_vocabulary.numbers(7)),
    ("wordpiece", "vocab.txt", "[PAD]", "\n".join(_VOCABULARY).encode()),
  ],
)
def test_a_written_tokenizer_is_read(kind, name, pad, content, tmp_path):
  path, folder = tmp_path / "source", tmp_path / "out"
  path.write_bytes(content)
  _written(folder, path, kind, False)
  settings = json.loads((folder / "tokenizer_config.json").read_text())
  assert settings["model_max_length"] == 33 and settings["pad_token"] == pad
  # Other classes of transformers 5 have their own normalization.
  assert settings["tokenizer_class"] == "PreTrainedTokenizerFast"
  assert "token_type_ids" in settings["model_input_names"]
  assert settings["sep_token"] == "[SEP]"
  notes = []
  again = hf_tokenizer.read(str(folder), notes)
  assert (again.kind, again.lower_case) == (kind, False)
  assert again.path == str(folder / name) and not notes
  assert (folder / name).read_bytes() == content


def test_unsupported_settings_are_noted(tmp_path):
  notes = []
  assert hf_tokenizer.read(str(tmp_path), notes) is None and not notes
  (tmp_path / "tokenizer.json").write_text("{}")
  assert hf_tokenizer.read(str(tmp_path), notes) is None
  assert "tokenizer.json is not used" in notes[0]
  (tmp_path / "spiece.model").write_bytes(b"x")
  settings = tmp_path / "tokenizer_config.json"
  settings.write_text('{"keep_accents": true}')
  assert hf_tokenizer.read(str(tmp_path), notes).lower_case
  assert "keep_accents True" in notes[1]
  settings.write_text("[1]")
  with pytest.raises(ValueError, match="config.json is .*must be an object"):
    hf_tokenizer.read(str(tmp_path), notes)
