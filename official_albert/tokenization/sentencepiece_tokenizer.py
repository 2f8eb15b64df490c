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
import math
import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Optional, Union

import sentencepiece
from google.protobuf import message
from sentencepiece import sentencepiece_model_pb2

from official_albert import files
from official_albert.tokenization import (
  file_tokenizer,
  normalization,
  wordpiece,
)

WORD_START = normalization.WORD_START
SPECIAL_PIECES = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
_CONTROL_IDS = (0, 2, 3, 4)  # All but that of <unk>.

# Scripts with spaces between words: the first word of their Unicode names.
_SPACED_SCRIPTS = frozenset(
  "LATIN GREEK CYRILLIC ARMENIAN HEBREW ARABIC SYRIAC DEVANAGARI BENGALI "
  "GURMUKHI GUJARATI ORIYA TAMIL TELUGU KANNADA MALAYALAM SINHALA GEORGIAN "
  "ETHIOPIC CHEROKEE MONGOLIAN HANGUL MODIFIER".split()
)
_PUNCTUATION = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~')
# The scores of so many pieces have an exact sum.
_EXACT_PIECES = 512
_TRAIN_ADVICE = "`python -m tools.train_vocabulary` trains a suitable one"


def normalize_text(
  text: str, lower_case: bool, keep_accents: bool = False
) -> str:
  """Normalizes text in the same way as to train the vocabulary.

  Merges whitespace, strips the ends, applies NFKD, removes combining characters
  (`unicodedata.combining`), and optionally lower-cases. With `keep_accents`,
  there is no NFKD and nothing is removed. The rules in a SentencePiece model,
  NFKC by default, follow. Quotation marks stay, unlike in other ports. Unpaired
  surrogates are removed, as the original removes bytes that are not UTF-8.
  """
  return normalization.make(lower_case, keep_accents)(text)


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


