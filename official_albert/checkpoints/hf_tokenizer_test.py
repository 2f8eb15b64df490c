"""Tests of tokenizer files.

tokenizer.json is run by the package `tokenizers`, which transformers runs it
with, where that is installed.
"""

from __future__ import annotations

import base64
import gzip
import itertools
import json
import pathlib
import re
import unicodedata

import pytest
from sentencepiece import sentencepiece_model_pb2

from official_albert import tokenization
from official_albert.checkpoints import (
  hf_tokenizer,
  hf_tokenizer_reader,
  tokenizer_file,
)
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


def _written(folder, path, kind, *rules):
  """Writes the folder, reads it again, and returns its tokenizer.json."""
  folder.mkdir()
  rules = tokenization.TextRules(*rules)
  file = tokenizer_file.TokenizerFile(str(path), kind, rules)
  assert not hf_tokenizer.write(file, str(folder), 33)
  again, notes = _read(folder)
  assert (again.kind, again.rules, again.problem) == (kind, rules, "")
  assert again.read() == path.read_bytes() and not notes
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
  return toy_vocabulary.odd_texts(letters, 2000, 5)


@pytest.mark.parametrize("keep_accents", [None, True])
@pytest.mark.parametrize("lower_case", [True, False])
def test_sentencepiece_gives_the_same_ids(
  lower_case, keep_accents, model, tmp_path
):
  folder = tmp_path / "out"
  _written(folder, model, "sentencepiece", lower_case, keep_accents)
  ours = tokenization.SentencePieceTokenizer(
    str(model), lower_case, keep_accents=keep_accents
  )
  letters = [*"".join(_LINES), *"   \u0301\u200b", " 1922, ", " 2005, ", "--"]
  texts = [*_LINES, *_wild(letters)]
  # SentencePiece does not compose marks with characters that NFKC makes longer.
  texts = [x for x in texts if not re.search("[\u2122\xbd\ufb01]\u0301", x)]
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
  # It drops no character, if the rules do not either.
  _written(tmp_path / "kept", path, "sentencepiece", True, True)
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
  file = tokenizer_file.TokenizerFile(str(path), "sentencepiece")
  folder.mkdir()
  (note,) = hf_tokenizer.write(file, str(folder), 33)
  assert "not a unigram model" in note
  assert not (folder / "tokenizer.json").exists()
  settings = json.loads((folder / "tokenizer_config.json").read_text())
  assert settings["tokenizer_class"] == "AlbertTokenizer"


@pytest.mark.parametrize(
  "rules", [(True,), (False,), (True, True, False, 100), (False, False)]
)
def test_wordpiece_gives_the_same_ids(rules, tmp_path):
  path = tmp_path / "vocab.txt"
  # The second "a" counts.
  path.write_text("\n".join([*_VOCABULARY, "a", "\u570b"]), encoding="utf-8")
  values = _written(tmp_path / "out", path, "wordpiece", *rules)
  rules = tokenization.TextRules(*rules)
  ours = tokenization.WordPieceTokenizer(str(path), **rules.to_dict())
  assert values["model"]["vocab"]["\u570b"] == ours.vocab_size - 1
  letters = "abzABEΣ019.,-'\"()…「」。“”年東京é\u0301\u200b\u00ad\ufeff \t\n"
  texts = [*_LINES, "a" * 100, "a" * 101, "a" * 200, "a" * 201]
  texts += _wild(letters)
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
  "kind, pad, content",
  [
    ("sentencepiece", "<pad>", toy_vocabulary.numbers(7)),
    ("wordpiece", "[PAD]", "\n".join(_VOCABULARY).encode()),
  ],
)
def test_written_settings(kind, pad, content, tmp_path):
  (tmp_path / "source").write_bytes(content)
  _written(tmp_path / "out", tmp_path / "source", kind, False)
  settings = json.loads((tmp_path / "out/tokenizer_config.json").read_text())
  assert settings["model_max_length"] == 33 and settings["pad_token"] == pad
  # Other classes of transformers 5 have their own normalization.
  assert settings["tokenizer_class"] == "PreTrainedTokenizerFast"
  assert "token_type_ids" in settings["model_input_names"]
  assert settings["sep_token"] == "[SEP]"


