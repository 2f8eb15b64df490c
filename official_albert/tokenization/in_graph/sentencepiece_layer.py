"""The SentencePiece tokenizer in the graph, for models that take raw text.

It equals `tokenization.SentencePieceTokenizer`, except where two splits of a
word have the same score. tensorflow_text contains an older SentencePiece, and
the Python package prefers the other split since version 0.2.2 ("66 6", not
"6 66"). This affects 1 of 31,200 lines of Wikipedia, and none with version
0.2.1.

Reference: google-research/albert tokenization.py (preprocess_text,
encode_pieces).
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_text

from official_albert import tokenization
from official_albert.tokenization.in_graph import (
  normalization_layer,
  text_layer,
)


class SentencePieceTextLayer(text_layer.TextLayer):
  """A `TextLayer` equal to `tokenization.SentencePieceTokenizer`."""

  def __init__(self, model_file: str, lower_case: bool = True, **rules: Any):
    python = tokenization.SentencePieceTokenizer(
      model_file, lower_case, **rules
    )
    super().__init__(python)
    self._python = python
    self._tokenizer = tensorflow_text.SentencepieceTokenizer(
      model=python.model, out_type=tf.int32
    )
    ids = range(self.vocab_size)
    pieces = [python.id_to_piece(i) for i in ids]
    self._inner_ids = _inner_id_table(pieces)
    self._is_space = np.array([i in python.space_ids for i in ids])
    # Rows of the parts that replace each id, which is the id itself for most:
    # the id of a part, and its first and last visible character in the piece.
    parts = [python.digit_comma_parts.get(i, [(i, 0, -1)]) for i in ids]
    self._parts = np.array([part for row in parts for part in row], np.int32)
    self._counts = np.array([*map(len, parts)], np.int32)

  def normalize(self, texts: tf.Tensor) -> tf.Tensor:
    """Applies `tokenization.normalize_text` to strings of any shape."""
    normal = self.normalization(tf.reshape(texts, [-1])).encode()
    return tf.reshape(normal, tf.shape(texts))

  _text_bytes = 2**15

  def shorten(self, texts: tf.Tensor, most: int) -> tf.Tensor:
    """Cuts texts at 32 KiB, or at 64 bytes for each id if that is more.

    SentencePiece's time grows with the square of a run of characters that it
    does not know: 1.4 s for 256 KiB, half an hour for 10 MB. A run of spaces
    counts as one. Pieces have up to 16 characters.
    """
    space = text_layer.character_class(str.isspace)
    texts = tf.strings.regex_replace(texts, f"{space}{{2,}}", " ")
    return super().shorten(texts, most)

  def tokenize(self, texts: tf.Tensor, most: int = 0) -> tf.RaggedTensor:
    texts = text_layer.check_texts(texts)
    if most:
      texts = self.shorten(texts, most)
    normal = self.normalization(texts).encode()
    return self._parts_of(self._tokenizer.tokenize(normal))[0]

  def _parts_of(
    self, ids: tf.RaggedTensor
  ) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
    """Splits pieces of digits and a comma: <int32>[B, (pieces)] to K parts.

    Returns:
      The ids of the parts <int32>[B, (parts)], the piece <int32>[K] of each,
      and its row in `_parts` <int32>[K, 3].
    """
    begins = np.cumsum(self._counts, dtype=np.int32) - self._counts
    counts = tf.gather(tf.constant(self._counts), ids.flat_values)
    piece, index, splits = normalization_layer.repeat(counts)
    begin = tf.gather(tf.constant(begins), tf.gather(ids.flat_values, piece))
    rows = tf.gather(tf.constant(self._parts), begin + index)
    splits = tf.gather(splits, ids.row_splits)
    parts = tf.RaggedTensor.from_row_splits(rows[:, 0], splits, validate=False)
    return parts, piece, rows

  def tokenize_with_offsets(
    self, texts: tf.Tensor
  ) -> normalization_layer.EncodedTexts:
    self._python.check_offsets()
    normal = self.normalization(text_layer.check_texts(texts))
    ids, begins, ends = self._tokenizer.tokenize_with_offsets(normal.encode())
    is_space = tf.gather(tf.constant(self._is_space), ids.flat_values)
    ids, piece, parts = self._parts_of(ids)
    is_space, text = tf.gather(is_space, piece), ids.value_rowids()
    visible = ~self._hidden(normal.codes)
    # The visible characters before each character. Ranges of visible characters
    # exclude spaces before a piece and what SentencePiece drops after it.
    seen = tf.concat([[0], tf.cumsum(tf.cast(visible, tf.int32))], 0)
    places = tf.cast(tf.where(visible)[:, 0], tf.int32)
    places = tf.concat([places, [tf.size(visible)]], 0)
    # The character of each byte.
    at, _, splits = normalization_layer.utf8_bytes(normal.codes)
    at = tf.concat([at, [tf.size(visible)]], 0)
    # The text has a space in front, and the string that was cut has not.
    begin = tf.gather(splits, tf.gather(normal.splits, text)) + 1
    first, after = (
      tf.gather(at, begin + tf.gather(x.flat_values, piece))
      for x in (begins, ends)
    )
    first, last = tf.gather(seen, first), tf.gather(seen, after)
    # A piece can be a part of a character.
    last = tf.where(is_space, last, tf.maximum(last, first + 1))
    begin, end = first + parts[:, 1], tf.minimum(first + parts[:, 2], last)
    first = tf.minimum(begin, tf.maximum(last - 1, first))
    last = tf.where(parts[:, 2] < 0, last, end)
    starts, ends = (tf.concat([x, [0]], 0) for x in normal.letters())
    # A piece ends with its last visible character. If it has none, it ends
    # where the previous piece ends, which may come from the same letter.
    end = tf.gather(ends, tf.gather(places, tf.maximum(last - 1, 0)))
    before = tf.gather(tf.gather(seen, normal.splits), text)
    end = tf.where(last > before, end, 0)
    # A piece starts at its first visible character, and a space at its end.
    start = tf.gather(
      starts, tf.where(is_space, after, tf.gather(places, first))
    )
    text_end = tf.cast(tf.gather(normal.splits, text + 1), tf.int32)
    at_end = is_space & (after >= text_end)
    start = tf.where(at_end, tf.gather(ends, text_end - 1), start)
    return normal.ranges(ids, start, end)

  @functools.cached_property
  def _hidden(self) -> normalization_layer.CharacterTable:
    return normalization_layer.CharacterTable(self._python.hidden_characters)

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
