"""Maps text to ids in the graph, with the characters of each id.

Models that answer with a part of the text need these offsets. The result equals
`encode_with_offsets` of the Python tokenizers, with the same known differences
as for the ids (see sentencepiece_layer.py).

The second half of this module is `text_offsets.py` for batches. A table stores
the length to which normalization changes each character. The cumulative lengths
map a byte of the normalized text back to a character of the original text. A
character and the combining marks after it count as one letter.

Letters: B texts, N characters and K pieces of all texts, concatenated.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from official_albert import tokenization
from official_albert.tokenization.in_graph import (
  sentencepiece_layer,
  text_layer,
  wordpiece_layer,
)

ALL_CHARACTERS = 0x110000
_PAGE_BITS = 8
_PAGE = 1 << _PAGE_BITS
# At each of these code points, UTF-8 begins to need one more byte.
_LONGER = (0x80, 0x800, 0x10000)


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
    vocab_size, cls_id, sep_id: those of `text_layer`.
  """

  def __init__(self, layer: text_layer.TextLayer, forms: CharacterTable):
    super().__init__(name="offsets")
    self.text_layer = layer
    self.vocab_size = layer.vocab_size
    self.cls_id, self.sep_id = layer.cls_id, layer.sep_id
    self._forms = forms

  def tokenize(self, texts: tf.Tensor, most: int = 0) -> tf.RaggedTensor:
    """Returns only the ids, as `TextLayer.tokenize` does."""
    return self.text_layer.tokenize(texts, most)

  def tokenize_with_offsets(self, texts: tf.Tensor) -> EncodedTexts:
    """Returns the ids of each text with the characters that they come from.

    Args:
      texts: <string>[B], UTF-8. Invalid bytes are dropped and not counted as
        characters.

    Raises:
      ValueError: `texts` is not a batch of strings.
    """
    raise NotImplementedError

  def _letters(self, texts: tf.Tensor, keeps_spaces: bool) -> Letters:
    codes = tf.strings.unicode_decode(texts, "UTF-8", errors="ignore")
    forms = codes.with_flat_values(self._forms(codes.flat_values))
    return find_letters(forms, keeps_spaces)


