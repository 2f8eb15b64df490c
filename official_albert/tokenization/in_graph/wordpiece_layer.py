"""The WordPiece tokenizer in the graph.

The layer splits text into words by the table of the Python tokenizer, and
tensorflow_text's FastWordpieceTokenizer splits the words. tensorflow_text's
BertTokenizer does both, but it uses another version of Unicode, keeps control
characters in words and limits the length of words in bytes.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tensorflow_text

from official_albert import tokenization
from official_albert.tokenization import normalization
from official_albert.tokenization.in_graph import (
  normalization_layer,
  text_layer,
)

# A noncharacter, which is in no vocabulary and thus becomes [UNK].
_UNKNOWN = "\uffff"


class WordPieceTextLayer(text_layer.TextLayer):
  """A `TextLayer` equal to `tokenization.WordPieceTokenizer`."""

  def __init__(self, vocab_file: str, lower_case: bool = True, **rules: Any):
    python = tokenization.WordPieceTokenizer(vocab_file, lower_case, **rules)
    super().__init__(python)
    self._pieces = [python.id_to_piece(i) for i in range(self.vocab_size)]
    # No text has U+FFFE, which stands for lines that are repeated later.
    unique = [
      piece if python.piece_to_id(piece) == i else f"\ufffe{i}"
      for i, piece in enumerate(self._pieces)
    ]
    self._tokenizer = tensorflow_text.FastWordpieceTokenizer(
      unique,
      suffix_indicator=tokenization.CONTINUATION,
      # In bytes; this package's own limit in characters is lower.
      max_bytes_per_word=4 * self.rules.max_word_characters + 1,
      token_out_type=tf.int32,
      unknown_token="[UNK]",
      no_pretokenization=True,
    )

  def split_words(
    self, normal: normalization_layer.NormalTexts
  ) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
    """Splits changed texts into W words.

    Returns:
      The words <string>[B, (words)], and <int64>[W] each: where they begin and
      end in `normal`. Too long words are unknown.
    """
    space = normalization_layer.has(normal.rows, normalization.SPACE)
    alone = normalization_layer.has(normal.rows, normalization.ALONE)
    after_word = normalization_layer.previous(space | alone, True)
    # The parts are words and single spaces.
    begins = tf.where(space | alone | after_word)[:, 0]
    ends = normalization_layer.following(begins, tf.size(space, tf.int64))
    parts = normalization_layer.encode(normal.codes, tf.concat([[0], ends], 0))
    is_word = ~tf.gather(space, begins)
    parts, begins, ends = (
      tf.boolean_mask(x, is_word) for x in (parts, begins, ends)
    )
    is_long = ends - begins > self.rules.max_word_characters
    words = tf.RaggedTensor.from_row_splits(
      tf.where(is_long, _UNKNOWN, parts),
      normalization_layer.bound(begins, normal.splits),
      validate=False,
    )
    return words, begins, ends

  def tokenize(self, texts: tf.Tensor, most: int = 0) -> tf.RaggedTensor:
    return self.tokenize_words(texts, most).merge_dims(1, 2)

  def tokenize_words(self, texts: tf.Tensor, most: int = 0) -> tf.RaggedTensor:
    """Returns ids by words: <string>[B] to <int32>[B, (words), (pieces)]."""
    texts = text_layer.check_texts(texts)
    if most:
      texts = self.shorten(texts, most)
    words, _, _ = self.split_words(self.normalization(texts))
    if most:  # Each word becomes an id or more.
      words = words[:, :most]
    return words.with_flat_values(self._tokenizer.tokenize(words.flat_values))

  def tokenize_with_offsets(
    self, texts: tf.Tensor
  ) -> normalization_layer.EncodedTexts:
    normal = self.normalization(text_layer.check_texts(texts))
    words, word_begins, word_ends = self.split_words(normal)
    ids, begins, ends = self._tokenizer.tokenize_with_offsets(words.flat_values)
    word = ids.value_rowids()
    of_bytes, _, splits = normalization_layer.utf8_bytes(normal.codes)
    begin = tf.gather(splits, tf.gather(word_begins, word))
    first = tf.gather(of_bytes, begin + begins.flat_values)
    last = tf.gather(of_bytes, begin + ends.flat_values - 1)
    # [UNK] stands for the whole word, which may have been replaced.
    unknown = tf.equal(ids.flat_values, self.unk_id)
    whole = tf.cast(tf.gather(word_ends, word), tf.int32) - 1
    starts, ends = normal.letters()
    return normal.ranges(
      words.with_flat_values(ids).merge_dims(1, 2),
      tf.gather(starts, first),
      tf.gather(ends, tf.where(unknown, whole, last)),
    )

  def without_word_start(self, ids: tf.Tensor) -> tf.Tensor:
    # Text after a [MASK] is a new word. This holds for Chinese characters, and
    # BERT's tools read "[MASK]s" this way.
    return tf.identity(ids)

  def pieces(self, ids: tf.Tensor) -> tf.Tensor:
    return tf.gather(tf.constant(self._pieces), ids)
