"""Text to ids in the graph, with the characters that each id comes from.

This serves models that answer with a part of the text. For batches, it equals
`Tokenizer.encode_with_offsets`, with the same known differences as the ids
(see sentencepiece_layers.py).

Letters: B texts, K pieces of all texts, concatenated.
"""

from __future__ import annotations

import unicodedata
from typing import NamedTuple, Union

import numpy as np
import tensorflow as tf

from official_albert import tokenization
from official_albert.tokenization.in_graph import graph_offsets, graph_text
from official_albert.tokenization.in_graph import (
  sentencepiece_layers as text_layers,
)
from official_albert.tokenization.in_graph import (
  wordpiece_layer as wordpiece_text_layer,
)

_WORD_START = "\u2581"


class EncodedTexts(NamedTuple):
  """Like `text_offsets.EncodedText`, for a batch.

  Attributes:
    ids: a RaggedTensor <int32>[B, (pieces)].
    starts: a RaggedTensor <int32>[B, (pieces)], the first character of each.
    ends: a RaggedTensor <int32>[B, (pieces)], exclusive.
  """

  ids: tf.RaggedTensor
  starts: tf.RaggedTensor
  ends: tf.RaggedTensor


class _OffsetTextLayer(tf.Module):
  """Base class of both layers.

  Attributes:
    text_layer: the layer without offsets.
    vocab_size, pad_id, cls_id, sep_id, mask_id: those of `text_layer`.
  """

  def __init__(self, text_layer, forms, name: str):
    super().__init__(name=name)
    self.text_layer = text_layer
    self.vocab_size = text_layer.vocab_size
    self.pad_id, self.cls_id = text_layer.pad_id, text_layer.cls_id
    self.sep_id, self.mask_id = text_layer.sep_id, text_layer.mask_id
    self._forms = forms

  def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
    """Returns only the ids: <string>[B] to <int32>[B, (pieces)]."""
    return self.text_layer.tokenize(texts)

  def _letters(
    self, texts: tf.Tensor, keeps_spaces: bool
  ) -> graph_offsets.Letters:
    codes = tf.strings.unicode_decode(texts, "UTF-8", errors="ignore")
    forms = codes.with_flat_values(self._forms(codes.flat_values))
    return graph_offsets.find_letters(forms, keeps_spaces)


class SentencePieceOffsetLayer(_OffsetTextLayer):
  """Equal to `SentencePieceTokenizer.encode_with_offsets`."""

  def __init__(
    self,
    text_layer: text_layers.SentencePieceTextLayer,
    name: str = "sentence_piece_offsets",
  ):
    """Computes how each character is normalized, which takes a second.

    Raises:
      ValueError: the model changes a character into several.
    """
    forms = graph_offsets.form_table(
      text_layer.normalize,
      is_gone=lambda char: False,
      is_space=str.isspace,
      is_mark=lambda char: (
        unicodedata.combining(unicodedata.normalize("NFKD", char)[0]) > 0
      ),
    )
    super().__init__(text_layer, forms, name)
    self._visible = _visible_characters(text_layer)

  def tokenize_with_offsets(self, texts: tf.Tensor) -> EncodedTexts:
    """Returns the ids of each text with the characters that they come from.

    Args:
      texts: <string>[B], UTF-8. Invalid bytes are dropped and not counted as
        characters.

    Raises:
      ValueError: `texts` is not a batch of strings.
    """
    texts = graph_text.check_texts(texts)
    letters = self._letters(texts, keeps_spaces=True)
    normal = self.text_layer.normalize(texts)
    codes = tf.strings.unicode_decode(normal, "UTF-8", errors="ignore")
    visible = tf.equal(self._visible(codes.flat_values), 1)
    sizes = graph_offsets.utf8_sizes(codes.flat_values)
    # The first byte of each visible character of the normalized texts.
    places = tf.boolean_mask(tf.cumsum(sizes, exclusive=True), visible)
    check = _check_lengths(
      tf.cast(tf.strings.length(normal), tf.int64), letters
    )
    with tf.control_dependencies([check]):
      cut = self.text_layer.cut_with_bytes(normal)
    text = cut.ids.value_rowids()
    begin = tf.gather(letters.text_begins, text)
    # Ranges of visible characters exclude spaces before a piece, and what
    # SentencePiece drops after it. `before` counts those before each text.
    first, last, before = (
      graph_offsets.bound(places, begin + place, after=False)
      for place in (cut.begins, cut.ends, tf.zeros_like(cut.begins))
    )
    is_space = tf.equal(first, last)
    last = tf.where(cut.last < 0, last, first + tf.cast(cut.last, tf.int64))
    first += tf.cast(cut.first, tf.int64)
    # A piece starts at its first visible character, a lone space at its end.
    places = tf.concat([places, [0]], 0)
    at = tf.where(is_space, begin + cut.ends, tf.gather(places, first))
    start = graph_offsets.letter_starts(letters, at)
    # A piece ends with its last visible character. If it has none, it ends with
    # the piece before, which may come from the same letter.
    previous = tf.gather(places, tf.maximum(last - 1, 0))
    end = graph_offsets.letter_ends(letters, previous)
    end = tf.where(last > before, end, 0)
    length = tf.gather(letters.text_lengths, text)
    at_end = is_space & (cut.ends >= length)
    text_end = graph_offsets.letter_ends(letters, begin + length - 1)
    start = tf.where(at_end, text_end, start)
    end = tf.maximum(start, end)
    return _encoded(cut.ids, start, end)


