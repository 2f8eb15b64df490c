"""One or two tokenized texts as fixed-length inputs, inside the graph.

The packing of TF Hub's preprocessors: [CLS] A [SEP] B [SEP], then padding. What
is too long is cut at its end; of two texts, room is given to one token of
each in turn, beginning with A, until it is used up (RoundRobinTrimmer of
tensorflow_text). For one or two texts that is what `packing.pack_pair` does
with the data of fine-tuning.

Source: "Common SavedModel APIs for Text Tasks" of TF Hub's documentation.
"""

from __future__ import annotations

from typing import Sequence

import tensorflow as tf


def pack_segments(
  segments: Sequence[tf.RaggedTensor],
  seq_length: tf.Tensor,
  cls_id: int,
  sep_id: int,
  pad_id: int,
) -> dict[str, tf.Tensor]:
  """Packs tokenized texts.

  Args:
    segments: one or two, each <int32>[B, (tokens)], or with more ragged axes,
      such as [B, (words), (tokens)], which are flattened.
    seq_length: S, <int32>[] or an int; at least 2 for one text, 3 for two.
    cls_id: of [CLS].
    sep_id: of [SEP].
    pad_id: of padding.

  Returns:
    `input_word_ids`, `input_mask`, `input_type_ids` <int32>[B, S]. Type 0 are
    [CLS], A, its [SEP] and padding; type 1 are B and its [SEP].

  Raises:
    ValueError: not one or two segments.
    tf.errors.InvalidArgumentError: `seq_length` is too small, or the segments
      are batches of different sizes.
  """
  if not 1 <= len(segments) <= 2:
    raise ValueError(
      f"one or two segments can be packed, got {len(segments)}: join them "
      "before."
    )
  segments = [
    segment.merge_dims(1, -1) if segment.shape.rank > 2 else segment
    for segment in segments
  ]
  batches = [segment.nrows(out_type=tf.int32) for segment in segments]
  room = seq_length - 1 - len(segments)
  checks = [
    tf.debugging.assert_non_negative(
      room,
      f"seq_length is too small: [CLS] and [SEP] of {len(segments)} segments "
      f"need {1 + len(segments)}",
    ),
    tf.debugging.assert_equal(
      batches[0], batches[-1], "the segments have different batch sizes"
    ),
  ]
  # Outside of a graph an assertion is made at once, and is None.
  with tf.control_dependencies(
    [check for check in checks if check is not None]
  ):
    batch = tf.identity(batches[0])
  lengths = [tf.cast(segment.row_lengths(), tf.int32) for segment in segments]
  kept = _kept(lengths, room)
  shape = tf.stack([batch, seq_length])
  columns = tf.range(seq_length)[None, :]  # [1, S]
  ids = tf.where(columns == 0, cls_id, 0)
  types = tf.zeros_like(columns)
  first = tf.ones([batch], tf.int32)  # Where a segment begins.
  for number, (segment, length) in enumerate(zip(segments, kept)):
    end = (first + length)[:, None]  # [B, 1], of its [SEP]
    ids += _placed(segment, length, first, shape)
    ids += tf.where(columns == end, sep_id, 0)
    inside = (columns >= first[:, None]) & (columns <= end)
    types += tf.where(inside, number, 0)
    first += length + 1
  mask = columns < first[:, None]
  named = {
    "input_word_ids": tf.where(mask, ids, pad_id),
    "input_mask": tf.cast(mask, tf.int32),
    "input_type_ids": types,
  }
  # The operations above know less of the shape than we do.
  return {name: tf.reshape(value, shape) for name, value in named.items()}


def _placed(
  segment: tf.RaggedTensor, kept: tf.Tensor, first: tf.Tensor, shape: tf.Tensor
) -> tf.Tensor:
  """The first `kept` <int32>[B] tokens of each row, from column `first` on.

  Elsewhere is 0. (With ragged operations it would be shorter, and take several
  times as long.)
  """
  rows = tf.cast(segment.value_rowids(), tf.int32)
  positions = tf.ragged.range(segment.row_lengths()).flat_values
  positions = tf.cast(positions, tf.int32)
  inside = positions < tf.gather(kept, rows)
  places = tf.stack([rows, positions + tf.gather(first, rows)], axis=1)
  return tf.scatter_nd(
    tf.boolean_mask(places, inside),
    tf.boolean_mask(segment.flat_values, inside),
    shape,
  )


def _kept(lengths: Sequence[tf.Tensor], room: tf.Tensor) -> list[tf.Tensor]:
  """How many tokens remain of each segment, <int32>[B] each."""
  if len(lengths) == 1:
    return [tf.minimum(lengths[0], room)]
  # Each keeps what the other leaves, and never less than half; A gets the odd
  # one.
  first, second = lengths
  return [
    tf.minimum(first, tf.maximum(room - second, (room + 1) // 2)),
    tf.minimum(second, tf.maximum(room - first, room // 2)),
  ]
