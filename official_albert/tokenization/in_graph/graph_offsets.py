"""Maps pieces to the characters that they come from, in the graph.

This is `text_offsets.py` for batches. A table stores the length to which
normalization changes each character. The cumulative lengths map a byte of the
normalized text back to a character of the original text. A character and the
combining marks after it count as one letter.

Letters: B texts, N characters of all texts, concatenated; K positions.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from official_albert import tokenization

ALL_CHARACTERS = 0x110000
_PAGE_BITS = 8
_PAGE = 1 << _PAGE_BITS
# At each of these code points, UTF-8 begins to need one more byte.
_LONGER = (0x80, 0x800, 0x10000)


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
  change: Callable[[tf.Tensor], tf.Tensor],
  is_gone: Callable[[str], bool],
  is_space: Callable[[str], bool],
  is_mark: Callable[[str], bool],
) -> CharacterTable:
  """Returns a table of forms; see `text_offsets.FormTable`.

  Lengths are in bytes and are measured with TensorFlow's operations, because
  its Unicode is older than Python's. `change` normalizes single characters
  <string>[n]. A mark belongs to the character before it.
  """
  all_sizes = utf8_sizes(tf.range(ALL_CHARACTERS)).numpy()
  values = tokenization.visible_form(all_sizes.astype(np.int32), False)
  codes = changing_characters()
  chars = [chr(code) for code in codes.tolist()]
  lengths = tf.strings.length(change(tf.constant(chars))).numpy()
  for code, char, length in zip(codes.tolist(), chars, lengths.tolist()):
    if is_gone(char):
      values[code] = tokenization.GONE
    elif is_space(char):
      values[code] = tokenization.SPACE
    else:
      values[code] = tokenization.visible_form(length, is_mark(char))
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


def _shifted(values: tf.Tensor, first) -> tf.Tensor:
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
