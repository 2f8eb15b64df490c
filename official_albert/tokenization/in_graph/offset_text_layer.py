"""Text to ids inside the graph, with the characters that each id comes from.

What a served model needs that answers with a part of the text: the same as
`Tokenizer.encode_with_offsets`, for batches. Known differences are those of
the ids, see text_layers.

Letters: B texts, K pieces of all of them, one text after the other.
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
  """The twin of `text_offsets.EncodedText`, of a batch.

  Attributes:
    ids: a RaggedTensor <int32>[B, (pieces)].
    starts: a RaggedTensor <int32>[B, (pieces)], the first character of each.
    ends: a RaggedTensor <int32>[B, (pieces)], exclusive.
  """

  ids: tf.RaggedTensor
  starts: tf.RaggedTensor
  ends: tf.RaggedTensor


class _OffsetTextLayer(tf.Module):
  """What both kinds have in common.

  Attributes:
    text_layer: the one without offsets.
    vocab_size, pad_id, cls_id, sep_id, mask_id: of it.
  """

  def __init__(self, text_layer, forms, name: str):
    super().__init__(name=name)
    self.text_layer = text_layer
    self.vocab_size = text_layer.vocab_size
    self.pad_id, self.cls_id = text_layer.pad_id, text_layer.cls_id
    self.sep_id, self.mask_id = text_layer.sep_id, text_layer.mask_id
    self._forms = forms

  def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
    """The ids alone, <string>[B] -> <int32>[B, (pieces)]."""
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
    """Finds out what normalisation does to each character: takes a second.

    Raises:
      ValueError: the model turns one character into several pieces' worth.
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
    """The ids of each text, and the characters that they come from.

    Args:
      texts: <string>[B], UTF-8. Bytes that are not are dropped, and no
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
    # Where the changed texts' visible characters begin, and how many are
    # before each text.
    places = tf.boolean_mask(tf.cumsum(sizes, exclusive=True), visible)
    known = _check_lengths(
      tf.cast(tf.strings.length(normal), tf.int64), letters
    )
    with tf.control_dependencies([known]):
      cut = self.text_layer.cut_with_bytes(normal)
    text = cut.ids.value_rowids()
    begin = tf.gather(letters.text_begins, text)
    # Counted in visible characters of all texts, a piece has no space before
    # it, and nothing behind it that SentencePiece drops.
    first, last, before = (
      graph_offsets.bound(places, begin + place, after=False)
      for place in (cut.begins, cut.ends, tf.zeros_like(cut.begins))
    )
    is_space = tf.equal(first, last)
    last = tf.where(cut.last < 0, last, first + tf.cast(cut.last, tf.int64))
    first += tf.cast(cut.first, tf.int64)
    # The first one's begin; a space alone stands where it ends.
    places = tf.concat([places, [0]], 0)
    at = tf.where(is_space, begin + cut.ends, tf.gather(places, first))
    start = graph_offsets.letter_starts(letters, at)
    # Where the last one ends; of no own characters, that of the piece before,
    # which may be from the same letter.
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
    """Finds out what normalisation does to each character."""
    forms = graph_offsets.form_table(
      lambda texts: tf.strings.reduce_join(
        text_layer.uncut_words(texts), axis=1
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
    words = self.text_layer.uncut_words(texts)
    sizes = words.with_flat_values(
      tf.cast(tf.strings.length(words.flat_values), tf.int64)
    )
    known = _check_lengths(tf.reduce_sum(sizes, 1), letters)
    with tf.control_dependencies([known]):
      ids, word, begins, ends = self.text_layer.cut_with_bytes(words)
    begin = tf.gather(tf.cumsum(sizes.flat_values, exclusive=True), word)
    return _encoded(
      ids,
      graph_offsets.letter_starts(letters, begin + begins),
      graph_offsets.letter_ends(letters, begin + ends - 1),
    )


OffsetTextLayer = Union[SentencePieceOffsetLayer, WordPieceOffsetLayer]


def make_offset_layer(text_layer: text_layers.TextLayer) -> OffsetTextLayer:
  """The layer with offsets that makes the same ids.

  Raises:
    ValueError: see `SentencePieceOffsetLayer`.
  """
  if isinstance(text_layer, wordpiece_text_layer.WordPieceTextLayer):
    return WordPieceOffsetLayer(text_layer)
  return SentencePieceOffsetLayer(text_layer)


def _check_lengths(lengths: tf.Tensor, letters: graph_offsets.Letters):
  # Holds for each character of Unicode; better no answer than a wrong one.
  return tf.debugging.assert_equal(
    lengths,
    letters.text_lengths,
    "the text is not as long as its characters say: its offsets are not known.",
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
  """1 for what SentencePiece's own normaliser leaves something of, else 0.

  It drops control characters, and takes some others for spaces.

  Raises:
    ValueError: it makes several characters of one, or the vocabulary cuts
      unknown ones into bytes, so that a piece may come from a part of one.
  """
  visible = np.ones(graph_offsets.ALL_CHARACTERS, np.int32)
  visible[ord(" ")] = 0
  changing = graph_offsets.changing_characters()
  chars = tf.constant([chr(code) for code in changing.tolist()])
  changed = text_layer.normalize(chars).numpy() != chars.numpy()
  # What our own normalisation changes never comes that far.
  codes = np.setdiff1d(
    graph_offsets.assigned_characters(), changing[changed]
  ).astype(np.int32)
  chars = tf.constant([chr(code) for code in codes.tolist()])
  ids = text_layer.cut_with_bytes(chars).ids
  pieces = text_layer.pieces(tf.range(text_layer.vocab_size)).numpy().tolist()
  lengths = [len(p.decode("utf-8").replace(_WORD_START, "")) for p in pieces]
  lengths[text_layer.unk_id] = 1
  left = tf.reduce_sum(
    ids.with_flat_values(tf.gather(lengths, ids.flat_values)), 1
  )
  left = left.numpy()
  if left.max() > 1:
    char = chr(int(codes[left.argmax()]))
    raise ValueError(
      f"the SentencePiece model makes several pieces of {char!r}: offsets in "
      "the graph need one whose normaliser makes no character longer and that "
      "was trained without byte_fallback; export token ids instead."
    )
  visible[codes] = left
  return graph_offsets.CharacterTable(visible)
