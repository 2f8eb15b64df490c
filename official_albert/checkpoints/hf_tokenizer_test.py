"""Tests of tokenizer files.

tokenizer.json is run by the package `tokenizers`, which transformers runs it
with, where that is installed.
"""

from __future__ import annotations

import base64
import json
import random
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
from official_albert.tokenization import text_offsets_test

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
  content = toy_vocabulary.train(
    lines,
    420,
    user_defined_symbols="(,),-,.,–",
    character_coverage=1.0,
    split_by_number=False,
  )
  proto = sentencepiece_model_pb2.ModelProto.FromString(content)
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
  hf_tokenizer.write(file, str(folder), 33)
  again, notes = _read(folder)
  assert (again.kind, again.rules, again.problem) == (kind, rules, "")
  assert again.read() == path.read_bytes() and not notes
  settings = json.loads((folder / "tokenizer_config.json").read_text())
  # Other classes of transformers 5 have their own normalization.
  assert settings["tokenizer_class"] == "PreTrainedTokenizerFast"
  assert "token_type_ids" in settings["model_input_names"]
  assert settings["model_max_length"] == 33 and settings["sep_token"] == "[SEP]"
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
  rng = random.Random(5)
  lengths = [rng.randrange(25) for _ in range(2000)]
  return ["".join(rng.choices(letters, k=length)) for length in lengths]


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


def test_no_prefix_gives_the_same_ids(model, tmp_path):
  """Neither spaces nor characters that are removed begin a word."""
  path = tmp_path / "no_prefix.model"
  values = sentencepiece_model_pb2.ModelProto.FromString(model.read_bytes())
  values.normalizer_spec.add_dummy_prefix = False
  path.write_bytes(values.SerializeToString())
  _written(tmp_path / "out", path, "sentencepiece")
  ours = tokenization.SentencePieceTokenizer(str(path))
  letters = [*_LINES[0], *"   \u0301\u200b\u3000"]
  _check_ids(tmp_path / "out", ours, _wild(letters))


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
  content = toy_vocabulary.numbers(6)
  proto = sentencepiece_model_pb2.ModelProto.FromString(content)
  kinds = proto.SentencePiece
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
  # A user-defined piece has the score that it has in TensorFlow Text.
  expected = {"\u25815": -2.5, "\u25817, ": -3.0, "--": -0.1, "gone ": -4.0}
  found = dict(values["model"]["vocab"][5:])
  assert found == pytest.approx(expected, abs=1e-3)
  assert values["pre_tokenizer"]["prepend_scheme"] == "never"
  # No tokenizer.json expresses this.
  proto.trainer_spec.model_type = proto.trainer_spec.BPE
  path.write_bytes(proto.SerializeToString())
  file = tokenizer_file.TokenizerFile(str(path), "sentencepiece")
  with pytest.raises(ValueError, match="is not a unigram model"):
    hf_tokenizer.write(file, str(tmp_path), 33)


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


@text_offsets_test.needs_released
@pytest.mark.parametrize("lower_case", [True, False])
def test_the_released_vocabulary_gives_the_same_ids(lower_case, tmp_path):
  model = text_offsets_test.RELEASED
  _written(tmp_path / "out", model, "sentencepiece", lower_case)
  texts = text_offsets_test.real_texts(1000)
  texts.remove("[CLS] [SEP] [MASK] <pad> <unk>")  # Special pieces there.
  ours = tokenization.SentencePieceTokenizer(str(model), lower_case)
  _check_ids(tmp_path / "out", ours, texts)


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
  letters = (
    "abzABE019.,-'\"()\u2026\u6771\u4eac\u00e9\u00c5\u0301\uac01\u200b \t"
  )
  texts = [*_ACCENTED, *_wild(letters)]
  _check_ids(_save(tmp_path / "fast", tokenizer=fast), file.open(), texts)
  layer = file.make_layer()
  expected = file.open().encode_batch(_ACCENTED)
  assert layer.tokenize(_ACCENTED).to_list() == expected


@pytest.mark.parametrize("without", [(), ("case",), ("accents",)])
def test_a_unigram_tokenizer_json_alone_is_read(without, model, tmp_path):
  fast = _albert_json(tmp_path / "out", model, *without)
  folder = _save(tmp_path / "in", tokenizer=fast)
  file, _ = _read(folder)
  ours = file.open()
  assert ours.rules.lower_case == ("case" not in without)
  assert ours.keep_accents == ("accents" in without)
  letters = [
    x
    for x in [*"".join(_LINES), *"  ----"]
    if (ord(x) < 0xA00 or x == "\u65e5") and x not in "`,'\u03a3"
    if unicodedata.category(x)[0] in "LNPSZ"
  ]
  _check_ids(folder, ours, [text.strip() for text in _wild(letters)])
  # The file beside it is taken if it is the same model.
  _save(folder, spiece_dot_model=model.read_bytes())
  again, _ = _read(folder)
  assert again.rules == file.rules and again.path.endswith("spiece.model")
  assert again.open().tokenize(_LINES[4]) == ours.tokenize(_LINES[4])


