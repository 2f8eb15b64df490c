"""The WordPiece tokenizer in the graph.

The layer splits text into words by the Python tokenizer's character classes,
and tensorflow_text's FastWordpieceTokenizer splits the words. tensorflow_text's
BertTokenizer does both, but it uses another version of Unicode, keeps control
characters in words and limits the length of words in bytes.

It equals `tokenization.WordPieceTokenizer` except for characters that are newer
than TensorFlow's Unicode (see sentencepiece_layer.py), and for a few capital
letters of such scripts.
"""

from __future__ import annotations

import unicodedata
from typing import Any

import tensorflow as tf
import tensorflow_text

from official_albert import tokenization
from official_albert.tokenization.in_graph import text_layer

# A noncharacter, which is in no vocabulary and thus becomes [UNK].
_UNKNOWN = "\uffff"


def _is_single(char: str) -> bool:
  return tokenization.is_chinese(char) or tokenization.is_punctuation(char)


def _is_mark(char: str) -> bool:
  return unicodedata.category(char) == "Mn"


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

  def split_words(self, texts: tf.Tensor, most: int = 0) -> tf.RaggedTensor:
    """Splits texts into words: <string>[B] to <string>[B, (words)].

    With `most`, further words may be left out; see `tokenize`.
    """
    split = self.rules.split_chinese
    space, control, single = map(
      text_layer.character_class,
      (
        tokenization.is_space,
        tokenization.is_control,
        _is_single if split else tokenization.is_punctuation,
      ),
    )
    texts = tf.strings.unicode_transcode(
      texts, "UTF-8", "UTF-8", errors="ignore"
    )
    texts = tf.strings.regex_replace(texts, control, "")
    # str.split in the Python tokenizer has two more separators.
    texts = tf.strings.regex_replace(
      texts, rf"{space}|[\x{{2028}}\x{{2029}}]", " "
    )
    if self.lower_case:
      # ASCII first, because the Unicode operation depends on the locale.
      texts = tf.strings.lower(tf.strings.lower(texts), encoding="utf-8")
    if not self.keep_accents:
      texts = tensorflow_text.normalize_utf8(texts, "NFD")
      marks = text_layer.character_class(_is_mark)
      texts = tf.strings.regex_replace(texts, marks, "")
    texts = tf.strings.regex_replace(texts, f"({single})", r" \1 ")
    if most:  # Each word becomes an id or more, and takes 130 bytes of memory.
      return tf.strings.split(texts, maxsplit=most)[:, :most]
    return tf.strings.split(texts)

  def _cut(self, words: tf.RaggedTensor) -> Any:
    """Returns the pieces of each word and their ranges of bytes."""
    too_long = (
      tf.strings.length(words.flat_values, "UTF8_CHAR")
      > self.rules.max_word_characters
    )
    return self._tokenizer.tokenize_with_offsets(
      tf.where(too_long, _UNKNOWN, words.flat_values)
    )

  def tokenize(self, texts: tf.Tensor, most: int = 0) -> tf.RaggedTensor:
    return self.tokenize_words(texts, most).merge_dims(1, 2)

  def tokenize_words(self, texts: tf.Tensor, most: int = 0) -> tf.RaggedTensor:
    """Returns ids by words: <string>[B] to <int32>[B, (words), (pieces)]."""
    words = self.split_words(text_layer.check_texts(texts), most)
    ids, _, _ = self._cut(words)
    return words.with_flat_values(ids)

  def cut(
    self, words: tf.RaggedTensor
  ) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns the pieces of words with their positions.

    Args:
      words: <string>[B, (words)], the result of `split_words`.

    Returns:
      The ids, a RaggedTensor <int32>[B, (pieces)] with K pieces in all; and
      <int64>[K] each: the index of the piece's word among the words of all
      texts, its first byte in the word, and the exclusive end of its bytes.
    """
    ids, begins, ends = self._cut(words)
    word = ids.value_rowids()
    # [UNK] stands for the whole word, which may have been replaced above.
    sizes = tf.gather(tf.strings.length(words.flat_values), word)
    unknown = tf.equal(ids.flat_values, self.unk_id)
    return (
      words.with_flat_values(ids).merge_dims(1, 2),
      word,
      begins.flat_values,
      tf.where(unknown, tf.cast(sizes, tf.int64), ends.flat_values),
    )

  def without_word_start(self, ids: tf.Tensor) -> tf.Tensor:
    # Text after a [MASK] is a new word. This holds for Chinese characters, and
    # BERT's tools read "[MASK]s" this way.
    return tf.identity(ids)

  def pieces(self, ids: tf.Tensor) -> tf.Tensor:
    return tf.gather(tf.constant(self._pieces), ids)
