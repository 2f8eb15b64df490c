"""Maps text to ids in the graph, with the characters of each id.

Models that answer with a part of the text need these offsets. The result equals
`encode_with_offsets` of the Python tokenizers, with the same known differences
as for the ids (see sentencepiece_layer.py).

Letters: B texts, K pieces of all texts, concatenated.
"""

from __future__ import annotations

import unicodedata
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from official_albert import tokenization
from official_albert.tokenization.in_graph import (
  graph_offsets,
  sentencepiece_layer,
  text_layer,
  wordpiece_layer,
)


class EncodedTexts(NamedTuple):
  """The ids of B texts and their half-open character ranges.

  All are RaggedTensors <int32>[B, (pieces)].
  """

  ids: tf.RaggedTensor
  starts: tf.RaggedTensor
  ends: tf.RaggedTensor


def make_offset_layer(layer: text_layer.TextLayer) -> OffsetTextLayer:
  """Returns the layer with offsets for a layer without.

  Raises:
    ValueError: a SentencePiece model changes a character into several.
  """
  if isinstance(layer, wordpiece_layer.WordPieceTextLayer):
    return WordPieceOffsetLayer(layer)
  return SentencePieceOffsetLayer(layer)


class OffsetTextLayer(tf.Module):
  """A tokenizer with offsets; construction takes about a second.

  Attributes:
    text_layer: the layer without offsets.
    vocab_size, pad_id, cls_id, sep_id, mask_id: those of `text_layer`.
  """

  def __init__(self, layer: text_layer.TextLayer, forms):
    super().__init__(name="offsets")
    self.text_layer = layer
    for name in ("vocab_size", "pad_id", "cls_id", "sep_id", "mask_id"):
      setattr(self, name, getattr(layer, name))
    self._forms = forms

  def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
    """Returns only the ids: <string>[B] to <int32>[B, (pieces)]."""
    return self.text_layer.tokenize(texts)

  def tokenize_with_offsets(self, texts: tf.Tensor) -> EncodedTexts:
    """Returns the ids of each text with the characters that they come from.

    Args:
      texts: <string>[B], UTF-8. Invalid bytes are dropped and not counted as
        characters.

    Raises:
      ValueError: `texts` is not a batch of strings.
    """
    raise NotImplementedError

  def _letters(
    self, texts: tf.Tensor, normal_lengths: tf.Tensor, keeps_spaces: bool
  ) -> graph_offsets.Letters:
    codes = tf.strings.unicode_decode(texts, "UTF-8", errors="ignore")
    forms = codes.with_flat_values(self._forms(codes.flat_values))
    letters = graph_offsets.find_letters(forms, keeps_spaces)
    # The lengths agree for each character of Unicode. If they ever do not, an
    # error is better than wrong offsets.
    check = tf.debugging.assert_equal(
      tf.cast(normal_lengths, tf.int64),
      letters.text_lengths,
      "the length of a normalized text differs from the sum over its "
      "characters, so its offsets are unknown.",
    )
    with tf.control_dependencies([check]):
      return graph_offsets.Letters(*map(tf.identity, letters))


class SentencePieceOffsetLayer(OffsetTextLayer):
  """Equal to `SentencePieceTokenizer.encode_with_offsets`."""

  def __init__(self, layer: sentencepiece_layer.SentencePieceTextLayer):
    forms = graph_offsets.form_table(
      layer.normalize,
      is_gone=lambda char: False,
      is_space=str.isspace,
      is_mark=lambda char: (
        unicodedata.combining(unicodedata.normalize("NFKD", char)[0]) > 0
      ),
    )
    super().__init__(layer, forms)
    self._visible = _visible_characters(layer)

  def tokenize_with_offsets(self, texts: tf.Tensor) -> EncodedTexts:
    texts = text_layer.check_texts(texts)
    normal = self.text_layer.normalize(texts)
    letters = self._letters(texts, tf.strings.length(normal), keeps_spaces=True)
    codes = tf.strings.unicode_decode(normal, "UTF-8", errors="ignore")
    visible = tf.equal(self._visible(codes.flat_values), 1)
    sizes = graph_offsets.utf8_sizes(codes.flat_values)
    # The first byte of each visible character of the normalized texts.
    places = tf.boolean_mask(tf.cumsum(sizes, exclusive=True), visible)
    cut = self.text_layer.cut(normal)
    text = cut.ids.value_rowids()
    begin = tf.gather(letters.text_begins, text)
    # Ranges of visible characters exclude spaces before a piece and characters
    # that SentencePiece drops after it. `before` counts the visible characters
    # before each text.
    first, last, before = (
      graph_offsets.bound(places, begin + place, after=False)
      for place in (cut.begins, cut.ends, tf.zeros_like(cut.begins))
    )
    is_space = tf.equal(first, last)
    last = tf.where(cut.last < 0, last, first + tf.cast(cut.last, tf.int64))
    first += tf.cast(cut.first, tf.int64)
    # A piece starts at its first visible character. A lone space starts at its
    # own end.
    places = tf.concat([places, [0]], 0)
    at = tf.where(is_space, begin + cut.ends, tf.gather(places, first))
    start = letters.starts_at(at)
    # A piece ends with its last visible character. If it has none, it ends
    # where the previous piece ends, which may come from the same letter.
    previous = tf.gather(places, tf.maximum(last - 1, 0))
    end = tf.where(last > before, letters.ends_at(previous), 0)
    length = tf.gather(letters.text_lengths, text)
    at_end = is_space & (cut.ends >= length)
    start = tf.where(at_end, letters.ends_at(begin + length - 1), start)
    return _encoded(cut.ids, start, tf.maximum(start, end))