class SentencePieceOffsetLayer(OffsetTextLayer):
  """Equal to `SentencePieceTokenizer.encode_with_offsets`."""

  def __init__(self, layer: sentencepiece_layer.SentencePieceTextLayer):
    forms = form_table(
      lambda texts: layer.expand(layer.normalize(texts)), layer.character_form
    )
    super().__init__(layer, forms)
    self._visible = _visible_characters(layer)

  def tokenize_with_offsets(self, texts: tf.Tensor) -> EncodedTexts:
    texts = text_layer.check_texts(texts)
    normal = self.text_layer.expand(self.text_layer.normalize(texts))
    letters = self._letters(texts, keeps_spaces=True)
    codes = tf.strings.unicode_decode(normal, "UTF-8", errors="ignore")
    visible = tf.equal(self._visible(codes.flat_values), 1)
    sizes = utf8_sizes(codes.flat_values)
    # The first byte of each visible character of the normalized texts.
    places = tf.boolean_mask(tf.cumsum(sizes, exclusive=True), visible)
    cut = self.text_layer.cut(normal)
    text = cut.ids.value_rowids()
    begin = tf.gather(letters.text_begins, text)
    # Ranges of visible characters exclude spaces before a piece and characters
    # that SentencePiece drops after it. `before` counts the visible characters
    # before each text.
    first, last, before = (
      bound(places, begin + place, after=False)
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
    forms = form_table(
      lambda texts: tf.strings.reduce_join(layer.split_words(texts), axis=1),
      layer.character_form,
    )
    super().__init__(layer, forms)

  def tokenize_with_offsets(self, texts: tf.Tensor) -> EncodedTexts:
    texts = text_layer.check_texts(texts)
    words = self.text_layer.split_words(texts)
    sizes = words.with_flat_values(
      tf.cast(tf.strings.length(words.flat_values), tf.int64)
    )
    letters = self._letters(texts, keeps_spaces=False)
    ids, word, begins, ends = self.text_layer.cut(words)
    begin = tf.gather(tf.cumsum(sizes.flat_values, exclusive=True), word)
    return _encoded(
      ids, letters.starts_at(begin + begins), letters.ends_at(begin + ends - 1)
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
) -> CharacterTable:
  """Returns 1 for characters that SentencePiece keeps, else 0.

  SentencePiece's normalizer drops control characters and treats some others as
  spaces.

  Raises:
    ValueError: it changes a character into several, or splits unknown
      characters into bytes, so a piece may be a part of a character.
  """
  visible = np.ones(ALL_CHARACTERS, np.int32)
  visible[ord(" ")] = 0
  changing = changing_characters()
  chars = tf.constant([chr(code) for code in changing.tolist()])
  changed = layer.expand(layer.normalize(chars)).numpy() != chars.numpy()
  # SentencePiece never sees the characters that our normalization changes.
  codes = np.setdiff1d(assigned_characters(), changing[changed]).astype(
    np.int32
  )
  ids = layer.cut(tf.constant([chr(code) for code in codes.tolist()])).ids
  pieces = layer.pieces(tf.range(layer.vocab_size)).numpy().tolist()
  mark = tokenization.WORD_START
  lengths = [len(p.decode("utf-8").replace(mark, "")) for p in pieces]
  lengths[layer.unk_id] = 1
  lengths = ids.with_flat_values(tf.gather(lengths, ids.flat_values))
  kept = tf.reduce_sum(lengths, axis=1).numpy()
  # U+0344 alone becomes two marks. After a letter, it belongs to the letter.
  is_mark = [unicodedata.combining(chr(code)) > 0 for code in codes.tolist()]
  kept = np.where(is_mark, np.minimum(kept, 1), kept)
  if kept.max() > 1:
    char = chr(int(codes[kept.argmax()]))
    raise ValueError(
      f"{layer.model_file!r} makes several pieces of {char!r}: offsets in the "
      "graph need a model whose normalizer makes no character longer, trained "
      "without byte_fallback. Export token ids instead."
    )
  visible[codes] = kept
  return CharacterTable(visible)


class CharacterTable:
  """Maps each character to a small number.

  The graph holds each different page of 256 characters once. Since most pages
  of Unicode are equal, this takes kilobytes instead of megabytes.
  """

  def __init__(self, values: np.ndarray):
    """Builds the pages of values in -128 to 127, one for each code point."""
    pages, page_of = np.unique(
      values.reshape(-1, _PAGE), axis=0, return_inverse=True
    )
    self._values = pages.astype(np.int8).ravel()
    self._page_of = page_of.astype(np.int16).ravel()

  def __call__(self, codes: tf.Tensor) -> tf.Tensor:
    """Maps <int32>[N] code points to <int32>[N]."""
    page = tf.gather(
      tf.constant(self._page_of), tf.bitwise.right_shift(codes, _PAGE_BITS)
    )
    index = tf.cast(page, tf.int32) * _PAGE
    index += tf.bitwise.bitwise_and(codes, _PAGE - 1)
    return tf.cast(tf.gather(tf.constant(self._values), index), tf.int32)


@functools.cache
def assigned_characters() -> np.ndarray:
  """Returns the code points that Unicode has assigned, <int32>[...]."""
  none = ("Cn", "Co", "Cs")
  codes = range(ALL_CHARACTERS)
  assigned = [c for c in codes if unicodedata.category(chr(c)) not in none]
  return np.array(assigned, np.int32)


@functools.cache
def changing_characters() -> np.ndarray:
  """Returns the code points that normalization may change, <int32>[...]."""

  def changes(char: str) -> bool:
    return (
      unicodedata.category(char)[0] in "CMZ"
      or char.isspace()
      or char.lower() != char
      or unicodedata.normalize("NFKD", char) != char
    )

  codes = assigned_characters().tolist()
  # The replacements for invalid characters and NUL.
  odd = [0xFFFD, 0xFFFF]
  return np.array([c for c in codes if changes(chr(c))] + odd, np.int32)


def utf8_sizes(codes: tf.Tensor) -> tf.Tensor:
  """Returns the bytes of <int32>[N] code points in UTF-8, <int64>[N]."""
  return 1 + sum(tf.cast(codes >= first, tf.int64) for first in _LONGER)


def form_table(
  change: Callable[[tf.Tensor], tf.Tensor], python_form: Callable[[str], int]
) -> CharacterTable:
  """Returns a table of forms; see `text_offsets.GONE`.

  Lengths are in bytes and are measured with TensorFlow's operations, because
  its Unicode is older than Python's. `change` normalizes single characters
  <string>[n].
  """
  all_sizes = utf8_sizes(tf.range(ALL_CHARACTERS)).numpy()
  values: Any = tokenization.visible_form(all_sizes.astype(np.int32), False)
  codes = changing_characters()
  chars = [chr(code) for code in codes.tolist()]
  lengths = tf.strings.length(change(tf.constant(chars))).numpy()
  for code, char, length in zip(codes.tolist(), chars, lengths.tolist()):
    form = python_form(char)
    if form not in (tokenization.GONE, tokenization.SPACE):
      form = tokenization.visible_form(length, bool(form & 1))
    values[code] = form
  return CharacterTable(values)


class Letters(NamedTuple):
  """The positions of the letters of B texts, and their normalized lengths.

  Attributes:
    starts: <int64>[N], for each character that is not deleted, the first
      character of its letter, counted within the text.
    ends: <int64>[N], the end of its letter, exclusive.
    bytes_up_to: <int64>[N], the number of normalized bytes up to and including
      each character.
    text_begins: <int64>[B], the number of normalized bytes before each text.
    text_lengths: <int64>[B], the number of normalized bytes of each text.
  """

  starts: tf.Tensor
  ends: tf.Tensor
  bytes_up_to: tf.Tensor
  text_begins: tf.Tensor
  text_lengths: tf.Tensor

  def starts_at(self, place: tf.Tensor) -> tf.Tensor:
    """Returns where the letters of normalized bytes start in their texts.

    Bytes <int64>[K] are counted from the first byte of the first text.
    """
    return self._look_up(self.starts, place)

  def ends_at(self, place: tf.Tensor) -> tf.Tensor:
    """Returns the exclusive ends of the letters; see `starts_at`."""
    return self._look_up(self.ends, place)

  def _look_up(self, values: tf.Tensor, place: tf.Tensor) -> tf.Tensor:
    # If all texts are empty, positions are one past the end.
    values = tf.concat([values, [0]], 0)
    return tf.gather(values, bound(self.bytes_up_to, place, after=True))


def find_letters(forms: tf.RaggedTensor, keeps_spaces: bool) -> Letters:
  """Finds the letters of texts; see `text_offsets.character_spans`.

  Args:
    forms: <int32>[B, (characters)], from a `form_table`.
    keeps_spaces: whether a run of spaces inside the text becomes one byte;
      else it becomes none.
  """
  texts = forms.nrows()
  text = forms.value_rowids()
  place = tf.range(tf.size(text, tf.int64)) - tf.gather(
    forms.row_starts(), text
  )
  kept = tf.not_equal(forms.flat_values, tokenization.GONE)
  form, text, place = (
    tf.boolean_mask(x, kept) for x in (forms.flat_values, text, place)
  )
  number = tf.size(text, tf.int64)
  is_space = tf.equal(form, tokenization.SPACE)
  after_space = _shifted(is_space, True) | tf.not_equal(
    text, _shifted(text, -1)
  )
  lengths = tf.cast(tf.bitwise.right_shift(form, 1), tf.int64)
  lengths = tf.where(~is_space, lengths, 0)
  if keeps_spaces:
    index = tf.range(number)
    last = tf.math.unsorted_segment_max(
      tf.where(~is_space, index, -1), text, texts
    )
    one = is_space & ~after_space & (index < tf.gather(last, text))
    lengths += tf.cast(one, tf.int64)
  # A mark after a space belongs to no letter.
  begins = is_space | after_space | tf.equal(tf.bitwise.bitwise_and(form, 1), 0)
  letter = tf.cumsum(tf.cast(begins, tf.int64)) - 1
  heads = tf.where(begins)[:, 0]
  tails = tf.concat([heads[1:], [number]], 0)[: tf.size(heads)] - 1
  text_lengths = tf.math.unsorted_segment_sum(lengths, text, texts)
  return Letters(
    tf.gather(place, tf.gather(heads, letter)),
    tf.gather(place, tf.gather(tails, letter)) + 1,
    tf.cumsum(lengths),
    tf.cumsum(text_lengths, exclusive=True),
    text_lengths,
  )


def _shifted(values: tf.Tensor, first: Any) -> tf.Tensor:
  """Shifts `values` by one, with `first` in front."""
  return tf.concat([[first], values[:-1]], 0)[: tf.size(values)]


def bound(ordered: tf.Tensor, values: tf.Tensor, after: bool) -> tf.Tensor:
  """Returns the positions to insert <int64>[K] values, before or after equals.

  Unlike `tf.searchsorted`, this accepts an empty `ordered` <int64>[N].
  """
  search = tf.raw_ops.UpperBound if after else tf.raw_ops.LowerBound
  return search(
    sorted_inputs=ordered[None], values=values[None], out_type=tf.int64
  )[0]
