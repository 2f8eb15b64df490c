"""Tests of spans, and of the offsets of both tokenizers."""

from __future__ import annotations

import gzip
import itertools
import json
import pathlib

import pytest

from official_albert.testing import toy_vocabulary
from official_albert.tokenization import normalization, wordpiece
from official_albert.tokenization import sentencepiece_tokenizer as tokenization

_SHARED = pathlib.Path(__file__).resolve().parents[3] / "shared"
_GOLDEN = _SHARED / "golden" / "tokenization.jsonl"
RELEASED = _SHARED / "data" / "tokenizer" / "30k-clean.model"
needs_released = pytest.mark.skipif(
  not (_GOLDEN.exists() and RELEASED.exists()),
  reason="the released vocabulary and its goldens are not on this machine",
)
_SENTENCES = [
  "in 1922, the fisher sold 1922,5 and 1922,2 tons of cod in the port.",
  "(7,7,7,7) is a point, and so are (7,9) and (7,1) but not (7,2) or (7,c)",
  "(7,7,7,7) or (7,7,7,7) (7,c) (7,a) (7,x)",
  "aßeiuσςαшж⁄½日国今 12 ⁄ 한각 ㄱ か が ガ ୋ ො ำ อ ʾ صلى الله عليه",
  "a b c d e f g h i j k l m n o p q r s t u v w x y z 1 9 , ' ",
] * 5


def golden_lines() -> list[dict]:
  """Returns texts, and what the original makes of them."""
  lines = [json.loads(line) for line in _GOLDEN.open(encoding="utf-8")]
  assert len(lines) == 420
  return lines


def real_texts(count: int) -> list[str]:
  """Returns the texts of the goldens, and lines of the corpus."""
  corpus = _SHARED / "data" / "corpus" / "wikipedia_sentences_4mb.txt.gz"
  with gzip.open(corpus, "rt", encoding="utf-8") as file:
    lines = [line.rstrip("\n") for line in itertools.islice(file, count)]
  assert sum(map(len, lines)) > 100 * count
  return [line["text"] for line in golden_lines()] + lines


def wild_texts(each: int, seed: int) -> list[str]:
  texts = toy_vocabulary.odd_texts(each, seed)
  # Unpaired surrogates.
  return [*texts, "a \ud83d b", "\ude00\u0301a\udc80,", "\ud83d"]


def train(path: pathlib.Path, sentences=_SENTENCES, **options) -> pathlib.Path:
  """Trains a vocabulary with ALBERT's options."""
  settings = {
    "vocab_size": 400,
    "user_defined_symbols": '(,),",-,.,–,£,€',
    "character_coverage": 1.0,
    **options,
  }
  path.write_bytes(toy_vocabulary.train(sentences, **settings))
  return path


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
  return train(tmp_path_factory.mktemp("vocabulary") / "tiny.model")


def vocab_file(path: pathlib.Path) -> pathlib.Path:
  letters = "aBbz19,.(-\"'eEiIßΣσς½日国か한각୍🙂⁄ㄱ¨▁ⅷ①"
  pieces = [*wordpiece.WORDPIECE_SPECIAL_PIECES, *letters]
  pieces += [f"##{char}" for char in letters] + ["the", "1922", "##ing"]
  pieces += ["\u1112\u1161\u11ab", "##\u1b44", "##\u302e", "##\u0e33"]
  path.write_text("\n".join(pieces), encoding="utf-8")
  return path


def normal_form(tokenizer, text: str) -> str:
  """Returns the text of pieces, without spaces and with one kind of sigma."""
  if tokenizer.kind == "wordpiece":
    return "".join(tokenizer.normalization.split(text)).replace("ς", "σ")
  text = tokenizer._processor.normalize(tokenizer.normalization(text))
  return text.replace("▁", "").replace("ς", "σ")


def surfaces(tokenizer, text: str) -> list[str]:
  """Returns the text of each id; None if the id does not determine it."""
  if tokenizer.kind == "wordpiece":
    pieces = [
      None
      if i == tokenizer.unk_id
      else piece[2:] * (piece[:2] == "##") or piece
      for i, piece in zip(tokenizer.encode(text), tokenizer.tokenize(text))
    ]
  else:
    pieces = [p.replace("▁", "") for p in tokenizer.tokenize(text)]
  return [p if p is None else p.replace("ς", "σ") for p in pieces]


def check(tokenizer, text: str) -> None:
  ids, starts, ends = tokenizer.encode_with_offsets(text)
  assert ids == tokenizer.encode(text)
  assert starts == sorted(starts) and ends == sorted(ends)
  assert len(ids) == len(starts) == len(ends)
  if ids:
    assert starts[0] >= 0 and ends[-1] <= len(text)
  for k, surface in enumerate(surfaces(tokenizer, text)):
    span = text[starts[k] : ends[k]]
    here = (text, k, surface, span)
    assert starts[k] <= ends[k], here
    if surface is None:
      assert span and not span[0].isspace(), here
      continue
    neighbours = [j for j in (k - 1, k + 1) if 0 <= j < len(ids)]
    shares = any(
      max(starts[j], starts[k]) < min(ends[j], ends[k]) for j in neighbours
    )
    if not surface:
      # A space. "\ufdfa" becomes four words, with spaces.
      assert not span or shares, here
      continue
    assert not span[0].isspace(), here
    form = normal_form(tokenizer, span)
    assert surface in form if shares else surface == form, here