def round_scores(model: sentencepiece_model_pb2.ModelProto) -> None:
  """Makes the split of a unigram model independent of SentencePiece's version.

  If two splits of a word have almost the same score, as of "soooo", the choice
  depends on rounding errors: TensorFlow Text and SentencePiece up to 0.2.1
  compare a float64 with a float32, and 0.2.2 compares two float32. This rounds
  the scores, so that float32 adds them exactly. Then all versions take the
  first of the best splits.

  User-defined symbols also have other scores in 0.2.2. They become normal
  pieces with the score in TensorFlow Text, unless the model's rules would then
  change them.

  Deviation: the original's choice depends on rounding.

  Raises:
    RuntimeError: a score is not finite; SentencePiece 0.2.2 refuses it, too.
  """
  if model.trainer_spec.model_type != model.trainer_spec.UNIGRAM:
    return
  kinds = model.SentencePiece
  pieces = [p for p in model.pieces if p.type == kinds.NORMAL]
  best = max([0.0, *(piece.score for piece in pieces)])
  symbols = [p for p in model.pieces if p.type == kinds.USER_DEFINED]
  for symbol in symbols:
    symbol.type = kinds.NORMAL
    symbol.score = len(symbol.piece.encode()) * best - 0.1
  pieces += symbols
  if not all(math.isfinite(piece.score) for piece in pieces):
    raise RuntimeError("a score is not finite")
  largest = max((abs(piece.score) for piece in pieces), default=0.0)
  # The float32 of a sum below 2**bits has 24 bits for it.
  _, bits = math.frexp(_EXACT_PIECES * largest)
  unit = 2.0 ** -max(10, 24 - bits)
  for piece in pieces:
    piece.score = round(piece.score / unit) * unit
  if not symbols:
    return
  processor = sentencepiece.SentencePieceProcessor()
  processor.LoadFromSerializedProto(model.SerializeToString())
  for symbol in symbols:
    if f"a{symbol.piece}" not in processor.normalize(f"a{symbol.piece}"):
      symbol.type = kinds.USER_DEFINED


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
    model: the content of the file, but with `round_scores`, and with all
      special pieces as control pieces, which text never becomes.
    digit_comma_parts: for each id whose piece ends in a digit and a comma, the
      parts that replace it: the id of each part, and its range within the
      piece, in characters without word marks.
  """

  kind = "sentencepiece"
  _what, _advice = "SentencePiece model file", _TRAIN_ADVICE
  pad_id, unk_id, cls_id, sep_id, mask_id = range(len(SPECIAL_PIECES))

  def _load(self, content: bytes) -> None:
    self._processor = sentencepiece.SentencePieceProcessor()
    try:
      self._processor.LoadFromSerializedProto(content)
      model = sentencepiece_model_pb2.ModelProto.FromString(content)
      self.vocab_size = self._processor.get_piece_size()
      ids = range(self.vocab_size)
      self._pieces = [self._processor.id_to_piece(i) for i in ids]
    except (RuntimeError, UnicodeDecodeError, message.DecodeError) as error:
      raise ValueError(
        f"{self.model_file!r} ({len(content):,} bytes) is not a SentencePiece "
        "model: give the .model file, not .vocab or text, and check that the "
        f"download is complete; {_TRAIN_ADVICE}."
      ) from error
    self._ids = {piece: i for i, piece in enumerate(self._pieces)}
    mark = self.piece_to_id(WORD_START)
    if (
      (*self._pieces[: len(SPECIAL_PIECES)],) != SPECIAL_PIECES
      or self._processor.unk_id() != self.unk_id
      or self._processor.is_control(mark)
      or self._processor.is_unused(mark)
    ):
      found = files.quote(*self._pieces[: len(SPECIAL_PIECES)])
      raise ValueError(
        f"{self.model_file!r} begins with {found}, but ALBERT's vocabularies "
        f"begin with {', '.join(SPECIAL_PIECES)}, give the id of <unk> to "
        f"unknown text, and have {WORD_START}, the space, as a normal piece: "
        f"{_TRAIN_ADVICE}."
      )
    for i in _CONTROL_IDS:
      # A model with user_defined_symbols=[CLS],[SEP],[MASK] would find them.
      model.pieces[i].type = model.pieces[i].CONTROL
    self._to_text(round_scores, model)
    self.model = model.SerializeToString()
    self._processor.LoadFromSerializedProto(self.model)
    controls = filter(self._processor.is_control, ids)
    self.special_ids = frozenset([self.unk_id, *controls])
    self._has_bytes = any(map(self._processor.is_byte, ids))
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

  def check_offsets(self) -> None:
    """Raises ValueError if pieces have no offsets."""
    if self._has_bytes:
      raise ValueError(
        f"{self.model_file!r} splits unknown characters into bytes, so its "
        "pieces have no offsets: use a vocabulary without byte_fallback; "
        f"{_TRAIN_ADVICE}."
      )

  def _to_text(
    self, method: Callable[..., Any], *args: Any, **options: Any
  ) -> Any:
    try:
      return method(*args, **options)
    except (RuntimeError, UnicodeDecodeError) as error:
      raise ValueError(
        f"{self.model_file!r} is damaged, because it cannot tokenize a text: "
        "copy it again."
      ) from error

  def _split_piece(self, piece: str) -> list[tuple[int, int, int]]:
    digits, parts, end = piece[:-1].replace(WORD_START, ""), [], 0
    found = self._to_text(self._processor.encode, digits, out_type=str)
    for part in [*found, ","]:
      begin, end = end, end + len(part.replace(WORD_START, ""))
      parts.append((self.piece_to_id(part), begin, end))
    return parts

  def tokenize(self, text: str) -> list[str]:
    pieces: list[str] = []
    normal = self.normalization(text)
    for piece in self._to_text(self._processor.encode, normal, out_type=str):
      parts = self.digit_comma_parts.get(self.piece_to_id(piece))
      pieces += [self._pieces[i] for i, _, _ in parts] if parts else [piece]
    return pieces

  def encode(self, text: str) -> list[int]:
    # `encode_batch` would start a thread, which takes as long as 20 texts.
    return self._split_commas(
      self._processor.encode(self.normalization(text), out_type=int)
    )

  def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
    if isinstance(texts, str):
      raise TypeError("encode_batch takes a list of texts; use encode for one.")
    rows = self._processor.encode(
      [self.normalization(text) for text in texts],
      out_type=int,
      num_threads=1,  # Worker processes already use all cores.
    )
    return [self._split_commas(row) for row in rows]

  def _split_commas(self, ids: list[int]) -> list[int]:
    split = self.digit_comma_parts
    if split.keys().isdisjoint(ids):  # 15 of 16 rows.
      return ids
    return [part[0] for i in ids for part in split.get(i) or [(i, 0, 0)]]

  def encode_with_offsets(self, text: str) -> normalization.EncodedText:
    """Returns `encode(text)` with the characters that each id comes from.

    Ranges do not begin with whitespace; that of a space is empty. If the
    model's own rules make a character longer, it belongs to the pieces that
    begin within it. ALBERT's models have such rules only for text that keeps
    its accents, such as "\u00bd". ValueError is raised for a model that splits
    unknown characters into bytes.
    """
    from sentencepiece import sentencepiece_pb2  # Only SQuAD needs it.

    self.check_offsets()
    normal = self.normalization(text)
    content = self._to_text(
      self._processor.encode, normal, out_type="serialized_proto"
    )
    pieces = sentencepiece_pb2.SentencePieceText.FromString(content).pieces
    letters = normalization.letters(text, self.normalization)
    starts, ends = (places.tolist() for places in letters)
    starts += ends[-1:]
    is_shown = [char not in self.hidden_characters for char in normal]
    found = normalization.EncodedText([], [], [])
    last_end = 0
    # Spaces at the start of the text are in no piece.
    after = len(normal.encode()[: pieces[0].begin].decode()) if pieces else 0
    for piece in pieces:
      before, after = after, after + len(piece.surface)
      places = [i for i in range(before, after) if is_shown[i]]
      parts = self.digit_comma_parts.get(piece.id) or [(piece.id, 0, None)]
      for id, first, last in parts:
        if not self._pieces[id].strip(WORD_START):
          # A space is at the next character.
          start = end = starts[(places[first:] or [after])[0]]
        else:
          own = places[first:last] or places[-1:]
          # A piece can be a part of a character, which another one has.
          own = own or [is_shown.index(True, before)]
          start, end = starts[own[0]], ends[own[-1]]
        last_end = max(last_end, start, end)
        for values, value in zip(found, (id, start, last_end)):
          values.append(value)
    return found

  def changes(self, piece: str) -> bool:
    text = piece.replace(WORD_START, " ").strip()
    return self._own_form(self.normalization(text)) != piece.strip(WORD_START)

  @functools.cached_property
  def hidden_characters(self) -> frozenset[str]:
    """What the model's own rules drop or make a space."""
    hidden = {WORD_START}
    for code in range(0, sys.maxunicode, 256):
      page = "".join(map(chr, range(code, code + 256)))
      if not "\ud800" <= page < "\ue000" and self._own_form(page) != page:
        hidden.update(char for char in page if not self._own_form(char))
    return frozenset(hidden)

  def _own_form(self, text: str) -> str:
    return self._to_text(self._processor.normalize, text).strip(WORD_START)

  def decode(self, ids: Iterable[int]) -> str:
    ids = [int(i) for i in ids]
    for i in ids:
      self.id_to_piece(i)  # SentencePiece would crash without a message.
    return self._processor.decode(ids)

  _starts_word = staticmethod(starts_word)


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
  opened = WordPieceTokenizer if vocab_file else SentencePieceTokenizer
  file = vocab_file or spm_model_file
  return opened(file, lower_case, keep_accents=keep_accents, **rules)