@text_offsets_test.needs_released
@pytest.mark.parametrize("without", [(), ("case",), ("accents",)])
def test_the_released_vocabulary_is_rebuilt_from_a_tokenizer_json(
  without, tmp_path
):
  """As AlbertConverter of transformers writes it, apart from added tokens."""
  model = text_offsets_test.RELEASED
  fast = _albert_json(tmp_path / "out", model, *without)
  for pair in fast["model"]["vocab"]:  # Never the best pieces there.
    pair[1] -= 100 * tokenization.ends_in_digit_comma(pair[0])
  file, _ = _read(_save(tmp_path / "in", tokenizer=fast))
  texts = text_offsets_test.real_texts(2000)[-2000:]
  # They become quotation marks there.
  texts = [x.strip() for x in texts if "``" not in x and "''" not in x]
  assert len(texts) > 1980
  _check_ids(tmp_path / "in", file.open(), texts)
  ours = tokenization.SentencePieceTokenizer(
    str(model), "case" not in without, keep_accents="accents" in without
  )
  assert file.open().encode_batch(texts) == ours.encode_batch(texts)


def _nested(values, path, new):
  """Returns a copy of a tokenizer.json with another value at a path."""
  values = json.loads(json.dumps(values))
  *parents, last = path.split(".")
  node = values
  for name in parents:
    node = node[int(name) if isinstance(node, list) else name]
  node[int(last) if isinstance(node, list) else last] = new
  return values


@pytest.mark.parametrize(
  "path, new",
  [
    ("model.vocab.-1.1", -9.0),
    ("model.vocab.-1.0", "other"),
    ("pre_tokenizer.prepend_scheme", "never"),
  ],
)
def test_a_tokenizer_json_of_another_model_is_taken(path, new, model, tmp_path):
  fast = _nested(_albert_json(tmp_path / "out", model), path, new)
  beside = model.read_bytes()
  folder = _save(tmp_path / "in", tokenizer=fast, spiece_dot_model=beside)
  file, _ = _read(folder)
  assert file.path.endswith("tokenizer.json") and file.read() != beside
  _check_ids(folder, file.open(), ["see below", "see", "files and see"])
  fast = _bert_json(tmp_path / "bert")
  fast["model"]["vocab"]["new"] = len(_VOCABULARY)
  _save(tmp_path / "words", tokenizer=fast, vocab_dot_txt=_BERT)
  file, _ = _read(tmp_path / "words")
  assert file.open().encode("new") == [len(_VOCABULARY)]


def test_slightly_different_scores_are_taken(model, tmp_path):
  """`hf_tokenizer` changes scores by less, 2**-11, when it rounds them."""
  fast = _albert_json(tmp_path / "out", model)
  fast["model"]["vocab"][-1][1] += 6e-4
  beside = model.read_bytes()
  folder = _save(tmp_path / "in", tokenizer=fast, spiece_dot_model=beside)
  read = _read(folder)[0].read()
  pieces = sentencepiece_model_pb2.ModelProto.FromString(read).pieces
  score = fast["model"]["vocab"][-1][1]
  assert pieces[-1].score == pytest.approx(score, abs=1e-6)


_BERT = "\n".join(_VOCABULARY).encode()
# Settings that are refused, each alone; the message names it.
_SETTINGS = {
  "sentencepiece": {
    "tokenizer_config": {
      "truncation_side": "left",
      "bos_token": "<s>",
      "add_prefix_space": False,
      "remove_space": False,
      "keep_accents": 1,
      "sp_model_kwargs": {"a": 1},
      "auto_map": {"AutoTokenizer": []},
      "tokenizer_class": "XLNetTokenizer",
      "added_tokens_decoder": {"60": {"content": "<user>"}},
    },
    "special_tokens_map": {"cls_token": {"content": "<s>"}},
    "added_tokens": {"[CLS]": 7},
  },
  "wordpiece": {
    "tokenizer_config": {
      "padding_side": "left",
      "do_basic_tokenize": False,
      "never_split": ["x"],
      "unk_token": "<unk>",
      "tokenizer_class": 99 * "X",
    },
    "config": {"tokenizer_class": "BertJapaneseTokenizer"},
    "added_tokens": {"<user>": 60},
  },
}
# Values of a tokenizer.json that are refused, by their places.
_PARTS = {
  "sentencepiece": {
    "padding": {"direction": "Left"},
    "normalizer.normalizers.0.content": "changed",
    "normalizer.normalizers.3.type": "NFC",
    "normalizer.normalizers.6.content": "spaces",
    "pre_tokenizer.replacement": "_",
    "post_processor": None,
    "post_processor.single": [],
    "post_processor.special_tokens.[CLS].ids": [3],
    "added_tokens.4.content": "<url>",
  },
  "wordpiece": {
    "truncation": {"direction": "Left"},
    "normalizer.strip_accents": False,
    "model.type": "BPE",
    "pre_tokenizer.type": "Whitespace",
    "post_processor.type": "RobertaProcessing",
  },
}


