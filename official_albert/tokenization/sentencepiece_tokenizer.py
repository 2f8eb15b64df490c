"""ALBERT's SentencePiece tokenizer: text to pieces to ids, and back.

Tokenization has three steps, each as in the original. `normalize_text`
normalizes the text, SentencePiece splits it, and a piece that ends in a digit
and a comma is split again, so that "1922," and "1922" share their pieces. The
module `in_graph` does the same inside a TensorFlow graph.

Reference: google-research/albert tokenization.py (preprocess_text,
encode_pieces, FullTokenizer) and create_pretraining_data.py
(_is_start_piece_sp).
"""

from __future__ import annotations

import functools
import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Optional, Union

import numpy as np
import sentencepiece

from official_albert.tokenization import (
  file_tokenizer,
  normalization,
  text_offsets,
  wordpiece,
)

WORD_START = text_offsets.WORD_START
SPECIAL_PIECES = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
_CONTROL_IDS = tuple(
  i for i, piece in enumerate(SPECIAL_PIECES) if piece != "<unk>"
)

# Scripts with spaces between words: the first word of their Unicode names.
_SPACED_SCRIPTS = frozenset(
  "LATIN GREEK CYRILLIC ARMENIAN HEBREW ARABIC SYRIAC DEVANAGARI BENGALI "
  "GURMUKHI GUJARATI ORIYA TAMIL TELUGU KANNADA MALAYALAM SINHALA GEORGIAN "
  "ETHIOPIC CHEROKEE MONGOLIAN HANGUL MODIFIER".split()
)
_PUNCTUATION = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~')
_WHOLE = 1 << 20  # More characters than a piece has.
_TRAIN_ADVICE = "`python -m tools.train_vocabulary` trains a suitable one"


def normalize_text(
  text: str, lower_case: bool, keep_accents: bool = False
) -> str:
  """Normalizes text in the same way as to train the vocabulary.

  Merges whitespace, strips the ends, applies NFKD, removes combining characters
  (`unicodedata.combining`), and optionally lower-cases. With `keep_accents`,
  there is no NFKD and nothing is removed; the rules in a SentencePiece model,
  NFKC by default, follow in any case. Quotation marks stay;
  ports of the tokenizer that rewrite them differ from the original. Unpaired
  surrogates are removed, as the original removes bytes that are not UTF-8.
  """
  return _normalize(text, normalization.make(lower_case, keep_accents))


def _normalize(text: str, normal: normalization.Normalization) -> str:
  if not text.isascii():
    text = text.encode("utf-8", "ignore").decode("utf-8")
  return normal(" ".join(text.split()))


@functools.cache
def _is_word_character(char: str) -> bool:
  """Returns whether the lower-case character can be inside a word."""
  return (
    unicodedata.category(char)[0] in "LM"
    and unicodedata.name(char, "").split(" ")[0] in _SPACED_SCRIPTS
  )


def starts_word(piece: str) -> bool:
  """Returns whether whole-word masking begins a new word at this piece.

  This is true for a leading word mark, a leading "<", a single punctuation
  mark, and any piece with a character other than letters and punctuation marks,
  such as a digit or an apostrophe. So "..." and "[MASK]" continue the word
  before them.

  Deviation: letters are those of all scripts with spaces between words. The
  original only accepts a to z, so it masks single pieces of a Russian or Greek
  word. As in the original, each piece of a text without spaces (Chinese,
  Japanese, Thai, ...) starts a word. Otherwise a whole line would be one word,
  which is longer than any n-gram.

  Deviation: "<unk>" starts a word, because it begins with "<". The original
  looks at the characters of the unknown piece. Both differ only for letters a
  to z that are not in the vocabulary.
  """
  return (
    piece.startswith((WORD_START, "<"))
    or piece in _PUNCTUATION
    or any(
      char not in _PUNCTUATION and not _is_word_character(char)
      for char in piece.lower()
    )
  )


def ends_in_digit_comma(piece: str) -> bool:
  """Returns whether a piece is split again into digits and comma."""
  return len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()