def _config(**settings):
  return {"tokenizer_config": settings}


def _fast(values, **changes):
  return {"tokenizer": {**values, **changes}}


def _save(folder, **contents):
  """Writes a folder; JSON values are for NAME.json."""
  folder.mkdir(parents=True, exist_ok=True)
  for name, content in contents.items():
    if isinstance(content, bytes):
      (folder / name.replace("_dot_", ".")).write_bytes(content)
    else:
      (folder / f"{name}.json").write_text(json.dumps(content), "utf-8")
  return folder


def _read(folder):
  notes = []
  return hf_tokenizer_reader.read(str(folder), notes), notes


_TEXT_STEPS = {
  "quotes": [
    {"type": "Replace", "pattern": {"String": mark}, "content": '"'}
    for mark in ("``", "''")
  ],
  "accents": [{"type": "NFKD"}, {"type": "StripAccents"}],
  "case": [{"type": "Lowercase"}],
}
_SPACES = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}


def _albert_json(folder, path, *without):
  """Returns the tokenizer.json that transformers makes from spiece.model."""
  values = _written(folder, path, "sentencepiece")
  model = sentencepiece_model_pb2.ModelProto.FromString(path.read_bytes())
  charsmap = base64.b64encode(model.normalizer_spec.precompiled_charsmap)
  steps = [x for n in _TEXT_STEPS if n not in without for x in _TEXT_STEPS[n]]
  rules = {"type": "Precompiled", "precompiled_charsmap": charsmap.decode()}
  values["normalizer"]["normalizers"] = [*steps, rules, _SPACES]
  values["pre_tokenizer"].update(prepend_scheme="always", split=True)
  values["post_processor"]["special_tokens"] = {
    x: {"id": x, "ids": [i], "tokens": [x]}
    for i, x in enumerate(tokenization.SPECIAL_PIECES)
  }
  values["model"]["vocab"] = [[x.piece, x.score] for x in model.pieces]
  return values


