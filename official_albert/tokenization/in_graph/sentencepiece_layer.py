"""The SentencePiece tokenizer in the graph, for models that take raw text.

It equals `tokenization.SentencePieceTokenizer` except in rare cases, as of
tensorflow_text 2.15.0 and 2.20.1:

- They agree on all 420 golden lines, lower-cased and cased.
- Python and TensorFlow know different versions of Unicode: Python 3.10 has 13,
  3.11 has 14, 3.12 and 3.13 have 15. tensorflow_text decomposes by Unicode 12
  in version 2.15 and by 16 in 2.20, and TensorFlow lower-cases by 13. So 12
  characters with Python 3.10, 111 with 3.11 and 96 with 3.12 and 3.13 are
  normalized by one of them only: LCD digits, phonetic letters, some historic
  scripts, as listed in text_layers_test.py. A capital sigma beside such a
  character may get its other lower-case form.
- Two splits of a word may have the same score. tensorflow_text contains an
  older SentencePiece, and the Python package prefers the other split since
  version 0.2.2 ("66 6", not "6 66"). This affects 1 of 31,200 lines of
  Wikipedia, and none with version 0.2.1.

Reference: google-research/albert tokenization.py (preprocess_text,
encode_pieces).
"""

from __future__ import annotations

import unicodedata
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_text

from official_albert import tokenization
from official_albert.tokenization.in_graph import text_layer

# See `SentencePieceTextLayer.shorten`. Pieces have up to 16 characters.
_TEXT_BYTES, _TOKEN_BYTES = 2**15, 64
# A noncharacter, which does not occur in text.
_NUL_STAND_IN = "\uffff"


class CutTexts(NamedTuple):
  """Pieces with their positions in normalized texts.

  Attributes:
    ids: a RaggedTensor <int32>[B, (pieces)] with K pieces in all.
    begins: <int64>[K], the first byte that each piece comes from, including
      spaces before it.
    ends: <int64>[K], exclusive.
    first: <int32>[K], the first of the visible characters in those bytes that
      belongs to the piece. It is 0 unless a piece of digits and a comma was
      split. Spaces and characters that SentencePiece drops are not counted.
    last: <int32>[K], exclusive; -1 means up to the end.
  """

  ids: tf.RaggedTensor
  begins: tf.Tensor
  ends: tf.Tensor
  first: tf.Tensor
  last: tf.Tensor


