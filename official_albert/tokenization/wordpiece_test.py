"""Tests of WordPiece: BERT's rules, and a plain second implementation."""

from __future__ import annotations

import hashlib
import pickle
import random
import re
import unicodedata

import numpy as np
import pytest

from official_albert.tokenization import normalization, wordpiece
from official_albert.tokenization import sentencepiece_tokenizer as tokenization

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
  # Again, from the cache.
  assert tokenizer.encode(text) == [
    tokenizer.piece_to_id(piece) for piece in pieces.split()
  ]


def _plain(text: str, ids: dict[str, int], lower_case: bool) -> list[int]:
  """Applies the rules of the original code step by step."""
  chars = []
  for char in text:
    category = unicodedata.category(char)
    if char in "\t\n\r " or category == "Zs":
      chars.append(" ")
    elif char not in "\0\ufffd" and category not in ("Cc", "Cf", "Cs"):
      chars.append(f" {char} " if normalization.is_chinese(char) else char)
  found = []
  for token in "".join(chars).split():
    if lower_case:
      token = unicodedata.normalize("NFD", token.lower())
      token = "".join(c for c in token if unicodedata.category(c) != "Mn")
    spaced = "".join(
      f" {char} "
      if unicodedata.category(char)[0] == "P" or char in "$+<=>^`|~"
      else char
      for char in token
    )
    for word in spaced.split():
      pieces, rest = [], word
      while rest and len(word) <= 200:
        mark = "##" if pieces else ""
        size = next(
          (n for n in range(len(rest), 0, -1) if mark + rest[:n] in ids), 0
        )
        if not size:
          break
        pieces.append(ids[mark + rest[:size]])
        rest = rest[size:]
      found += [ids["[UNK]"]] if rest else pieces
  return found


@pytest.mark.parametrize("lower_case", [True, False])
def test_equals_the_plain_implementation_on_random_text(tmp_path, lower_case):
  rng = random.Random(3)
  alphabet = "aAbéÉσΣßıİк中国。、が한\u0301\u00ad\u3000\t.-#'1 " + chr(0x2F81A)
  pieces = {"".join(rng.choices(alphabet.lower(), k=n)) for n in (1, 2) * 150}
  pieces = [piece for piece in sorted(pieces) if not re.search(r"\s", piece)]
  pieces = [
    *wordpiece.WORDPIECE_SPECIAL_PIECES,
    *pieces,
    *(f"##{p}" for p in pieces),
  ]
  path = tmp_path / "vocab.txt"
  path.write_text("\n".join(pieces), "utf-8")
  tokenizer = wordpiece.WordPieceTokenizer(path, lower_case)
  ids = {piece: i for i, piece in enumerate(pieces)}
  texts = [
    "".join(rng.choices(alphabet, k=rng.randrange(30))) for _ in range(3000)
  ]
  assert tokenizer.encode_batch(texts) == [
    _plain(text, ids, lower_case) for text in texts
  ]


def test_the_cache_is_bounded(vocab_file, monkeypatch):
  monkeypatch.setattr(wordpiece, "_MAX_CACHED_WORDS", 5)
  tokenizer = wordpiece.WordPieceTokenizer(vocab_file)
  for number in range(23):
    assert tokenizer.tokenize(f"the un{number} the") == ["the", "[UNK]", "the"]
  assert len(tokenizer._words) <= 5


def test_decode_and_pickle(tokenizer):
  ids = [3, *tokenizer.encode("unaffable 中国人 the zz。"), 4, 0]
  assert tokenizer.decode(ids) == "unaffable中国人 the [UNK]。"
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
  assert opened.kind == "wordpiece" and not opened.lower_case
  for arguments in ({}, {"spm_model_file": "a", "vocab_file": "b"}):
    with pytest.raises(ValueError, match="give either spm_model_file"):
      tokenization.open_tokenizer(**arguments)
  with pytest.raises(FileNotFoundError, match="no WordPiece vocabulary"):
    tokenization.open_tokenizer(vocab_file=str(tmp_path))
