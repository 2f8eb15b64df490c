"""BERT's WordPiece tokenizer, which the Chinese ALBERT models use.

Tokenization has two steps. First the text is split into words: control
characters are removed, Chinese characters and punctuation marks become words,
and with `lower_case`, letters lose case and accents. `TextRules` can change
this. Then each word is split
greedily into the longest pieces of the vocabulary; all but the first piece
begin with "##". A word that cannot be split becomes one [UNK].

Reference: google-research/albert tokenization.py (load_vocab, BasicTokenizer,
WordpieceTokenizer) and create_pretraining_data.py (_is_start_piece_bert).
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Callable, Iterable
from typing import Any, Optional, Union

import numpy as np

from official_albert.tokenization import file_tokenizer, text_offsets

CONTINUATION = "##"
WORDPIECE_SPECIAL_PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

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
_MAX_CACHED_WORDS = 1 << 18  # Each of the two caches takes about 50 MB.


def is_control(char: str) -> bool:
  """Returns whether the character is removed."""
  if char in "\t\n\r":
    return False
  return char in "\0\ufffd" or unicodedata.category(char) in ("Cc", "Cf")


def is_space(char: str) -> bool:
  """Returns whether the character separates words."""
  return char in " \t\n\r" or unicodedata.category(char) == "Zs"


def is_chinese(char: str) -> bool:
  """Returns whether the character is Chinese, and thus a word of its own."""
  return any(first <= ord(char) <= last for first, last in _CHINESE)


def is_punctuation(char: str) -> bool:
  """Returns whether the character is punctuation, and thus a word of its own.

  Punctuation marks are those of Unicode and all printable ASCII characters
  except letters, digits and the space.
  """
  if char.isascii():
    return char.isprintable() and not char.isalnum() and char != " "
  return unicodedata.category(char).startswith("P")


def read_vocabulary(content: bytes) -> list[str]:
  """Returns the pieces of a vocab.txt: the first word of each line.

  Deviation: ids are the numbers of lines, and of a repeated piece the last one
  counts, as in BERT and in Hugging Face. In the original, a repeated piece uses
  no id. The released vocabularies repeat none.

  Raises:
    UnicodeDecodeError: the content is not UTF-8.
  """
  # Not str.splitlines, which would also split at characters that are pieces of
  # the released Chinese vocabulary.
  lines = content.decode("utf-8").split("\n")
  if not lines[-1]:
    lines.pop()
  return [(line.split() or [" "])[0] for line in lines]


class WordPieceTokenizer(file_tokenizer.FileTokenizer):
  """A `FileTokenizer` with a vocabulary in BERT's format.

      tokenizer = WordPieceTokenizer("vocab.txt")
      tokenizer.tokenize("他在1922年。")  # ["他", "在", "1922", "年", "。"]

  Pieces such as "[unused1]" are special. The constructor raises ValueError if
  the file is not a vocabulary or lacks BERT's special pieces.
  """

  kind = "wordpiece"

  def __init__(
    self, vocab_file: Union[str, bytes], lower_case: bool = True, **rules: Any
  ):
    """Reads the file; `rules` are further fields of `TextRules`."""
    advice = "it is the vocab.txt that comes with the released zh models"
    content = self._read(
      vocab_file,
      file_tokenizer.TextRules(lower_case, **rules),
      "WordPiece vocabulary",
      advice,
    )
    self.keep_accents = bool(self.rules.keep_accents)
    if self.rules.keep_accents is None:
      self.keep_accents = not lower_case
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
    self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (
      self._ids[piece] for piece in WORDPIECE_SPECIAL_PIECES
    )
    self.special_ids = frozenset(
      i
      for i, piece in enumerate(self._pieces)
      if piece in WORDPIECE_SPECIAL_PIECES or _UNUSED.fullmatch(piece)
    )
    self._longest = max(map(len, self._pieces))
    # Caches of the ids of words before and after `_split`.
    self._words: dict[str, list[int]] = {}
    self._parts: dict[str, list[int]] = {}

  def tokenize(self, text: str) -> list[str]:
    """Returns the pieces of a text; an unknown word becomes [UNK]."""
    return [self._pieces[i] for i in self.encode(text)]

  def encode(self, text: str) -> list[int]:
    if not text.isprintable() or "\ufffd" in text:
      text = text.translate(_Cleaner())
    ids: list[int] = []
    # Lower-casing single words gives the same as lower-casing the text: only
    # sigma depends on its neighbors, and a space ends a word for it, too.
    for word in text.split():
      found = self._words.get(word)
      if found is None:
        found = [i for part in self._split(word) for i in self._part_ids(part)]
        _remember(self._words, word, found)
      ids += found
    return ids

  def encode_with_offsets(self, text: str) -> text_offsets.EncodedText:
    ids: list[int] = []
    starts: list[int] = []
    ends: list[int] = []
    end = 0  # In the changed text, with one space between words.
    for word in text.translate(_Cleaner()).split():
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
      text_offsets.character_spans(text, self.character_form),
    )
    return text_offsets.EncodedText(
      ids, spans.starts.tolist(), spans.ends.tolist()
    )

  def character_form(self, char: str) -> int:
    return _form(char, self.lower_case, self.keep_accents)

  def changes(self, piece: str) -> bool:
    return _change(piece, self.lower_case, self.keep_accents) != piece

  def _split(self, word: str) -> list[str]:
    """Splits text without spaces at Chinese characters and punctuation."""
    word = _change(word, self.lower_case, self.keep_accents)
    return _word_pattern(self.rules.split_chinese).findall(word)

  def _part_ids(self, part: str) -> list[int]:
    found = self._parts.get(part)
    if found is None:
      found = self._longest_pieces(part)
      _remember(self._parts, part, found)
    return found

  def _longest_pieces(self, word: str) -> list[int]:
    if len(word) > self.rules.max_word_characters:
      return [self.unk_id]
    ids: list[int] = []
    start = 0
    while start < len(word):
      mark = CONTINUATION if start else ""
      end = min(len(word), start + self._longest)
      while end > start and mark + word[start:end] not in self._ids:
        end -= 1
      if end == start:
        return [self.unk_id]
      ids.append(self._ids[mark + word[start:end]])
      start = end
    return ids

  def decode(self, ids: Iterable[int]) -> str:
    hidden = self.special_ids - {self.unk_id}
    text = "".join(self.marked_piece(i) for i in ids if i not in hidden)
    return text.replace(text_offsets.WORD_START, " ").strip()

  def piece_to_id(self, piece: str) -> int:
    return self._ids.get(piece, self.unk_id)

  def marked_piece(self, id: int) -> str:
    """Returns the piece as SentencePiece writes it, with "▁" for a space.

    Special pieces are unchanged. Chinese and Japanese characters have no
    spaces around them.
    """
    piece = self.id_to_piece(id)
    if id in self.special_ids and id != self.unk_id:
      return piece
    if piece.startswith(CONTINUATION) and len(piece) > len(CONTINUATION):
      return piece[len(CONTINUATION) :]
    first, code = piece[0], ord(piece[0])
    if is_chinese(first) or 0x3000 <= code < 0x3100 or code > 0xFF00:
      return piece
    return text_offsets.WORD_START + piece

  def _starts_word(self, piece: str) -> bool:
    # As in the original, each Chinese character is a word.
    return not piece.startswith(CONTINUATION)


def _remember(cache: dict[str, list[int]], word: str, ids: list[int]) -> None:
  if len(word) <= _CACHED_WORD_CHARACTERS:
    if len(cache) >= _MAX_CACHED_WORDS:
      cache.clear()
    cache[word] = ids


def _change(word: str, lower_case: bool, keep_accents: bool) -> str:
  if lower_case:
    word = word.lower()
  if keep_accents or word.isascii():
    return word
  word = unicodedata.normalize("NFD", word)
  marks = [c for c in set(word) if unicodedata.category(c) == "Mn"]
  return word.translate(dict.fromkeys(map(ord, marks))) if marks else word


class _Cleaner(dict):
  """A table for `str.translate` that cleans text before it is split."""

  def __missing__(self, code: int) -> Optional[str]:
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
def _form(char: str, lower_case: bool, keep_accents: bool) -> int:
  """Returns the form that `encode` gives a character."""
  char = char.translate(_Cleaner())
  if not char:
    return text_offsets.GONE
  if char.isspace():
    return text_offsets.SPACE
  first = unicodedata.normalize("NFD", char)[0]
  length = len(_change(char, lower_case, keep_accents))
  return text_offsets.visible_form(length, unicodedata.combining(first) > 0)


def character_ranges(
  predicate: Callable[[str], object], end: int
) -> list[tuple[int, int]]:
  """Returns the ranges of the code points below `end` that `predicate` accepts.

  Both bounds of a range are inclusive.
  """
  codes = [code for code in range(end) if predicate(chr(code))]
  runs = np.split(codes, np.flatnonzero(np.diff(codes) > 1) + 1)
  return [(int(run[0]), int(run[-1])) for run in runs]


@functools.cache
def _word_pattern(split_chinese: bool) -> re.Pattern:
  """Returns a pattern of Chinese characters, punctuation marks and words."""
  single = "".join(
    rf"\U{first:08x}-\U{last:08x}"
    for first, last in character_ranges(
      lambda char: is_punctuation(char) or split_chinese and is_chinese(char),
      _END_OF_SINGLE_CHARACTERS,
    )
  )
  return re.compile(f"[{single}]|[^{single}]+")
