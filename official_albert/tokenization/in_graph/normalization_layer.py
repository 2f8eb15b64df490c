"""The table of `normalization.py` as tensors, and what follows from it.

A text becomes code points, and each of them a row of the table. The position of
each character is repeated for each character that it becomes, which gives both
the changed text and its offsets.

Letters: B texts with N characters, which become M characters.
"""

from __future__ import annotations

import dataclasses
import functools
import unicodedata
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from official_albert.tokenization import normalization

ALL_CHARACTERS = 0x110000
_PAGE_BITS = 8
_PAGE = 1 << _PAGE_BITS
# With characters that are assigned, or will soon be.
_PAGES = (*range(0, 0x40000, _PAGE), *range(0xE0000, 0xE1000, _PAGE))
# TensorFlow does not encode noncharacters, which no vocabulary has. They become
# another character that none has.
_NONCHARACTERS = (
  *range(0xFDD0, 0xFDF0),
  *range(0xFFFE, ALL_CHARACTERS, 0x10000),
  *range(0xFFFF, ALL_CHARACTERS, 0x10000),
)
_STAND_IN = "\ue000"
# A row is the begin of a text, its length, and traits.
_LENGTH_BITS = 5
_BEGIN_BIT = normalization.LENGTH_BIT + _LENGTH_BITS
_UNCHANGED = 1 << normalization.LENGTH_BIT  # All rows but a few are this one.
# At each of these code points, UTF-8 begins to need one more byte.
_UTF8_STEPS = (0x80, 0x800, 0x10000)


class CharacterTable:
  """Maps each character to a number.

  The graph holds each different page of 256 characters once. Since most pages
  of Unicode are equal, this takes kilobytes instead of megabytes.
  """

  def __init__(self, values: np.ndarray):
    """Builds the pages from the values [0x110000]."""
    begins: dict[bytes, int] = {}
    self._begin_of = np.array(
      [
        begins.setdefault(page.tobytes(), len(begins) * _PAGE)
        for page in values.reshape(-1, _PAGE)
      ],
      np.int32,
    )
    self._values = np.frombuffer(b"".join(begins), values.dtype)

  def __call__(self, codes: tf.Tensor) -> tf.Tensor:
    """Maps <int32>[N] code points to their values [N]."""
    begin = tf.gather(
      tf.constant(self._begin_of), tf.bitwise.right_shift(codes, _PAGE_BITS)
    )
    index = begin + tf.bitwise.bitwise_and(codes, _PAGE - 1)
    return tf.gather(tf.constant(self._values), index)


class EncodedTexts(NamedTuple):
  """The ids of B texts and their half-open character ranges.

  All are RaggedTensors <int32>[B, (pieces)].
  """

  ids: tf.RaggedTensor
  starts: tf.RaggedTensor
  ends: tf.RaggedTensor


