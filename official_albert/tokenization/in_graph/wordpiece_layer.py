"""WordPiece inside the graph: the twin of `wordpiece.WordPieceTokenizer`.

The text is cut into words with the very character classes of the Python
tokenizer, and tensorflow_text's FastWordpieceTokenizer cuts the words. (Its
BertTokenizer does both, but follows an ICU of its own age, keeps control
characters in words and counts a word's length in bytes.)

They differ where characters are newer than TensorFlow's Unicode (see
text_layers), and in a few capital letters of such scripts.
"""

from __future__ import annotations

import os
import unicodedata
from typing import NamedTuple, Union

import tensorflow as tf
import tensorflow_text

from official_albert import tokenization
from official_albert.tokenization.in_graph import graph_text

# A noncharacter, which no vocabulary has: what stands for it is unknown.
_UNKNOWN = "\uffff"


class Cut(NamedTuple):
  """What `WordPieceTextLayer.cut_with_bytes` returns.

  Attributes:
    ids: a RaggedTensor <int32>[B, (pieces)], K of them in all.
    word: <int64>[K], index of its word among those of all texts.
    begins: <int64>[K], which bytes of the word each piece is.
    ends: <int64>[K], exclusive.
  """

  ids: tf.RaggedTensor
  word: tf.Tensor
  begins: tf.Tensor
  ends: tf.Tensor


class WordPieceTextLayer(tf.Module):
  """Raw strings to ids, equal to `WordPieceTokenizer.encode`.

  Make it outside of `tf.function`; call it anywhere.

  Attributes:
    lower_case: whether text is lower-cased, and loses its accents, first.
    vocab_size: number of pieces V.
    pad_id, unk_id, cls_id, sep_id, mask_id: where the vocabulary has them.
  """

  def __init__(
    self,
    vocab_file: Union[str, os.PathLike],
    lower_case: bool = True,
    name: str = "word_piece_text",
  ):
    """Reads a vocabulary.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: it lacks BERT's special pieces.
    """
    super().__init__(name=name)
    self.lower_case = lower_case
    content = graph_text.read_file(
      os.fspath(vocab_file), "WordPiece vocabulary"
    )
    self._pieces = tokenization.read_vocabulary(content)
    self.vocab_size = len(self._pieces)
    ids = {piece: i for i, piece in enumerate(self._pieces)}
    for piece in tokenization.WORDPIECE_SPECIAL_PIECES:
      if piece not in ids:
        raise ValueError(
          f"{os.fspath(vocab_file)!r} lacks the piece {piece}: a WordPiece "
          f"vocabulary has {', '.join(tokenization.WORDPIECE_SPECIAL_PIECES)}."
        )
    self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (
      ids[piece] for piece in tokenization.WORDPIECE_SPECIAL_PIECES
    )
    self._tokenizer = tensorflow_text.FastWordpieceTokenizer(
      self._pieces,
      suffix_indicator=tokenization.CONTINUATION,
      # In bytes; our own limit, in characters, is lower.
      max_bytes_per_word=4 * tokenization.MAX_WORD_CHARACTERS + 1,
      token_out_type=tf.int32,
      unknown_token="[UNK]",
      no_pretokenization=True,
    )

  def uncut_words(self, texts: tf.Tensor) -> tf.RaggedTensor:
    """<string>[B] -> <string>[B, (words)]: the parts that are cut alone."""
    space = graph_text.character_class(tokenization.is_space)
    control = graph_text.character_class(tokenization.is_control)
    alone = graph_text.character_class(_is_alone)
    texts = tf.strings.unicode_transcode(
      texts, "UTF-8", "UTF-8", errors="ignore"
    )
    texts = tf.strings.regex_replace(texts, control, "")
    # The Python tokenizer's str.split knows two more separators.
    texts = tf.strings.regex_replace(
      texts, rf"{space}|[\x{{2028}}\x{{2029}}]", " "
    )
    if self.lower_case:
      # ASCII first: the Unicode-aware operation follows the process' locale.
      texts = tf.strings.lower(tf.strings.lower(texts), encoding="utf-8")
      texts = tensorflow_text.normalize_utf8(texts, "NFD")
      marks = graph_text.character_class(_is_mark)
      texts = tf.strings.regex_replace(texts, marks, "")
    texts = tf.strings.regex_replace(texts, f"({alone})", r" \1 ")
    return tf.strings.split(texts)

  def _cut(self, words: tf.RaggedTensor):
    """The pieces of each word, and which bytes of it they are."""
    too_long = (
      tf.strings.length(words.flat_values, "UTF8_CHAR")
      > tokenization.MAX_WORD_CHARACTERS
    )
    return self._tokenizer.tokenize_with_offsets(
      tf.where(too_long, _UNKNOWN, words.flat_values)
    )

  def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
    """The ids of each text, without [CLS] and [SEP].

    Args:
      texts: <string>[B], UTF-8; bytes that are not are dropped.

    Returns:
      A RaggedTensor <int32>[B, (pieces)].

    Raises:
      ValueError: `texts` is not a batch of strings.
    """
    return self.tokenize_words(texts).merge_dims(1, 2)

  def tokenize_words(self, texts: tf.Tensor) -> tf.RaggedTensor:
    """`tokenize` by words: <string>[B] -> <int32>[B, (words), (pieces)]."""
    words = self.uncut_words(graph_text.check_texts(texts))
    ids, _, _ = self._cut(words)
    return words.with_flat_values(ids)

  def cut_with_bytes(self, words: tf.RaggedTensor) -> Cut:
    """`tokenize` of words, with places in them.

    Args:
      words: <string>[B, (words)], what `uncut_words` returned.
    """
    ids, begins, ends = self._cut(words)
    word = ids.value_rowids()
    # Those of what was cut, which was no word if it was too long.
    sizes = tf.strings.length(words.flat_values)
    ends = tf.where(
      tf.equal(ids.flat_values, self.unk_id),
      tf.cast(tf.gather(sizes, word), tf.int64),
      tf.cast(ends.flat_values, tf.int64),
    )
    return Cut(
      words.with_flat_values(ids).merge_dims(1, 2),
      word,
      tf.cast(begins.flat_values, tf.int64),
      ends,
    )

  def without_word_start(self, ids: tf.Tensor) -> tf.Tensor:
    """The same ids: what follows a [MASK] is a word of its own.

    A Chinese character always is, and BERT's other tools read "[MASK]s" so.
    """
    return tf.identity(ids)

  def pieces(self, ids: tf.Tensor) -> tf.Tensor:
    """The vocabulary's pieces: <int>[...] -> <string>[...].

    Raises:
      tf.errors.InvalidArgumentError: an id is outside the vocabulary.
    """
    return tf.gather(tf.constant(self._pieces), ids)


def _is_alone(char: str) -> bool:
  return tokenization.is_chinese(char) or tokenization.is_punctuation(char)


def _is_mark(char: str) -> bool:
  return unicodedata.category(char) == "Mn"
