"""BERT's WordPiece tokenizer, which the Chinese ALBERT models use.

Tokenization has two steps. First the text is split into words: control
characters are removed, Chinese characters and punctuation marks become words,
and with `lower_case` letters lose case and accents. Then each word is split
greedily into the longest pieces of the vocabulary; all but the first piece
begin with "##". A word that cannot be split is one [UNK].

Reference: google-research/albert tokenization.py (load_vocab, BasicTokenizer,
WordpieceTokenizer) and create_pretraining_data.py (_is_start_piece_bert).
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Optional

import numpy as np

from official_albert.tokenization import text_offsets

CONTINUATION = "##"
WORD_START = "\u2581"  # SentencePiece's mark of a space.
WORDPIECE_SPECIAL_PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# Longer words are [UNK].
MAX_WORD_CHARACTERS = 200

_UNUSED = re.compile(r"\[unused\d+\]")
# The Chinese characters of the original. They include Hanja and Kanji in
# Korean and Japanese text, but not Hangul, Hiragana and Katakana.
_CHINESE = (
  (0x4E00, 0x9FFF),
  (0x3400, 0x4DBF),
  (0x20000, 0x2A6DF),
  (0x2A700, 0x2B73F),
  (0x2B740, 0x2B81F),
  (0x2B820, 0x2CEAF),
  (0xF900, 0xFAFF),
  (0x2F800, 0x2FA1F),
)
# No Chinese character or punctuation mark has a higher code point.
_END_OF_SINGLE_CHARACTERS = 0x30000
_CACHED_WORD_CHARACTERS = 24
_MAX_CACHED_WORDS = 1 << 18  # About 50 MB for each of two caches.


def is_control(char: str) -> bool:
  """Returns whether the character is removed."""
  if char in "\t\n\r":
    return False
  return char in "\0\ufffd" or unicodedata.category(char) in ("Cc", "Cf")


def is_space(char: str) -> bool:
  """Returns whether the character separates words."""
  return char in " \t\n\r" or unicodedata.category(char) == "Zs"


def is_chinese(char: str) -> bool:
  """Returns whether the character is Chinese, and thus a word."""
  return any(first <= ord(char) <= last for first, last in _CHINESE)


def is_punctuation(char: str) -> bool:
  """Returns whether the character is a punctuation mark, and thus a word.

  These are Unicode's punctuation marks and all printable ASCII characters but
  letters, digits and the space.
  """
  if char.isascii():
    return char.isprintable() and not char.isalnum() and char != " "
  return unicodedata.category(char).startswith("P")


def read_vocabulary(content: bytes) -> list[str]:
  """Returns the pieces of a vocab.txt: the first word of each line.

  As in the original, a repeated piece gets no id of its own; the next new piece
  gets it. (BERT counts such lines. The released vocabularies have none.)

  Raises:
    UnicodeDecodeError: the content is not UTF-8.
  """
  # Not str.splitlines, which would also split at characters that are pieces of
  # the released Chinese vocabulary.
  lines = content.decode("utf-8").split("\n")
  if not lines[-1]:
    lines.pop()
  return list(dict.fromkeys((line.split() or [" "])[0] for line in lines))


class WordPieceTokenizer:
  """Has the same interface as `tokenization.SentencePieceTokenizer`.

      tokenizer = WordPieceTokenizer("vocab.txt")
      tokenizer.tokenize("他在1922年。")  # ["他", "在", "1922", "年", "。"]

  Text never becomes a special piece: "[MASK]" is split at its brackets.

  Attributes:
    kind: "wordpiece".
    model_file: the path of the vocabulary.
    lower_case: whether text first loses case and accents.
    sha256: the hexadecimal hash of the file.
    vocab_size: the number of pieces V.
    pad_id, unk_id, cls_id, sep_id, mask_id: the ids of the special pieces.
    special_ids: these ids and those of "[unused1]" and the like.
  """

  kind = "wordpiece"

  def __init__(self, vocab_file: str, lower_case: bool = True):
    """Reads and checks a vocabulary.

    Raises:
      FileNotFoundError: the file does not exist.
      ValueError: it is not a vocabulary or lacks BERT's special pieces.
    """
    self.model_file = os.fspath(vocab_file)
    self.lower_case = lower_case
    if not os.path.isfile(self.model_file):
      raise FileNotFoundError(
        f"there is no WordPiece vocabulary {self.model_file!r}: check the "
        "path; it is the vocab.txt that comes with the released zh models."
      )
    with open(self.model_file, "rb") as file:
      content = file.read()
    self.sha256 = hashlib.sha256(content).hexdigest()
    try:
      self._pieces = read_vocabulary(content)
    except UnicodeDecodeError as error:
      line = content[: error.start].count(b"\n") + 1
      raise ValueError(
        f"{self.model_file}, line {line}, is not UTF-8: a WordPiece vocabulary "
        "is a text file with one piece per line; give a SentencePiece model as "
        "spm_model_file."
      ) from error
    self.vocab_size = len(self._pieces)
    self._ids = {piece: i for i, piece in enumerate(self._pieces)}
    self._check_special_pieces()
    self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (
      self._ids[piece] for piece in WORDPIECE_SPECIAL_PIECES
    )
    self.special_ids = frozenset(
      i
      for i, piece in enumerate(self._pieces)
      if piece in WORDPIECE_SPECIAL_PIECES or _UNUSED.fullmatch(piece)
    )
    self._longest = max(map(len, self._pieces))
    self._words: dict[str, tuple[int, ...]] = {}
    self._parts: dict[str, tuple[int, ...]] = {}

  def _check_special_pieces(self) -> None:
    for piece in WORDPIECE_SPECIAL_PIECES:
      if piece not in self._ids:
        raise ValueError(
          f"{self.model_file!r} ({self.vocab_size:,} pieces) lacks the piece "
          f"{piece}: a WordPiece vocabulary has one piece per line, among them "
          f"{', '.join(WORDPIECE_SPECIAL_PIECES)}."
        )
    if self._ids["[PAD]"] != 0:
      raise ValueError(
        f"{self.model_file} has [PAD] at id {self._ids['[PAD]']}, but it must "
        "be in line 1: sequences are padded with id 0."
      )

  def tokenize(self, text: str) -> list[str]:
    """Returns the pieces of a text; an unknown word is [UNK]."""
    return [self._pieces[i] for i in self.encode(text)]

  def encode(self, text: str) -> list[int]:
    """Returns the ids of `tokenize(text)`, without [CLS] and [SEP]."""
    if not text.isprintable() or "\ufffd" in text:
      text = text.translate(_Cleaner())
    ids: list[int] = []
    cache = self._words
    # Lower-casing single words gives the same as lower-casing the text: only
    # sigma depends on its neighbors, and a space ends a word for it, too.
    for word in text.split():
      found = cache.get(word)
      if found is None:
        found = tuple(
          i for part in self._split(word) for i in self._part_ids(part)
        )
        _remember(cache, word, found)
      ids += found
    return ids

  def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
    """Returns `[encode(text) for text in texts]`.

    Raises:
      TypeError: `texts` is a single string.
    """
    if isinstance(texts, (str, bytes)):
      raise TypeError(
        "encode_batch takes a list of texts; encode takes a single one."
      )
    return [self.encode(text) for text in texts]

  def encode_with_offsets(self, text: str) -> text_offsets.EncodedText:
    """Returns `encode(text)` with the characters that each id comes from."""
    cleaned = text.translate(_Cleaner())
    ids: list[int] = []
    starts: list[int] = []
    ends: list[int] = []
    end = 0  # In the changed text, with one space between words.
    for word in cleaned.split():
      for part in self._split(word):
        found = self._part_ids(part)
        if self.unk_id in found:
          lengths = [len(part)]
        else:
          lengths = [len(self._pieces[i]) for i in found]
          lengths[1:] = [n - len(CONTINUATION) for n in lengths[1:]]
        for length in lengths:
          starts.append(end)
          end += length
          ends.append(end)
        ids += found
      end += 1
    if text.isascii() and text.isprintable() and len(text) == end - 1:
      return text_offsets.EncodedText(ids, starts, ends)
    spans = text_offsets.compose(
      text_offsets.Spans(np.array(starts, int), np.array(ends, int)),
      text_offsets.character_spans(text, _forms(self.lower_case)),
    )
    return text_offsets.EncodedText(
      ids, spans.starts.tolist(), spans.ends.tolist()
    )

  def _split(self, word: str) -> list[str]:
    """Splits text without spaces at Chinese characters and punctuation."""
    return _word_pattern().findall(_lower(word) if self.lower_case else word)

  def _part_ids(self, part: str) -> tuple[int, ...]:
    found = self._parts.get(part)
    if found is None:
      found = tuple(self._longest_pieces(part))
      _remember(self._parts, part, found)
    return found

  def _longest_pieces(self, word: str) -> list[int]:
    if len(word) > MAX_WORD_CHARACTERS:
      return [self.unk_id]
    ids, start = [], 0
    while start < len(word):
      mark = CONTINUATION if start else ""
      end = min(len(word), start + self._longest)
      found: Optional[int] = None
      while end > start:
        found = self._ids.get(mark + word[start:end])
        if found is not None:
          break
        end -= 1
      if found is None:
        return [self.unk_id]
      ids.append(found)
      start = end
    return ids

  def decode(self, ids: Iterable[int]) -> str:
    """Returns readable text, without special pieces other than [UNK].

    Raises:
      ValueError: an id is outside the vocabulary.
    """
    hidden = self.special_ids - {self.unk_id}
    text = "".join(self.marked_piece(i) for i in ids if i not in hidden)
    return text.replace(WORD_START, " ").strip()

  def piece_to_id(self, piece: str) -> int:
    """Returns the id of a piece, or `unk_id` if there is no such piece."""
    return self._ids.get(piece, self.unk_id)

  def id_to_piece(self, id: int) -> str:
    """Returns the piece with this id.

    Raises:
      ValueError: the id is outside the vocabulary.
    """
    if not 0 <= id < self.vocab_size:
      raise ValueError(
        f"id {id} is outside the vocabulary of {self.vocab_size} pieces: was "
        "it encoded with another tokenizer?"
      )
    return self._pieces[id]

  def marked_piece(self, id: int) -> str:
    """Returns the piece as SentencePiece writes it, with "▁" for a space.

    Special pieces are unchanged. Chinese characters have no spaces.
    """
    piece = self.id_to_piece(id)
    if id in self.special_ids and id != self.unk_id:
      return piece
    if piece.startswith(CONTINUATION) and len(piece) > len(CONTINUATION):
      return piece[len(CONTINUATION) :]
    return piece if _is_cjk(piece[0]) else WORD_START + piece

  @functools.cached_property
  def word_start_table(self) -> np.ndarray:
    """Returns False for pieces with "##", which continue a word, <bool>[V].

    As in the original, each Chinese character is a word.
    """
    table = np.array([not p.startswith(CONTINUATION) for p in self._pieces])
    table.setflags(write=False)
    return table


def _remember(
  cache: dict[str, tuple[int, ...]], word: str, ids: tuple[int, ...]
) -> None:
  if len(word) <= _CACHED_WORD_CHARACTERS:
    if len(cache) >= _MAX_CACHED_WORDS:
      cache.clear()
    cache[word] = ids


def _lower(word: str) -> str:
  word = word.lower()
  if word.isascii():
    return word
  word = unicodedata.normalize("NFD", word)
  marks = [c for c in set(word) if unicodedata.category(c) == "Mn"]
  return word.translate(dict.fromkeys(map(ord, marks))) if marks else word


class _Cleaner(dict):
  """A table for `str.translate` that cleans text before it is split."""

  def __missing__(self, code: int):
    char = chr(code)
    if is_space(char):
      value = " "
    else:
      # Unpaired surrogates are not characters.
      drop = is_control(char) or unicodedata.category(char) == "Cs"
      value = None if drop else char
    self[code] = value
    return value


@functools.cache
def _forms(lower_case: bool) -> text_offsets.FormTable:
  """Returns the form that `encode` gives each character."""
  cleaner = _Cleaner()

  def form(char: str) -> int:
    char = char.translate(cleaner)
    if not char:
      return text_offsets.GONE
    if char.isspace():
      return text_offsets.SPACE
    first = unicodedata.normalize("NFD", char)[0]
    length = len(_lower(char)) if lower_case else 1
    return text_offsets.visible_form(length, unicodedata.combining(first) > 0)

  return text_offsets.FormTable(form)


def _is_cjk(char: str) -> bool:
  """Returns whether the character has no spaces around it."""
  return is_chinese(char) or 0x3000 <= ord(char) < 0x3100 or ord(char) > 0xFF00


@functools.cache
def _word_pattern() -> re.Pattern:
  """Returns a pattern of Chinese characters, punctuation marks and words."""

  def alone(char: str) -> bool:
    return is_chinese(char) or is_punctuation(char)

  codes = [
    code for code in range(_END_OF_SINGLE_CHARACTERS) if alone(chr(code))
  ]
  # The ranges of consecutive code points end before each gap.
  ends = [i for i, code in enumerate(codes[:-1], 1) if codes[i] > code + 1]
  single = "".join(
    rf"\U{codes[first]:08x}-\U{codes[end - 1]:08x}"
    for first, end in zip([0, *ends], [*ends, len(codes)])
  )
  return re.compile(f"[{single}]|[^{single}]+")