@dataclasses.dataclass
class NormalTexts:
  """B changed texts, each with a space in front if it is not empty.

  Attributes:
    codes: <int32>[M], the code points of all changed texts.
    splits: <int64>[B + 1], where the texts begin and end in `codes`.
    source: <int32>[M], the character that each of them comes from.
    rows: <int32>[M], the row of that character in the table.
    source_rows: <int32>[N], the row of each character. Each text has a space in
      front.
    source_splits: <int64>[B + 1], where the texts begin and end in it.
  """

  codes: tf.Tensor
  splits: tf.Tensor
  source: tf.Tensor
  rows: tf.Tensor
  source_rows: tf.Tensor
  source_splits: tf.Tensor

  def encode(self) -> tf.Tensor:
    """Returns the changed texts <string>[B]."""
    return tf.strings.regex_replace(encode(self.codes, self.splits), "^ ", "")

  @functools.cached_property
  def bytes_before(self) -> tf.Tensor:
    """The UTF-8 bytes before each character, and of all, <int64>[M + 1]."""
    sizes = sum(tf.cast(self.codes >= x, tf.int64) for x in (0, *_UTF8_STEPS))
    return tf.concat([[0], tf.cumsum(sizes)], 0)

  def character_at(self, offsets: tf.Tensor) -> tf.Tensor:
    """Returns the characters that begin after so many bytes, <int64>[K]."""
    return bound(self.bytes_before, offsets)

  def letters(self) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the starts and exclusive ends of characters, <int64>[M] each.

    A character that gives no text belongs to the one before it.
    """
    starts = tf.cast(self.source, tf.int64)
    begins = tf.where(text_lengths(self.source_rows) > 0)[:, 0]
    ends = tf.concat([begins, [tf.size(self.source_rows, tf.int64)]], 0)
    return starts, tf.gather(ends, bound(begins, starts + 1))

  def ranges(
    self, ids: tf.RaggedTensor, starts: tf.Tensor, ends: tf.Tensor
  ) -> EncodedTexts:
    """Counts ranges of characters <int64>[K] each within their texts."""
    begin = tf.gather(self.source_splits, ids.value_rowids()) + 1
    ends = tf.maximum(starts, ends)
    # A character such as "\ufdfa", which becomes words, is that of its spaces.
    ends = tf.maximum(ends, previous(ends, 0))
    starts, ends = (
      ids.with_flat_values(tf.cast(x - begin, tf.int32)) for x in (starts, ends)
    )
    return EncodedTexts(ids, starts, ends)


class NormalizationLayer:
  """Changes texts as `Normalization` does."""

  def __init__(self, normal: normalization.Normalization):
    self._normal = normal
    rows, self._differences = _table(normal)
    self._rows = CharacterTable(rows)

  def __call__(self, texts: tf.Tensor) -> NormalTexts:
    """Changes texts <string>[B], and drops bytes that are not UTF-8.

    SentencePiece's texts keep one space for a run of them between letters, and
    WordPiece's keep all.
    """
    decoded = tf.raw_ops.UnicodeDecode(
      input=tf.strings.join(["\n", texts]),  # So spaces are around each text.
      input_encoding="UTF-8",
      errors="ignore",
    )
    codes, rows = decoded.char_values, self._rows(decoded.char_values)
    length = text_lengths(rows)
    if not self._normal.words:
      space = has(rows, normalization.SPACE)
      length = tf.where(space & following(space, True), 0, length)
    if self._normal.lower_case:
      codes = _with_final_sigmas(codes, rows)
    # Each character is repeated, at most 31 times, by one operation. tf.repeat
    # has many.
    starts = tf.range(tf.size(length)) * (1 << _LENGTH_BITS)
    repeated = tf.raw_ops.RaggedRange(
      starts=starts, limits=starts + length, deltas=1
    )
    values = repeated.rt_dense_values
    source = tf.bitwise.right_shift(values, _LENGTH_BITS)
    new_rows = tf.gather(rows, source)
    index = tf.bitwise.bitwise_and(values, (1 << _LENGTH_BITS) - 1)
    index += tf.bitwise.right_shift(new_rows, _BEGIN_BIT)
    codes = tf.gather(codes, source)
    codes += tf.gather(tf.constant(self._differences), index)
    splits = tf.gather(repeated.rt_nested_splits, decoded.row_splits)
    return NormalTexts(
      codes, splits, source, new_rows, rows, decoded.row_splits
    )


def _with_final_sigmas(codes, rows):
  """Lowers sigmas at the ends of words by one, which is their other form."""
  place = tf.where(~has(rows, normalization.CASELESS))
  near = tf.gather_nd(rows, place)
  before = previous(has(near, normalization.CASED_END), False)
  after = following(has(near, normalization.CASED_START), False)
  final = has(near, normalization.SIGMA) & before & ~after
  return tf.tensor_scatter_nd_sub(codes, place, tf.cast(final, tf.int32))


def text_lengths(rows: tf.Tensor) -> tf.Tensor:
  """Returns the lengths of the texts of characters, <int32>[N]."""
  lengths = tf.bitwise.right_shift(rows, normalization.LENGTH_BIT)
  return tf.bitwise.bitwise_and(lengths, (1 << _LENGTH_BITS) - 1)


def has(rows: tf.Tensor, trait: int) -> tf.Tensor:
  """Returns whether characters have a trait, <bool>[N]."""
  return tf.not_equal(tf.bitwise.bitwise_and(rows, trait), 0)


def previous(values: tf.Tensor, first: Any) -> tf.Tensor:
  """Returns the value before each one of [N]."""
  return tf.concat([[first], values[:-1]], 0)[: tf.size(values)]


def following(values: tf.Tensor, last: Any) -> tf.Tensor:
  """Returns the value after each one of [N]."""
  return tf.concat([values, [last]], 0)[1:]


def bound(ordered: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
  """Returns how many of <int64>[N] are less than each of <int64>[K] values."""
  # Unlike tf.searchsorted, this accepts an empty `ordered`.
  return tf.raw_ops.LowerBound(
    sorted_inputs=ordered[None], values=values[None], out_type=tf.int64
  )[0]


def encode(codes: tf.Tensor, splits: tf.Tensor) -> tf.Tensor:
  """Returns the strings of code points <int32>[M], split at `splits`."""
  return tf.raw_ops.UnicodeEncode(
    input_values=codes, input_splits=splits, output_encoding="UTF-8"
  )


@functools.cache
def _table(
  normal: normalization.Normalization,
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the row of each code point, and all texts.

  A text is a list of differences from the code point, because many characters
  share them: the lower-case forms of A to Z are 32 higher.
  """
  begins: dict[tuple[int, ...], int] = {(0,): 0}
  differences = [0]
  rows = np.full(ALL_CHARACTERS, _UNCHANGED, np.int32)
  if normal.split_chinese:
    for first, last in normalization.CHINESE:
      rows[first : last + 1] |= normalization.ALONE

  def set_row(code: int, text: str, traits: int) -> None:
    found = tuple(ord(c) - code for c in text)
    begin = begins.setdefault(found, len(differences))
    if begin == len(differences):
      differences.extend(found)
    length = len(text) << normalization.LENGTH_BIT
    rows[code] = begin << _BEGIN_BIT | length | traits & (_UNCHANGED - 1)

  for start in _PAGES:
    page = "".join(map(chr, range(start, start + _PAGE)))
    if not _is_plain(page):
      for char in page:
        if not _is_plain(char):
          set_row(ord(char), *normal.describe(char))
  for code in _NONCHARACTERS:
    set_row(code, _STAND_IN, 0)
  return rows, np.array(differences, np.int32)


def _is_plain(text: str) -> bool:
  # Letters without case, and what is not assigned, have no trait, except that
  # they may be Chinese. To pass over their pages saves time.
  kinds = map(unicodedata.category, text)
  is_plain = {"Lo", "Cn", "Co"}.issuperset(kinds)
  return is_plain and unicodedata.is_normalized("NFKD", text)