def _refusal(folder):
  """Returns the message of all uses of a folder's tokenizer."""
  file, _ = _read(folder)
  for use in (file.check, file.open, file.make_layer):
    with pytest.raises(ValueError, match="is not supported, because") as error:
      use()
  return str(error.value).replace(str(folder), "")


def test_settings_that_are_not_supported_are_named(model, tmp_path):
  vocabularies = {
    "sentencepiece": {"spiece_dot_model": model.read_bytes()},
    "wordpiece": {"vocab_dot_txt": _BERT},
  }
  for kind, contents in _SETTINGS.items():
    for file, settings in contents.items():
      for name, value in settings.items():
        folder = tmp_path / kind / file / name
        setting = {file: {name: value}}
        text = _refusal(_save(folder, **setting, **vocabularies[kind]))
        assert name in text or f"{file}.json adds '" in text, text
  # Its rules are those of the tokenizer that is given instead.
  cased = {"do_lower_case": False, "strip_accents": False, "unk_token": "x"}
  _save(tmp_path / "cased", tokenizer_config=cased, vocab_dot_txt=_BERT)
  file, _ = _read(tmp_path / "cased")
  assert file.problem and file.rules == tokenization.TextRules(False, True)
  text = _refusal(_save(tmp_path / "line", vocab_dot_txt=b"[PAD]\n[UNK] \n"))
  assert "line 2 " in text


def test_steps_that_are_not_supported_are_named(model, tmp_path):
  fast = {
    "sentencepiece": _albert_json(tmp_path / "albert", model),
    "wordpiece": _bert_json(tmp_path / "bert"),
  }
  settings = {"tokenizer_class": "PreTrainedTokenizerFast"}
  settings["strip_accents"] = True
  for kind, parts in _PARTS.items():
    for place, value in parts.items():
      values = _nested(fast[kind], place, value)
      contents = {"tokenizer": values, "tokenizer_config": settings}
      text = _refusal(_save(tmp_path / kind / place, **contents))
      assert place.split(".")[-1] in text or value in text, text
      assert len(text) < 400
  gap = _nested(fast["wordpiece"], "model.vocab.a", 999)
  assert "leaves out ids" in _refusal(_save(tmp_path / "gap", tokenizer=gap))
  vocabulary = [*fast["sentencepiece"]["model"]["vocab"][:-1], ["x", 1e400]]
  infinite = _nested(fast["sentencepiece"], "model.vocab", vocabulary)
  text = _refusal(_save(tmp_path / "infinite", tokenizer=infinite))
  assert "not finite" in text
  damaged = _save(tmp_path / "damaged", tokenizer={"model": 3})
  assert "damaged (AttributeError" in _refusal(damaged)


def test_folders_without_a_tokenizer_and_other_json(tmp_path):
  (tmp_path / "none").mkdir()
  assert _read(tmp_path / "none") == (None, [])
  with pytest.raises(ValueError, match="config.json is .*must be an object"):
    _read(_save(tmp_path / "list", tokenizer_config=[1], vocab_dot_txt=_BERT))


@pytest.mark.parametrize(
  "settings, length",
  [
    ({"model_max_length": 7, "max_len": 9}, 7),
    ({"max_len": 9}, 9),  # Of transformers 2.
    ({"model_max_length": None, "max_len": 9}, 0),
    ({"model_max_length": 1e30}, int(1e30)),
  ],
)
def test_the_longest_text(settings, length, tmp_path):
  folder = str(_save(tmp_path / "x", tokenizer_config=settings))
  assert hf_tokenizer_reader.max_length(folder) == length


@pytest.mark.parametrize(
  "settings, has_segments",
  [
    ({"model_input_names": ["input_ids"]}, False),
    # As transformers 5 writes it, whose AlbertTokenizer gives no segments.
    ({"backend": "tokenizers", "tokenizer_class": "AlbertTokenizer"}, False),
    ({"backend": "tokenizers", "tokenizer_class": "BertTokenizer"}, True),
    ({"tokenizer_class": "AlbertTokenizer"}, True),
    ({"backend": "x", "model_input_names": ["token_type_ids"]}, True),
  ],
)
def test_pairs_without_segments_are_noted(
  settings, has_segments, model, tmp_path
):
  is_bert = settings.get("tokenizer_class") == "BertTokenizer"
  file = (
    {"vocab_dot_txt": _BERT}
    if is_bert
    else {"spiece_dot_model": model.read_bytes()}
  )
  _save(tmp_path / "x", tokenizer_config=settings, **file)
  notes = _read(tmp_path / "x")[1]
  assert ["model_input_names" in note for note in notes] == (
    [] if has_segments else [True]
  )