def _bert_json(folder, **rules):
  """Returns the tokenizer.json that transformers makes from vocab.txt."""
  path = folder.with_suffix(".txt")
  path.write_text("\n".join(_VOCABULARY), "utf-8")
  values = _written(folder, path, "wordpiece")
  values["normalizer"] = {
    **values["normalizer"]["normalizers"][-1],
    "strip_accents": None,
    **rules,
  }
  pair = {"sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}
  values["post_processor"] = {"type": "BertProcessing", **pair}
  values["model"]["max_input_chars_per_word"] = 100
  return values


_ACCENTED = [
  "s\u00e5 S\u00c5 caf\u00e9 \uac01\uac01 \u6771\u4eac a\u6771b",
  "a" * 101,
]


@pytest.mark.parametrize(
  "rules",
  [
    {},
    {"strip_accents": False},
    {"lowercase": False},
    {"lowercase": False, "strip_accents": True},
    {"handle_chinese_chars": False},
  ],
)
@pytest.mark.parametrize("only", [True, False])
def test_the_rules_of_a_wordpiece_folder(only, rules, tmp_path):
  # With tokenizer.json alone, or with vocab.txt and the settings alone.
  fast = _bert_json(tmp_path / "out", **rules)
  names = {"lowercase": "do_lower_case", "strip_accents": "strip_accents"}
  names["handle_chinese_chars"] = "tokenize_chinese_chars"
  files = {"tokenizer": fast}
  if not only:
    settings = {names[name]: value for name, value in rules.items()}
    settings["tokenizer_class"] = "BertTokenizer"
    lines = "\r\n".join(_VOCABULARY).encode()
    files = {"vocab_dot_txt": lines, "tokenizer_config": settings}
  file, _ = _read(_save(tmp_path / "in", **files))
  (tmp_path / "fast").mkdir()
  (tmp_path / "fast" / "tokenizer.json").write_text(json.dumps(fast))
  letters = (
    "abzABE019.,-'\"()\u2026\u6771\u4eac\u00e9\u00c5\u0301\uac01\u200b \t"
  )
  texts = [*_ACCENTED, *_wild(letters)]
  _check_ids(tmp_path / "fast", file.open(), texts)
  layer = file.make_layer()
  expected = file.open().encode_batch(_ACCENTED)
  assert layer.tokenize(_ACCENTED).to_list() == expected


@pytest.mark.parametrize("without", [(), ("case",), ("accents",)])
def test_a_unigram_tokenizer_json_alone_is_read(without, model, tmp_path):
  fast = _albert_json(tmp_path / "out", model, *without)
  folder = _save(tmp_path / "in", tokenizer=fast)
  file, notes = _read(folder)
  assert "tokenizer.json" in notes[0]
  assert "``" in notes[1] and "at the end" in notes[1] and "vowel" in notes[1]
  ours = file.open()
  assert ours.lower_case == ("case" not in without)
  assert ours.keep_accents == ("accents" in without)
  letters = [*"".join(_LINES).replace("`", ""), *"  ----"]
  letters = [x for x in letters if not ord(x) > 0xA00 or x == "\u65e5"]
  letters = [
    x
    for x in letters
    if unicodedata.category(x)[0] in "LNPSZ" and x not in ",'\u03a3"
  ]
  _check_ids(folder, ours, [text.strip() for text in _wild(letters)])
  beside = _save(tmp_path / "in", spiece_dot_model=model.read_bytes())
  again, _ = _read(beside)
  assert again.rules == file.rules and not again.problem
  assert again.open().tokenize(_LINES[4]) == ours.tokenize(_LINES[4])


def test_settings_that_are_not_supported_are_named(model, tmp_path):
  spiece, vocab = model.read_bytes(), "\n".join(_VOCABULARY).encode()
  bert = _bert_json(tmp_path / "bert")
  albert = _albert_json(tmp_path / "albert", model)
  decoder = {"added_tokens_decoder": {"60": {"content": "<user>"}}}
  bpe = {**bert, "model": {**bert["model"], "type": "BPE"}}
  nfkc = {**albert, "normalizer": {"type": "NFKC"}}
  added = albert["added_tokens"] + [{"id": 420, "content": "<url>"}]
  split = {**bert, "pre_tokenizer": {"type": "Whitespace"}}
  roberta = {**bert, "post_processor": {"type": "RobertaProcessing"}}
  fewer = {**albert, "model": {**albert["model"], "vocab": [["a", 0.0]]}}
  scores = [[piece, score - 0.1] for piece, score in albert["model"]["vocab"]]
  scored = {**albert, "model": {**albert["model"], "vocab": scores}}
  more = {**bert["model"]["vocab"], "new": len(_VOCABULARY)}
  steps = [*_TEXT_STEPS["accents"], _SPACES]
  plain = {**albert, "normalizer": {"type": "Sequence", "normalizers": steps}}
  space = {**albert["pre_tokenizer"], "prepend_scheme": "never"}
  left = {"direction": "Left", "max_length": 8}
  bare = {**albert, "post_processor": None}
  twice = json.loads(json.dumps(albert))
  twice["post_processor"]["single"] *= 2
  other_ids = json.loads(json.dumps(albert))
  other_ids["post_processor"]["special_tokens"]["[CLS]"]["ids"] = [3]
  bert_ids = json.loads(json.dumps(bert))
  bert_ids["post_processor"]["cls"] = ["[CLS]", 1]
  underscore = {**albert["pre_tokenizer"], "replacement": "_"}
  quotes = json.loads(json.dumps(albert))
  quotes["normalizer"]["normalizers"][0]["content"] = "x"
  letters = json.loads(json.dumps(albert))
  letters["normalizer"]["normalizers"].append(
    {"type": "Replace", "pattern": {"Regex": r"[\x{61}]"}, "content": "b"}
  )
  general = {"tokenizer_class": "PreTrainedTokenizerFast"}
  cases = [
    ("padding_side", vocab, _config(padding_side="left")),
    ("truncation_side", spiece, _config(truncation_side="left")),
    ("'Left'", vocab, _fast(bert, truncation=left)),
    ("'Left'", spiece, _fast(albert, padding=left)),
    ("bos_token", spiece, _config(bos_token="<s>")),
    ("another score", spiece, _fast(scored)),
    ("precompiled_charsmap", spiece, _fast(plain)),
    ("add_dummy_prefix", spiece, _fast(albert, pre_tokenizer=space)),
    ("replacement '_'", b"", _fast(albert, pre_tokenizer=underscore)),
    ("'``'", spiece, _fast(quotes)),
    ("x{61}", b"", _fast(letters)),
    ("post_processor.single", spiece, _fast(twice)),
    ("special_tokens.[CLS]", spiece, _fast(other_ids)),
    ("post_processor.cls ['[CLS]', 1]", vocab, _fast(bert_ids)),
    (
      "no post_processor",
      spiece,
      {"tokenizer": bare, "tokenizer_config": general},
    ),
    ("add_prefix_space", spiece, _config(add_prefix_space=False)),
    (
      "other pieces than vocab.txt",
      vocab,
      {"tokenizer": {**bert, "model": {**bert["model"], "vocab": more}}},
    ),
    ("remove_space", spiece, _config(remove_space=False)),
    ("sp_model_kwargs", spiece, _config(sp_model_kwargs={"a": 1})),
    ("do_basic_tokenize", vocab, _config(do_basic_tokenize=False)),
    ("never_split", vocab, _config(never_split=["x"])),
    ("auto_map", spiece, _config(auto_map={"AutoTokenizer": []})),
    ("XLNetTokenizer", spiece, _config(tokenizer_class="XLNetTokenizer")),
    ("'XXXX", spiece, _config(tokenizer_class=99 * "X")),
    (
      "BertJapaneseTokenizer",
      vocab,
      {"config": {"tokenizer_class": "BertJapaneseTokenizer"}},
    ),
    (
      "cls_token '<s>'",
      spiece,
      {"special_tokens_map": {"cls_token": {"content": "<s>"}}},
    ),
    ("unk_token '<unk>'", vocab, _config(unk_token="<unk>")),
    ("'<user>'", spiece, {"tokenizer_config": decoder}),
    ("'<user>'", vocab, {"added_tokens": {"<user>": 60}}),
    ("'<url>'", spiece, _fast(albert, added_tokens=added)),
    ("'<url>'", b"", _fast(albert, added_tokens=added)),
    ("id 7 instead of 2", spiece, {"added_tokens": {"[CLS]": 7}}),
    ("line 2 ", b"[PAD]\n[UNK] \n[CLS]\n[SEP]\n[MASK]", {}),
    ("'BPE'", b"", _fast(bpe)),
    ("'NFKC'", b"", _fast(nfkc)),
    ("'Whitespace'", b"", _fast(split)),
    ("post_processor.type 'RobertaProcessing'", b"", _fast(roberta)),
    ("other pieces", spiece, _fast(fewer)),
    (
      "differ in do_lower_case",
      vocab,
      {"tokenizer": bert, "tokenizer_config": {"do_lower_case": False}},
    ),
    ("damaged", b"", {"tokenizer": {"model": 3}}),
  ]
  for number, (named, content, files) in enumerate(cases):
    if content:
      name = "spiece.model" if content == spiece else "vocab.txt"
      files = {**files, name: content}
    file, _ = _read(_save(tmp_path / str(number), **files))
    for use in (file.check, file.open, file.make_layer):
      with pytest.raises(
        ValueError, match="is not supported, because"
      ) as error:
        use()
      message = str(error.value).replace(str(tmp_path), "")
      assert named in message and len(message) <= 400, (named, message)
  (tmp_path / "none").mkdir()
  assert _read(tmp_path / "none") == (None, [])
  with pytest.raises(ValueError, match="config.json is .*must be an object"):
    _read(_save(tmp_path / "list", tokenizer_config=[1], vocab_dot_txt=vocab))


def test_the_class_chooses_the_file(model, tmp_path):
  folder = _save(
    tmp_path / "both",
    spiece_dot_model=model.read_bytes(),
    vocab_dot_txt="\n".join(_VOCABULARY).encode(),
    tokenizer_config={"tokenizer_class": "BertTokenizerFast"},
  )
  assert _read(folder)[0].kind == "wordpiece"
  _save(folder, tokenizer_config={"keep_accents": True})
  file, notes = _read(folder)
  assert file.kind == "sentencepiece" and file.open().keep_accents
  assert "``" in notes[0] and len(notes) == 1
  _save(folder, tokenizer_config={"model_input_names": ["input_ids"]})
  assert "model_input_names" in _read(folder)[1][-1]
