"""Text to pieces to ids, and back: ALBERT's SentencePiece tokenizer.

`open_tokenizer` makes this one, or the WordPiece tokenizer of `wordpiece` that
the released Chinese models need.

Three steps, each as in the original: the text is normalised (`normalize_text`),
SentencePiece cuts it, and a piece that ends in a digit and a comma is cut once
more, so that "1922," and "1922" share their pieces.
`official_albert.tokenization.in_graph.sentencepiece_layers` does the same
inside a TensorFlow graph.

Reference: google-research/albert tokenization.py (preprocess_text,
encode_pieces, FullTokenizer) and create_pretraining_data.py
(_is_start_piece_sp).
"""

from __future__ import annotations

import functools
import hashlib
import os
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Union

import numpy as np
import sentencepiece

from official_albert.tokenization import text_offsets, wordpiece

WORD_START = wordpiece.WORD_START  # Of a space before the piece.
SPECIAL_PIECES = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")

_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz")
# Scripts that put spaces between words, as their characters' names begin.
_SPACED_SCRIPTS = frozenset(
  "LATIN GREEK CYRILLIC ARMENIAN HEBREW ARABIC SYRIAC DEVANAGARI BENGALI "
  "GURMUKHI GUJARATI ORIYA TAMIL TELUGU KANNADA MALAYALAM SINHALA GEORGIAN "
  "ETHIOPIC CHEROKEE MONGOLIAN HANGUL MODIFIER".split()
)
_PUNCTUATION = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~')
_TRAIN_ADVICE = "`python -m tools.train_vocabulary` makes a fitting one"


def normalize_text(text: str, lower_case: bool) -> str:
  """Puts text in the form that the vocabulary was trained on.

  Runs of whitespace become one space, none at the ends; NFKD; every combining
  character (`unicodedata.combining`) is dropped; lower case if asked for. No
  quotation marks are rewritten: ports of the tokenizer that do so differ from
  the original. Half a surrogate pair, which is not a character, is dropped
  like the original drops bytes that are not UTF-8.
  """
  if not text.isascii():
    text = text.encode("utf-8", "ignore").decode("utf-8")
  text = " ".join(text.split())
  if not text.isascii():
    text = unicodedata.normalize("NFKD", text)
    # A text has few different characters: look at each of them once.
    marks = [char for char in set(text) if unicodedata.combining(char)]
    if marks:
      text = text.translate(dict.fromkeys(map(ord, marks)))
  return text.lower() if lower_case else text


@functools.cache
def _forms(lower_case: bool) -> text_offsets.FormTable:
  """What `normalize_text` makes of each character."""

  def form(char: str) -> int:
    if unicodedata.category(char) == "Cs":
      return text_offsets.GONE
    if char.isspace():
      return text_offsets.SPACE
    return text_offsets.visible_form(
      len(normalize_text(char, lower_case)),
      unicodedata.combining(unicodedata.normalize("NFKD", char)[0]) > 0,
    )

  return text_offsets.FormTable(form)


@functools.cache
def _is_word_character(char: str) -> bool:
  """Whether the character, in lower case, can be inside a word."""
  return char in _LETTERS or (
    unicodedata.category(char)[0] in "LM"
    and unicodedata.name(char, "").split(" ")[0] in _SPACED_SCRIPTS
  )