class WordPieceOffsetLayer(_OffsetTextLayer):
  """Equal to `WordPieceTokenizer.encode_with_offsets`."""

  def __init__(
    self,
    text_layer: wordpiece_text_layer.WordPieceTextLayer,
    name: str = "word_piece_offsets",
  ):
    """Computes how each character is normalized."""
    forms = graph_offsets.form_table(
      lambda texts: tf.strings.reduce_join(
        text_layer.split_words(texts), axis=1
      ),
      is_gone=tokenization.is_control,
      is_space=lambda char: tokenization.is_space(char) or char.isspace(),
      is_mark=lambda char: (
        unicodedata.combining(unicodedata.normalize("NFD", char)[0]) > 0
      ),
    )
    super().__init__(text_layer, forms, name)

  def tokenize_with_offsets(self, texts: tf.Tensor) -> EncodedTexts:
    """See `SentencePieceOffsetLayer.tokenize_with_offsets`."""
    texts = graph_text.check_texts(texts)
    letters = self._letters(texts, keeps_spaces=False)
    words = self.text_layer.split_words(texts)
    sizes = words.with_flat_values(
      tf.cast(tf.strings.length(words.flat_values), tf.int64)
    )
    check = _check_lengths(tf.reduce_sum(sizes, 1), letters)
    with tf.control_dependencies([check]):
      ids, word, begins, ends = self.text_layer.cut_with_bytes(words)
    begin = tf.gather(tf.cumsum(sizes.flat_values, exclusive=True), word)
    return _encoded(
      ids,
      graph_offsets.letter_starts(letters, begin + begins),
      graph_offsets.letter_ends(letters, begin + ends - 1),
    )


OffsetTextLayer = Union[SentencePieceOffsetLayer, WordPieceOffsetLayer]


def make_offset_layer(text_layer: text_layers.TextLayer) -> OffsetTextLayer:
  """Returns the layer with offsets for a layer without.

  Raises:
    ValueError: see `SentencePieceOffsetLayer`.
  """
  if isinstance(text_layer, wordpiece_text_layer.WordPieceTextLayer):
    return WordPieceOffsetLayer(text_layer)
  return SentencePieceOffsetLayer(text_layer)


def _check_lengths(lengths: tf.Tensor, letters: graph_offsets.Letters):
  # This holds for each character of Unicode. If it ever fails, an error is
  # better than wrong offsets.
  return tf.debugging.assert_equal(
    lengths,
    letters.text_lengths,
    "the length of a normalized text differs from the sum over its characters, "
    "so its offsets are unknown.",
  )


def _encoded(
  ids: tf.RaggedTensor, starts: tf.Tensor, ends: tf.Tensor
) -> EncodedTexts:
  return EncodedTexts(
    ids,
    ids.with_flat_values(tf.cast(starts, tf.int32)),
    ids.with_flat_values(tf.cast(ends, tf.int32)),
  )


def _visible_characters(
  text_layer: text_layers.SentencePieceTextLayer,
) -> graph_offsets.CharacterTable:
  """Returns 1 for characters that SentencePiece keeps, else 0.

  Its own normalizer drops control characters and takes some others for spaces.

  Raises:
    ValueError: it changes a character into several, or splits unknown
      characters into bytes, so that a piece may be a part of a character.
  """
  visible = np.ones(graph_offsets.ALL_CHARACTERS, np.int32)
  visible[ord(" ")] = 0
  changing = graph_offsets.changing_characters()
  chars = tf.constant([chr(code) for code in changing.tolist()])
  changed = text_layer.normalize(chars).numpy() != chars.numpy()
  # SentencePiece never sees the characters that our normalization changes.
  codes = np.setdiff1d(
    graph_offsets.assigned_characters(), changing[changed]
  ).astype(np.int32)
  chars = tf.constant([chr(code) for code in codes.tolist()])
  ids = text_layer.cut_with_bytes(chars).ids
  pieces = text_layer.pieces(tf.range(text_layer.vocab_size)).numpy().tolist()
  lengths = [len(p.decode("utf-8").replace(_WORD_START, "")) for p in pieces]
  lengths[text_layer.unk_id] = 1
  kept = tf.reduce_sum(
    ids.with_flat_values(tf.gather(lengths, ids.flat_values)), 1
  )
  kept = kept.numpy()
  if kept.max() > 1:
    char = chr(int(codes[kept.argmax()]))
    raise ValueError(
      f"the SentencePiece model makes several pieces of {char!r}: offsets in "
      "the graph need a model whose normalizer makes no character longer, "
      "trained without byte_fallback. Export token ids instead."
    )
  visible[codes] = kept
  return graph_offsets.CharacterTable(visible)