@pytest.mark.parametrize("keep_accents", [None, True])
@pytest.mark.parametrize("lower_case", [True, False])
def test_characters_of_a_range_give_the_piece(
  tmp_path, model_file, lower_case, keep_accents
):
  vocabulary = vocab_file(tmp_path / "vocab.txt")
  for tokenizer in (
    tokenizer(file, lower_case, keep_accents=keep_accents)
    for tokenizer, file in (
      (tokenization.WordPieceTokenizer, vocabulary),
      (tokenization.SentencePieceTokenizer, model_file),
    )
  ):
    for text in wild_texts(170, seed=7):
      check(tokenizer, text)


# Options of models that are not ALBERT's.
OTHER_OPTIONS = {
  "identity": {"normalization_rule_name": "identity"},
  "case_fold": {"normalization_rule_name": "nmt_nfkc_cf"},
  "no_prefix": {"add_dummy_prefix": False},
  "across_spaces": {
    "split_by_whitespace": False,
    "user_defined_symbols": "a▁b,ab,½,日本",
  },
  "suffix": {"treat_whitespace_as_suffix": True},
  "spaces": {"remove_extra_whitespaces": False},
  "bpe": {"model_type": "bpe", "vocab_size": 120},
}


@pytest.mark.parametrize("name", OTHER_OPTIONS)
def test_models_with_other_options(tmp_path, name):
  tokenizer = tokenization.SentencePieceTokenizer(
    train(tmp_path / "other.model", **OTHER_OPTIONS[name])
  )
  for text in wild_texts(60, seed=3):
    check(tokenizer, text)


@needs_released
def test_released_vocabulary():
  tokenizer = tokenization.SentencePieceTokenizer(str(RELEASED))
  texts = [line["text"] for line in golden_lines()]
  for text in texts + wild_texts(130, seed=11):
    check(tokenizer, text)


def spans(tokenizer, text: str) -> list[str]:
  _, starts, ends = tokenizer.encode_with_offsets(text)
  return [text[start:end] for start, end in zip(starts, ends)]


def test_known_ranges(model_file):
  tokenizer = tokenization.SentencePieceTokenizer(model_file)
  assert "".join(spans(tokenizer, "  In\t1922, the")) == "In1922,the"
  year = spans(tokenizer, "in 1922, the")
  assert year[year.index(",") - 1].endswith("2")
  # The range of a letter includes a separate accent.
  assert spans(tokenizer, "(e\u0301)")[-2:] == ["e\u0301", ")"]
  # One character becomes three pieces.
  assert spans(tokenizer, "12½")[-3:] == ["½", "½", "½"]
  assert tokenizer.encode_with_offsets("") == ([], [], [])
  assert tokenizer.encode_with_offsets("\u3000\u0301") == ([], [], [])


def test_known_ranges_of_wordpiece(tmp_path):
  tokenizer = tokenization.WordPieceTokenizer(vocab_file(tmp_path / "v.txt"))
  text = "The 日国,\x00  1922ing 🙂x " + "a" * 201
  ids, starts, ends = tokenizer.encode_with_offsets(text)
  assert [tokenizer.id_to_piece(i) for i in ids] == (
    ["the", "日", "国", ",", "1922", "##ing", "[UNK]", "[UNK]"]
  )
  assert [text[a:b] for a, b in zip(starts, ends)] == (
    ["The", "日", "国", ",\x00", "1922", "ing", "🙂x", "a" * 201]
  )
  assert tokenizer.encode_with_offsets(" \x00") == ([], [], [])


@pytest.mark.parametrize(
  "text,expected",
  [
    (" \ud800 ", []),
    ("  a   b  ", [(2, 3), (5, 6), (6, 7)]),
    # Deleted characters join the spaces around them.
    ("\ud800a \ud800 \ud800b\ud800", [(1, 2), (4, 6), (6, 8)]),
    ("xﬁy", [(0, 1), (1, 2), (1, 2), (2, 3)]),
    # Marks belong to the character before them, also after a deleted one.
    ("a\u0301\u0327b", [(0, 3), (3, 4)]),
    ("a\ud800\u0301b", [(0, 3), (3, 4)]),
    ("\u0301a", [(1, 2)]),
    ("a \u0301 b", [(0, 1), (1, 3), (3, 4), (4, 5)]),
  ],
)
def test_letters(text, expected):
  normal = normalization.Normalization(True)
  starts, ends = normalization.letters(text, normal)
  assert [*zip(starts, ends)] == expected
  kept = normalization.Normalization(True, keep_accents=True)
  assert normalization.letters("a\u0301b", kept)[0].tolist() == [0, 1, 2]