class WordPieceOffsetLayer(OffsetTextLayer):
  """Equal to `WordPieceTokenizer.encode_with_offsets`."""

  def __init__(self, layer: wordpiece_layer.WordPieceTextLayer):
    forms = graph_offsets.form_table(
      lambda texts: tf.strings.reduce_join(layer.split_words(texts), axis=1),
      is_gone=tokenization.is_control,
      is_space=lambda char: tokenization.is_space(char) or char.isspace(),
      is_mark=lambda char: (
        unicodedata.combining(unicodedata.normalize("NFD", char)[0]) > 0
      ),
    )
    super().__init__(layer, forms)

  def tokenize_with_offsets(self, texts: tf.Tensor) -> EncodedTexts:
    texts = text_layer.check_texts(texts)
    words = self.text_layer.split_words(texts)
    sizes = words.with_flat_values(
      tf.cast(tf.strings.length(words.flat_values), tf.int64)
    )
    letters = self._letters(
      texts, tf.reduce_sum(sizes, axis=1), keeps_spaces=False
    )
    ids, word, begins, ends = self.text_layer.cut(words)
    begin = tf.gather(tf.cumsum(sizes.flat_values, exclusive=True), word)
    return _encoded(
      ids,
      letters.starts_at(begin + begins),
      letters.ends_at(begin + ends - 1),
    )


def _encoded(
  ids: tf.RaggedTensor, starts: tf.Tensor, ends: tf.Tensor
) -> EncodedTexts:
  starts, ends = (
    ids.with_flat_values(tf.cast(x, tf.int32)) for x in (starts, ends)
  )
  return EncodedTexts(ids, starts, ends)


def _visible_characters(
  layer: sentencepiece_layer.SentencePieceTextLayer,
) -> graph_offsets.CharacterTable:
  """Returns 1 for characters that SentencePiece keeps, else 0.

  SentencePiece's normalizer drops control characters and treats some others as
  spaces.

  Raises:
    ValueError: it changes a character into several, or splits unknown
      characters into bytes, so a piece may be a part of a character.
  """
  visible = np.ones(graph_offsets.ALL_CHARACTERS, np.int32)
  visible[ord(" ")] = 0
  changing = graph_offsets.changing_characters()
  chars = tf.constant([chr(code) for code in changing.tolist()])
  changed = layer.normalize(chars).numpy() != chars.numpy()
  # SentencePiece never sees the characters that our normalization changes.
  codes = np.setdiff1d(
    graph_offsets.assigned_characters(), changing[changed]
  ).astype(np.int32)
  ids = layer.cut(tf.constant([chr(code) for code in codes.tolist()])).ids
  pieces = layer.pieces(tf.range(layer.vocab_size)).numpy().tolist()
  mark = tokenization.WORD_START
  lengths = [len(p.decode("utf-8").replace(mark, "")) for p in pieces]
  lengths[layer.unk_id] = 1
  lengths = ids.with_flat_values(tf.gather(lengths, ids.flat_values))
  kept = tf.reduce_sum(lengths, axis=1).numpy()
  if kept.max() > 1:
    char = chr(int(codes[kept.argmax()]))
    raise ValueError(
      f"the SentencePiece model makes several pieces of {char!r}: offsets in "
      "the graph need a model whose normalizer makes no character longer, "
      "trained without byte_fallback. Export token ids instead."
    )
  visible[codes] = kept
  return graph_offsets.CharacterTable(visible)
