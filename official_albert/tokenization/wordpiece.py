"""BERT's WordPiece tokenizer, which the Chinese ALBERT models use.

Tokenization has two steps. First the text is split into words: control
characters are removed, Chinese characters and punctuation marks become words,
and with `lower_case`, letters lose case and accents (`normalization.py`). Then
each word is split greedily into the longest pieces of the vocabulary; all but
the first piece begin with "##". A word that cannot be split becomes one [UNK].

Reference: google-research/albert tokenization.py (load_vocab, BasicTokenizer,
WordpieceTokenizer) and create_pretraining_data.py (_is_start_piece_bert).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from official_albert.tokenization import file_tokenizer, normalization

CONTINUATION = "##"
WORDPIECE_SPECIAL_PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

_UNUSED = re.compile(r"\[unused\d+\]")


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
  _what = "WordPiece vocabulary"
  _advice = "it is the vocab.txt that comes with the released zh models"

  def _load(self, content: bytes) -> None:
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

  def tokenize(self, text: str) -> list[str]:
    return [self._pieces[i] for i in self.encode(text)]

  def encode(self, text: str) -> list[int]:
    words = self.normalization.split(text)
    return [i for word in words for i in self._longest_pieces(word)]

  def encode_with_offsets(self, text: str) -> normalization.EncodedText:
    ids: list[int] = []
    lengths: list[int] = []
    for part in self.normalization.split(text):
      found = self._longest_pieces(part)
      ids += found
      if self.unk_id in found:
        lengths.append(len(part))
      else:
        sizes = [len(self._pieces[i]) for i in found]
        lengths += [sizes[0], *(n - len(CONTINUATION) for n in sizes[1:])]
    starts, ends = normalization.letters(text, self.normalization)
    bounds = np.cumsum([0, *lengths])
    return normalization.EncodedText(
      ids, starts[bounds[:-1]].tolist(), ends[bounds[1:] - 1].tolist()
    )

  def changes(self, piece: str) -> bool:
    return "".join(self.normalization.split(piece)) != piece

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
    return text.replace(normalization.WORD_START, " ").strip()

  def marked_piece(self, id: int) -> str:
    # Special pieces are unchanged. Chinese characters have no spaces around.
    piece = self.id_to_piece(id)
    if piece.startswith(CONTINUATION):
      return piece.removeprefix(CONTINUATION)
    is_special = id in self.special_ids and id != self.unk_id
    if is_special or normalization.is_chinese(piece[0]):
      return piece
    return normalization.WORD_START + piece

  def _starts_word(self, piece: str) -> bool:
    # As in the original, each Chinese character is a word.
    return not piece.startswith(CONTINUATION)