def _with_control_pieces(content: bytes) -> bytes:
  """Makes the special pieces of a model control pieces."""
  # Few models need it, and all data workers would load it.
  from sentencepiece import sentencepiece_model_pb2

  model = sentencepiece_model_pb2.ModelProto.FromString(content)
  for i in _CONTROL_IDS:
    model.pieces[i].type = model.pieces[i].CONTROL
  return model.SerializeToString()


class SentencePieceTokenizer(file_tokenizer.FileTokenizer):
  """A `FileTokenizer` with a SentencePiece model.

  >>> from official_albert.tokenization import SentencePieceTokenizer
  >>> tokenizer = SentencePieceTokenizer("quickstart/tokenizer.model")
  >>> tokenizer.tokenize("A sunny day.")
  ['▁a', '▁sunny', '▁day', '.']
  >>> tokenizer.decode(tokenizer.encode("A sunny day"))
  'a sunny day'

  The constructor raises ValueError if the file is not a SentencePiece model or
  does not have ALBERT's special pieces at ids 0 to 4.

  Attributes:
    model: the content of the file, but with all special pieces as control
      pieces, which text never becomes.
    digit_comma_parts: for each id whose piece ends in a digit and a comma, the
      parts that replace it: the id of each part, and its range within the
      piece, in characters without word marks.
  """

  kind = "sentencepiece"
  _what, _advice = "SentencePiece model file", _TRAIN_ADVICE
  pad_id, unk_id, cls_id, sep_id, mask_id = range(len(SPECIAL_PIECES))

  def _load(self, content: bytes) -> None:
    self._processor = sentencepiece.SentencePieceProcessor()
    self.model = content
    try:
      self._processor.LoadFromSerializedProto(content)
      self.vocab_size = self._processor.get_piece_size()
      ids = range(self.vocab_size)
      self._pieces = [self._processor.id_to_piece(i) for i in ids]
    except (RuntimeError, UnicodeDecodeError) as error:
      raise ValueError(
        f"{self.model_file!r} ({len(content):,} bytes) is not a SentencePiece "
        "model: give the .model file, not .vocab or text, and check that the "
        f"download is complete; {_TRAIN_ADVICE}."
      ) from error
    for expected, piece in enumerate(SPECIAL_PIECES):
      if self._pieces[expected : expected + 1] != [piece]:
        raise ValueError(
          f"{self.model_file!r} lacks {piece} at id {expected}: ALBERT's "
          f"vocabularies begin with {', '.join(SPECIAL_PIECES)}; "
          f"{_TRAIN_ADVICE}."
        )
    if self._processor.unk_id() != self.unk_id:
      raise ValueError(
        f"{self.model_file!r} has <unk> at id {self.unk_id}, but gives id "
        f"{self._processor.unk_id()} to unknown text: {_TRAIN_ADVICE}."
      )
    mark = self._processor.piece_to_id(WORD_START)
    if self._processor.is_control(mark) or self._processor.is_unused(mark):
      raise ValueError(
        f"{self.model_file!r} has {WORD_START}, the space, as a control or "
        "unused piece, so that spaces in a text would be unknown: make it a "
        f"normal piece; {_TRAIN_ADVICE}."
      )
    if not all(map(self._processor.is_control, _CONTROL_IDS)):
      # A model with user_defined_symbols=[CLS],[SEP],[MASK] would find them in
      # text.
      self.model = _with_control_pieces(content)
      self._processor.LoadFromSerializedProto(self.model)
    self.special_ids = frozenset(
      i
      for i in ids
      if self._processor.is_control(i) or self._processor.is_unknown(i)
    )
    # Digits are encoded as a separate text, so they begin with a word mark even
    # inside a word: "(9," becomes "(", "▁9", ",". The original tries to remove
    # this mark but never does, because it compares a str with bytes. Models
    # were trained with the mark, so it stays here. (The released vocabulary has
    # no such piece.)
    self.digit_comma_parts = {
      i: self._split_piece(piece)
      for i, piece in enumerate(self._pieces)
      if ends_in_digit_comma(piece)
    }

  def normalize(self, text: str) -> str:
    """Returns `normalize_text(text)` by the tokenizer's rules."""
    return _normalize(text, self.normalization)

  @functools.cached_property
  def _has_bytes(self) -> bool:
    return any(map(self._processor.is_byte, range(self.vocab_size)))

  def check_offsets(self) -> None:
    """Raises ValueError if pieces have no offsets."""
    if self._has_bytes:
      raise ValueError(
        f"{self.model_file!r} splits unknown characters into bytes, so its "
        "pieces have no offsets: use a vocabulary without byte_fallback; "
        f"{_TRAIN_ADVICE}."
      )

  def _pieces_of(self, normal: str) -> list[str]:
    return self._to_text(self._processor.encode, normal, out_type=str)

  def _to_text(
    self, method: Callable[..., Any], *args: Any, **options: Any
  ) -> Any:
    try:
      return method(*args, **options)
    except UnicodeDecodeError as error:
      raise ValueError(
        f"{self.model_file!r} is damaged, because its rules turn a text into "
        "bytes that are not UTF-8: copy it again."
      ) from error

  def _split_piece(self, piece: str) -> list[tuple[int, int, int]]:
    parts, end = [], 0
    for part in [*self._pieces_of(piece[:-1].replace(WORD_START, "")), ","]:
      begin, end = end, end + len(part.replace(WORD_START, ""))
      parts.append((self.piece_to_id(part), begin, end))
    return parts

  def tokenize(self, text: str) -> list[str]:
    """Returns the pieces of a text; unknown characters stay unchanged."""
    pieces: list[str] = []
    for piece in self._pieces_of(self.normalize(text)):
      parts = self.digit_comma_parts.get(self.piece_to_id(piece))
      pieces += [self._pieces[i] for i, _, _ in parts] if parts else [piece]
    return pieces

  def encode(self, text: str) -> list[int]:
    # SentencePiece would start a thread for a batch, even of one text.
    normal = self.normalize(text)
    return self._split_again(self._processor.encode(normal, out_type=int))

  def _split_again(self, row: list[int]) -> list[int]:
    if self.digit_comma_parts.keys().isdisjoint(row):  # 15 of 16 rows.
      return row
    ids: list[int] = []
    for i in row:
      parts = self.digit_comma_parts.get(i)
      ids += [part for part, _, _ in parts] if parts else [i]
    return ids

  def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
    if isinstance(texts, str):
      raise TypeError("encode_batch takes a list of texts; use encode for one.")
    rows = self._processor.encode(
      [self.normalize(text) for text in texts],
      out_type=int,
      num_threads=1,  # Worker processes already use all cores.
    )
    return [self._split_again(row) for row in rows]

  def encode_with_offsets(self, text: str) -> text_offsets.EncodedText:
    """Returns `encode(text)` with the characters that each id comes from.

    Ranges do not begin with whitespace; a piece that is only a space has an
    empty range. This takes linear time, while the original searches for the
    longest common subsequence of text and pieces.

    If the model's own rules make a character longer, it belongs to the pieces
    that begin within it. ALBERT's models have such rules only for text that
    keeps its accents, such as "\u00bd".

    Raises:
      ValueError: the model splits unknown characters into bytes.
    """
    from sentencepiece import sentencepiece_pb2  # Only SQuAD needs it.

    self.check_offsets()
    normal = self.normalize(text)
    content = self._to_text(
      self._processor.encode, normal, out_type="serialized_proto"
    )
    pieces = sentencepiece_pb2.SentencePieceText.FromString(content).pieces
    if not pieces:
      return text_offsets.EncodedText([], [], [])
    numbers = [x for piece in pieces for x in (piece.id, len(piece.surface))]
    ids, sizes = np.array(numbers).reshape(-1, 2).T
    # Where each piece ends; spaces at the start of the text are in no piece.
    after = len(normal.encode()[: pieces[0].begin].decode()) + np.cumsum(sizes)
    codes = np.frombuffer(normal.encode("utf-32-le"), np.uint32)
    visible = ~self.hidden_characters[codes]
    # The visible characters before each character.
    seen = np.append(0, np.cumsum(visible))
    first, last = seen[after - sizes], seen[after]
    # Parts of pieces, as in the graph.
    splits, table = self.part_table
    counts = splits[ids + 1] - splits[ids]
    piece = np.repeat(np.arange(len(ids)), counts)
    row = np.arange(len(piece)) + (splits[ids + 1] - np.cumsum(counts))[piece]
    parts, i, j, is_space = table[row].T
    first, last = first[piece], last[piece]
    # A piece may be a part of a character.
    last = np.where(is_space, last, np.maximum(last, first + 1))
    last, first = (
      np.minimum(first + j, last),
      np.minimum(first + i, np.maximum(last - 1, first)),
    )
    starts, ends = text_offsets.letters(text, self.normalization)
    # A space starts at the next character, visible or not.
    places = np.append(np.flatnonzero(visible), len(normal))
    at = np.where(is_space, after[piece], places[first])
    start = np.append(starts, ends[-1])[at]
    end = np.append(0, ends[visible])[last]
    end = np.maximum.accumulate(np.maximum(start, end))
    return text_offsets.EncodedText(
      parts.tolist(), start.tolist(), end.tolist()
    )

  def changes(self, piece: str) -> bool:
    text = piece.replace(WORD_START, " ").strip()
    return self._own_form(self.normalize(text)) != piece.strip(WORD_START)

  @functools.cached_property
  def part_table(self) -> tuple[np.ndarray, np.ndarray]:
    """The parts of each piece, which is its own part for most.

    Where the rows of each id begin and end, <int32>[V + 1]; and rows <int32>[R,
    4]: the id of a part, its range in the visible characters of the piece, and
    whether it is only a space.
    """
    parts = [
      self.digit_comma_parts.get(i) or [(i, 0, _WHOLE)]
      for i in range(self.vocab_size)
    ]
    rows = [
      (*part, not piece.strip(WORD_START))
      for piece, row in zip(self._pieces, parts)
      for part in row
    ]
    splits = np.cumsum([0, *map(len, parts)], dtype=np.int32)
    return splits, np.array(rows, np.int32)

  @functools.cached_property
  def hidden_characters(self) -> np.ndarray:
    """Whether the model's own rules drop a character or make it a space.

    <bool>[0x110000].
    """
    hidden = np.zeros(sys.maxunicode + 1, bool)
    hidden[ord(WORD_START)] = True
    for code in range(0, len(hidden), 256):
      page = "".join(map(chr, range(code, code + 256)))
      if not "\ud800" <= page < "\ue000" and self._own_form(page) != page:
        hidden[code : code + 256] = [not self._own_form(char) for char in page]
    return hidden

  def _own_form(self, text: str) -> str:
    return self._to_text(self._processor.normalize, text).strip(WORD_START)

  def decode(self, ids: Iterable[int]) -> str:
    ids = [int(i) for i in ids]
    for i in ids:
      self.id_to_piece(i)  # SentencePiece would crash without a message.
    return self._processor.decode(ids)

  def piece_to_id(self, piece: str) -> int:
    return self._processor.piece_to_id(piece)

  def _starts_word(self, piece: str) -> bool:
    return starts_word(piece)


WordPieceTokenizer = wordpiece.WordPieceTokenizer
Tokenizer = Union[SentencePieceTokenizer, WordPieceTokenizer]
# The classes by the kinds of their files.
TOKENIZERS: dict[str, type[Tokenizer]] = {
  "sentencepiece": SentencePieceTokenizer,
  "wordpiece": WordPieceTokenizer,
}


def open_tokenizer(
  spm_model_file: str = "",
  vocab_file: str = "",
  lower_case: bool = True,
  keep_accents: Optional[bool] = None,
  **rules: Any,
) -> Tokenizer:
  """Opens the SentencePiece model or the WordPiece vocabulary that is given.

  `rules` are further fields of `TextRules`.

  Raises:
    FileNotFoundError: the file does not exist.
    ValueError: no file or both files are given, or the file is invalid.
  """
  if bool(spm_model_file) == bool(vocab_file):
    raise ValueError(
      "give either spm_model_file (SentencePiece) or vocab_file (WordPiece, "
      "for the released zh models), and not both."
    )
  if vocab_file:
    kind, file = "wordpiece", vocab_file
  else:
    kind, file = "sentencepiece", spm_model_file
  return TOKENIZERS[kind](file, lower_case, keep_accents=keep_accents, **rules)
