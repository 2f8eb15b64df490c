"""Which characters of a text its pieces come from, inside the graph.

The twin of text_offsets, for many texts at once. What normalisation makes of a
character is as long as the table of characters says, so the lengths, added up,
lead from a byte of the changed text back to a character of the text before. A
character and the combining marks after it are one letter, as in text_offsets.

Letters: B texts, N characters of all of them, one text after the other, K
places that are asked for.
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
# From these on a character takes a byte more in UTF-8.
_LONGER = (0x80, 0x800, 0x10000)


class CharacterTable:
  """A small number for each character.

  Most of Unicode is alike, so the graph holds each different page of 256
  characters once: some kilobytes instead of megabytes.
  """

  def __init__(self, values: np.ndarray):
    """Finds the pages.

    Args:
      values: <int>[0x110000], by code point, from -128 to 127.
    """
    pages, page_of = np.unique(
      values.reshape(-1, _PAGE), axis=0, return_inverse=True
    )
    self._values = pages.astype(np.int8).ravel()
    self._page_of = page_of.astype(np.int16).ravel()

  def __call__(self, codes: tf.Tensor) -> tf.Tensor:
    """<int32>[N] code points -> <int32>[N]."""
    page = tf.gather(
      tf.constant(self._page_of), tf.bitwise.right_shift(codes, _PAGE_BITS)
    )
    place = tf.cast(page, tf.int32) * _PAGE
    place += tf.bitwise.bitwise_and(codes, _PAGE - 1)
    return tf.cast(tf.gather(tf.constant(self._values), place), tf.int32)


@functools.cache
def assigned_characters() -> np.ndarray:
  """<int32>[...] code points that Unicode gives a meaning."""
  none = ("Cn", "Co", "Cs")
  codes = range(ALL_CHARACTERS)
  assigned = [c for c in codes if unicodedata.category(chr(c)) not in none]
  return np.array(assigned, np.int32)


@functools.cache
def changing_characters() -> np.ndarray:
  """<int32>[...] code points that normalisation may do something to."""

  def changes(char: str) -> bool:
    return (
      unicodedata.category(char)[0] in "CMZ"
      or char.isspace()
      or char.lower() != char
      or unicodedata.normalize("NFKD", char) != char
    )

  codes = assigned_characters().tolist()
  # Two more stand for what is no character, and one of them is dropped.
  odd = [0xFFFD, 0xFFFF]
  return np.array([c for c in codes if changes(chr(c))] + odd, np.int32)


def utf8_sizes(codes: tf.Tensor) -> tf.Tensor:
  """<int32>[N] code points -> <int64>[N] bytes that they take in UTF-8."""
  return 1 + sum(tf.cast(codes >= first, tf.int64) for first in _LONGER)


def form_table(
  change: Callable[[tf.Tensor], tf.Tensor],
  is_gone: Callable[[str], bool],
  is_space: Callable[[str], bool],
  is_mark: Callable[[str], bool],
) -> CharacterTable:
  """What each character becomes, as `text_offsets.FormTable` has it.

  But lengths are in bytes, and those that TensorFlow's own operations make:
  its Unicode is not as new as Python's.

  Args:
    change: <string>[n] of a character each to what they become.
    is_gone: whether it leaves nothing and separates nothing.
    is_space: whether it is white space.
    is_mark: whether it belongs to the character before.
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
  """Where the letters of B texts are, and how long they are when changed.

  Attributes:
    starts: <int64>[N] of each character that is not gone, where its letter
      begins in its text, in characters.
    ends: <int64>[N] where it ends, exclusive.
    bytes_up_to: <int64>[N] bytes that it and all characters before it become.
    text_begins: <int64>[B] bytes that all texts before a text become.
    text_lengths: <int64>[B] bytes that each text becomes.
  """

  starts: tf.Tensor
  ends: tf.Tensor
  bytes_up_to: tf.Tensor
  text_begins: tf.Tensor
  text_lengths: tf.Tensor


def find_letters(forms: tf.RaggedTensor, keeps_spaces: bool) -> Letters:
  """The letters of texts, see `text_offsets.character_spans`.

  Args:
    forms: <int32>[B, (characters)], of a `form_table`.
    keeps_spaces: whether a run of spaces, but at the ends, becomes one byte;
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
  # A mark after a space has no letter to belong to.
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
  """`values` with `first` before, as long as they were."""
  return tf.concat([[first], values[:-1]], 0)[: tf.size(values)]


def letter_starts(letters: Letters, place: tf.Tensor) -> tf.Tensor:
  """Where the letters begin that bytes of the changed texts are from.

  Args:
    letters: of the texts before.
    place: <int64>[K], counted from the first text's first byte.

  Returns:
    <int64>[K], characters from the text's begin.
  """
  return _look_up(letters.starts, letters, place)


def letter_ends(letters: Letters, place: tf.Tensor) -> tf.Tensor:
  """Where they end, exclusive; see `letter_starts`."""
  return _look_up(letters.ends, letters, place)


def _look_up(
  values: tf.Tensor, letters: Letters, place: tf.Tensor
) -> tf.Tensor:
  found = bound(letters.bytes_up_to, place, after=True)
  # Of all texts empty, places are not asked for but beside.
  values = tf.concat([values, [0]], 0)
  return tf.gather(values, found)


def bound(ordered: tf.Tensor, values: tf.Tensor, after: bool) -> tf.Tensor:
  """Where values stand among others, <int64>[K].

  Unlike `tf.searchsorted`, also among none.

  Args:
    ordered: <int64>[N], never falling.
    values: <int64>[K].
    after: whether behind those that are equal, else before them.
  """
  search = tf.raw_ops.UpperBound if after else tf.raw_ops.LowerBound
  return search(
    sorted_inputs=ordered[None], values=values[None], out_type=tf.int64
  )[0]