class SentencePieceTextLayer(text_layer.TextLayer):
  """A `TextLayer` equal to `tokenization.SentencePieceTokenizer`."""

  def __init__(self, model_file: str, lower_case: bool = True, **rules: Any):
    python = tokenization.SentencePieceTokenizer(
      model_file, lower_case, **rules
    )
    super().__init__(python)
    self._tokenizer = tensorflow_text.SentencepieceTokenizer(
      model=python.model, out_type=tf.int32
    )
    # See `expand`. Otherwise, NFKD has already made characters longer.
    self._longer = python.longer_characters() if self.keep_accents else {}
    ids = range(self.vocab_size)
    self._inner_ids = _inner_id_table([python.id_to_piece(i) for i in ids])
    # Row i lists the ids that replace id i, which is id i itself for most. Each
    # id comes with `first` and `last` of `CutTexts`.
    rows = [python.digit_comma_parts.get(i, [(i, 0, -1)]) for i in ids]
    self._parts = np.array([part for row in rows for part in row], np.int32)
    self._part_splits = np.cumsum([0, *map(len, rows)], dtype=np.int64)

  def normalize(self, texts: tf.Tensor) -> tf.Tensor:
    """Applies `tokenization.normalize_text` to strings of any shape.

    NUL becomes U+FFFF. No vocabulary has either of them.
    """
    space = text_layer.character_class(str.isspace)
    marks = text_layer.character_class(unicodedata.combining)
    texts = tf.strings.unicode_transcode(
      texts, "UTF-8", "UTF-8", errors="ignore"
    )
    texts = tf.strings.regex_replace(texts, f"{space}+", " ")
    texts = tf.strings.regex_replace(texts, "^ | $", "")
    if not self.keep_accents:
      texts = tensorflow_text.normalize_utf8(texts, "NFKD")
      texts = tf.strings.regex_replace(texts, marks, "")
    if not self.lower_case:
      return texts
    # The Unicode operation ends a string at its first NUL and depends on the
    # locale of the process: a Turkish locale changes "I" to a dotless i. So NUL
    # is replaced, and ASCII is lower-cased first.
    texts = tf.strings.regex_replace(texts, r"\x00", _NUL_STAND_IN)
    return tf.strings.lower(tf.strings.lower(texts), encoding="utf-8")

  def expand(self, texts: tf.Tensor) -> tf.Tensor:
    """Makes characters of <string>[B] as long as SentencePiece makes them.

    Offsets within a longer character would be lost otherwise. The pieces only
    change if a mark follows such a character, as in "\ufb01\u0301".
    """
    if not self._longer:
      return texts
    known = tf.constant(sorted(map(ord, self._longer)))
    longer = tf.constant([self._longer[c] for c in sorted(self._longer)])
    chars = tf.strings.unicode_split(texts, "UTF-8", errors="ignore")
    codes = tf.strings.unicode_decode(texts, "UTF-8", errors="ignore")
    place = tf.searchsorted(known, codes.flat_values)
    place = tf.minimum(place, len(self._longer) - 1)
    is_known = tf.equal(tf.gather(known, place), codes.flat_values)
    chars = chars.with_flat_values(
      tf.where(is_known, tf.gather(longer, place), chars.flat_values)
    )
    return tf.strings.reduce_join(chars, axis=1)

  def shorten(self, texts: tf.Tensor, most: int) -> tf.Tensor:
    """Cuts texts at 32 KiB, or at 64 bytes for each id if that is more.

    SentencePiece's time grows with the square of a run of characters that it
    does not know: 1.4 s for 256 KiB, half an hour for 10 MB. A run of spaces
    counts as one.
    """
    space = text_layer.character_class(str.isspace)
    texts = tf.strings.regex_replace(texts, f"{space}{{2,}}", " ")
    return tf.strings.substr(texts, 0, max(_TEXT_BYTES, _TOKEN_BYTES * most))

  def tokenize(self, texts: tf.Tensor, most: int = 0) -> tf.RaggedTensor:
    texts = text_layer.check_texts(texts)
    if most:
      texts = self.shorten(texts, most)
    parts = self._parts_of(self._tokenizer.tokenize(self.normalize(texts)))
    ids = tf.gather(tf.constant(self._parts[:, 0]), parts.flat_values)
    return parts.with_flat_values(ids).merge_dims(1, 2)

  def _parts_of(self, ids: tf.RaggedTensor) -> tf.RaggedTensor:
    """Maps <int32>[B, (pieces)] to rows of `_parts`, [B, (pieces), (1+)]."""
    table = tf.RaggedTensor.from_row_splits(
      tf.range(len(self._parts)), tf.constant(self._part_splits), validate=False
    )
    return ids.with_flat_values(tf.gather(table, ids.flat_values))

  def cut(self, normal: tf.Tensor) -> CutTexts:
    """Returns the pieces of normalized texts <string>[B], with positions."""
    ids, begins, ends = self._tokenizer.tokenize_with_offsets(normal)
    parts = self._parts_of(ids)
    row = tf.gather(tf.constant(self._parts), parts.flat_values)
    piece = parts.values.value_rowids()
    return CutTexts(
      parts.with_flat_values(row[:, 0]).merge_dims(1, 2),
      tf.gather(begins.flat_values, piece),
      tf.gather(ends.flat_values, piece),
      row[:, 1],
      row[:, 2],
    )

  def without_word_start(self, ids: tf.Tensor) -> tf.Tensor:
    # "▁able" becomes "able" if the vocabulary has it. The bare word mark is
    # removed. Other pieces do not change.
    return tf.gather(tf.constant(self._inner_ids), ids)

  def pieces(self, ids: tf.Tensor) -> tf.Tensor:
    ids = tf.cast(ids, tf.int32)
    # id_to_string does not check its range and would crash the process, so it
    # must run after this check.
    inside = tf.debugging.Assert(
      tf.reduce_all((ids >= 0) & (ids < self.vocab_size)),
      [f"an id is outside the vocabulary of {self.vocab_size} pieces:", ids],
    )
    with tf.control_dependencies([] if inside is None else [inside]):
      return self._tokenizer.id_to_string(tf.identity(ids))


def _inner_id_table(pieces: list[str]) -> np.ndarray:
  mark = tokenization.WORD_START
  id_of = {piece: i for i, piece in enumerate(pieces)}
  table = np.arange(len(pieces), dtype=np.int32)
  for i, piece in enumerate(pieces):
    if piece.startswith(mark):
      table[i] = -1 if piece == mark else id_of.get(piece[len(mark) :], i)
  return table