def starts_word(piece: str) -> bool:
  """Whether whole-word masking begins a new word at this piece.

  True for a leading word mark, for a leading "<", for single punctuation
  marks, and for any piece with a character other than a letter or one of
  those marks: digits, apostrophes, other signs. So "..." continues the word
  before it, and so does "[MASK]".

  Deviation: letters are those of all scripts that put spaces between words. In
  the original they are a to z, so that of a Russian or Greek word single
  pieces are masked. As in the original, each piece of text without spaces
  (Chinese, Japanese, Thai, ...) starts a word: such pieces are words or
  characters, and taken together they would be a line that no n-gram fits in.
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
  """Whether a piece is cut once more, into its digits and the comma."""
  return len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()


class SentencePieceTokenizer:
  """The one way from text to ids; picklable, so workers can be handed one.

      tokenizer = SentencePieceTokenizer("30k-clean.model")
      tokenizer.tokenize("In 1922, ...")  # ["▁in", "▁1922", ",", ...]

  Text never becomes a special piece: a literal "[MASK]" is cut like any other
  text, because control pieces are not matched in text.

  Attributes:
    kind: "sentencepiece".
    model_file: the path that was read.
    lower_case: whether text is lower-cased first.
    sha256: of the model file's bytes, in hexadecimal.
    vocab_size: number of pieces V.
    pad_id, unk_id, cls_id, sep_id, mask_id: 0, 1, 2, 3, 4.
    special_ids: ids of all control and unknown pieces.
  """

  kind = "sentencepiece"
  pad_id, unk_id, cls_id, sep_id, mask_id = range(len(SPECIAL_PIECES))

  def __init__(self, model_file: str, lower_case: bool = True):
    """Reads and checks a model.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: not a SentencePiece model, or one without ALBERT's special
        pieces at their ids.
    """
    self.model_file = os.fspath(model_file)
    self.lower_case = lower_case
    if not os.path.isfile(self.model_file):
      raise FileNotFoundError(
        f"there is no SentencePiece model file {self.model_file!r}: check the "
        f"path; {_TRAIN_ADVICE}."
      )
    with open(self.model_file, "rb") as file:
      model = file.read()
    self.sha256 = hashlib.sha256(model).hexdigest()
    self._processor = sentencepiece.SentencePieceProcessor()
    try:
      self._processor.LoadFromSerializedProto(model)
    except RuntimeError as error:
      raise ValueError(
        f"{self.model_file!r} ({len(model):,} bytes) is not a SentencePiece "
        "model: give the .model file, not .vocab or text, and check that its "
        f"download is complete; {_TRAIN_ADVICE}."
      ) from error
    self.vocab_size = self._processor.get_piece_size()
    ids = range(self.vocab_size)
    self._pieces = [self._processor.id_to_piece(i) for i in ids]
    self._check_special_pieces()
    self.special_ids = frozenset(
      i
      for i in ids
      if self._processor.is_control(i) or self._processor.is_unknown(i)
    )
    self._split_pieces = {
      piece: self._split_digit_comma(piece)
      for piece in self._pieces
      if ends_in_digit_comma(piece)
    }
    self._split_ids = {
      self.piece_to_id(piece): [self.piece_to_id(part) for part in parts]
      for piece, parts in self._split_pieces.items()
    }
    self._ids_to_split = frozenset(self._split_ids)

  def _check_special_pieces(self) -> None:
    for expected, piece in enumerate(SPECIAL_PIECES):
      if self._pieces[expected : expected + 1] != [piece]:
        place = (
          f"at id {self._pieces.index(piece)}"
          if piece in self._pieces
          else "nowhere"
        )
        raise ValueError(
          f"{self.model_file!r} has the piece {piece} {place}, but ALBERT "
          f"needs it at id {expected}: train the vocabulary with "
          f"{', '.join(SPECIAL_PIECES)} at ids 0 to 4; {_TRAIN_ADVICE}."
        )

  def _split_digit_comma(self, piece: str) -> list[str]:
    # Cut afresh, the digits begin with a word mark even if `piece` is within
    # a word: "(9," gives "(", "▁9", ",". The original means to take that mark
    # off, but compares a str with bytes and never does; every model trained
    # with it has seen the mark, so it stays. (No piece of the released
    # vocabulary is of that kind.)
    digits = piece[:-1].replace(WORD_START, "")
    return self._processor.encode(digits, out_type=str) + [","]

  def tokenize(self, text: str) -> list[str]:
    """The pieces of a text; an unknown stretch stays as it was written."""
    pieces = self._processor.encode(
      normalize_text(text, self.lower_case), out_type=str
    )
    if self._split_pieces.keys().isdisjoint(pieces):
      return pieces
    return [
      part
      for piece in pieces
      for part in self._split_pieces.get(piece, (piece,))
    ]

  def encode(self, text: str) -> list[int]:
    """The ids of `tokenize(text)`, without [CLS] and [SEP]."""
    # Not a batch of one, for which SentencePiece would start a thread.
    return self._cut(
      self._processor.encode(
        normalize_text(text, self.lower_case), out_type=int
      )
    )

  def _cut(self, row: list[int]) -> list[int]:
    if self._ids_to_split.isdisjoint(row):  # All but one row in sixteen.
      return row
    return [part for i in row for part in self._split_ids.get(i, (i,))]

  def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
    """`[encode(text) for text in texts]` in one call, on one thread.

    Raises:
      TypeError: `texts` is a single string.
    """
    if isinstance(texts, (str, bytes)):
      raise TypeError(
        "encode_batch takes a list of texts; encode takes a single one."
      )
    rows = self._processor.encode(
      [normalize_text(text, self.lower_case) for text in texts],
      out_type=int,
      num_threads=1,  # Workers are processes; more threads would fight them.
    )
    return [self._cut(row) for row in rows]

  def encode_with_offsets(self, text: str) -> text_offsets.EncodedText:
    """`encode(text)`, and which characters of `text` each id comes from.

    A span begins with no white space; a piece that is a space only has an
    empty one. In time linear in the text's length. The original searches for
    the longest common subsequence of text and pieces.

    Raises:
      ValueError: the model cuts unknown characters into bytes.
    """
    normal = normalize_text(text, self.lower_case)
    ids = self._processor.encode(normal, out_type=int)
    if not ids:
      return text_offsets.EncodedText([], [], [])
    if self.unk_id in ids:  # What was unknown has to be seen as written.
      pieces = self._processor.encode(normal, out_type=str)
    else:
      pieces = [self._pieces[i] for i in ids]
    joined = "".join(pieces)
    ids, spans = text_offsets.piece_spans(ids, pieces, self._cuts)
    if joined == WORD_START + normal.replace(" ", WORD_START):
      # SentencePiece added a space and changed nothing: nearly every text.
      spans = text_offsets.Spans(spans.starts - 1, spans.ends - 1)
    else:
      seen, offsets = self._processor.normalize(normal, with_offsets=True)
      if seen != joined:
        raise ValueError(
          f"{self.model_file!r} cuts unknown characters into bytes, so that "
          "pieces have no place in the text; train a vocabulary without "
          f"byte_fallback; {_TRAIN_ADVICE}."
        )
      alone = {c: self._processor.normalize(c) for c in set(normal)}
      # A model may write a space behind whatever it is given, even nothing.
      visible = {c for c, form in alone.items() if form.strip(WORD_START)}
      outer = text_offsets.normalizer_spans(
        offsets, [char in visible for char in normal]
      )
      spans = text_offsets.compose(spans, outer)
    if not (text.isascii() and len(normal) == len(text)):
      outer = text_offsets.character_spans(text, _forms(self.lower_case))
      spans = text_offsets.compose(spans, outer)
    return text_offsets.EncodedText(
      ids, spans.starts.tolist(), spans.ends.tolist()
    )

  @functools.cached_property
  def _cuts(self) -> dict[int, list[tuple[int, int, int]]]:
    """Of pieces like "9,": parts, and from where to where they go in it."""
    cuts: dict[int, list[tuple[int, int, int]]] = {}
    for piece, parts in self._split_pieces.items():
      # The parts are cut from the piece without its marks.
      places = [i for i, char in enumerate(piece) if char != WORD_START]
      cut, end = [], 0
      for part in parts:
        begin, end = end, end + len(part.replace(WORD_START, ""))
        first = places[begin]
        last = places[end - 1] + 1 if end > begin else first
        cut.append((self.piece_to_id(part), first, last))
      cuts[self.piece_to_id(piece)] = cut
    return cuts

  def decode(self, ids: Iterable[int]) -> str:
    """Readable text; special pieces other than <unk> leave no trace.

    Raises:
      ValueError: an id is outside the vocabulary.
    """
    return self._processor.decode([self._checked_id(i) for i in ids])

  def piece_to_id(self, piece: str) -> int:
    """The id of a piece, `unk_id` if the vocabulary lacks it."""
    return self._processor.piece_to_id(piece)

  def id_to_piece(self, id: int) -> str:
    """The piece with this id.

    Raises:
      ValueError: the id is outside the vocabulary.
    """
    return self._pieces[self._checked_id(id)]

  def marked_piece(self, id: int) -> str:
    """`id_to_piece`, as both kinds of tokenizers write it: "▁" is a space."""
    return self.id_to_piece(id)

  def _checked_id(self, id: int) -> int:
    if not 0 <= id < self.vocab_size:
      raise ValueError(
        f"id {id} is outside the vocabulary of {self.vocab_size} pieces: was "
        "it made with another tokenizer?"
      )
    return int(id)

  @functools.cached_property
  def word_start_table(self) -> np.ndarray:
    """<bool>[V]: `starts_word` of every piece, for lookup by id.

    Deviation: the original asks for the written form of an unknown piece;
    here every <unk> starts a word, as its name does. They differ only for
    letters a-z that the vocabulary lacks.
    """
    table = np.array([starts_word(piece) for piece in self._pieces])
    table.setflags(write=False)
    return table


WordPieceTokenizer = wordpiece.WordPieceTokenizer
Tokenizer = Union[SentencePieceTokenizer, WordPieceTokenizer]


def open_tokenizer(
  spm_model_file: str = "", vocab_file: str = "", lower_case: bool = True
) -> Tokenizer:
  """The tokenizer of whichever file is given.

  Raises:
    FileNotFoundError: it is not there.
    ValueError: none or both are given, or the file is of no use.
  """
  if bool(spm_model_file) == bool(vocab_file):
    raise ValueError(
      "give either spm_model_file (SentencePiece) or vocab_file (WordPiece, "
      "for the released zh models), and not both."
    )
  if vocab_file:
    return WordPieceTokenizer(vocab_file, lower_case)
  return SentencePieceTokenizer(spm_model_file, lower_case)
