"""Texts to model inputs inside the graph: [CLS] A [SEP], or with B [SEP].

What training's records hold (packing.py) is repeated here with TensorFlow
operations, truncation included.
"""

from __future__ import annotations

from typing import Optional

import tensorflow as tf

from official_albert.tokenization.in_graph import graph_text
from official_albert.tokenization.in_graph import (
  sentencepiece_layers as text_layers,
)


class PackedTextLayer(tf.Module):
  """Strings to `input_ids`, `input_mask` and `segment_ids`.

      layer = PackedTextLayer(SentencePieceTextLayer("30k-clean.model"), 128)
      layer(tf.constant(["It rains."]), tf.constant(["It is wet."]))

  Attributes:
    text_layer: the tokenizer.
    max_seq_length: the longest sequence S that it makes.
  """

  def __init__(self, text_layer: text_layers.TextLayer, max_seq_length: int):
    """Composes the layer."""
    super().__init__(name="packed_text")
    self.text_layer = text_layer
    self.max_seq_length = max_seq_length

  def __call__(
    self, text_a: tf.Tensor, text_b: Optional[tf.Tensor] = None
  ) -> dict[str, tf.Tensor]:
    """Tokenizes and packs.

    Args:
      text_a: <string>[B], UTF-8.
      text_b: <string>[B], or None where there is no second text.

    Returns:
      `input_ids`, `input_mask`, `segment_ids` <int32>[B, S], with S the
      longest sequence of the batch, up to max_seq_length; padded with 0.

    Raises:
      ValueError: they are not batches of strings, or max_seq_length leaves no
        room for one token of each text.
    """
    ids_a = self.text_layer.tokenize(graph_text.check_texts(text_a))
    ids_b = None
    if text_b is not None:
      ids_b = self.text_layer.tokenize(graph_text.check_texts(text_b))
    return pack_pair(
      ids_a,
      ids_b,
      self.max_seq_length,
      self.text_layer.cls_id,
      self.text_layer.sep_id,
    )


def pack_pair(
  ids_a: tf.RaggedTensor,
  ids_b: Optional[tf.RaggedTensor],
  max_seq_length: int,
  cls_id: int,
  sep_id: int,
) -> dict[str, tf.Tensor]:
  """`packing.pack_pair` of each row, padded with 0 to the longest.

  Args:
    ids_a: <int32>[B, (tokens)] of A.
    ids_b: likewise of B; None where there is no second text.
    max_seq_length: tokens of a row at most, the special ones included.
    cls_id: of [CLS].
    sep_id: of [SEP].

  Returns:
    See `PackedTextLayer`.

  Raises:
    ValueError: `max_seq_length` leaves no room for one token of each text.
  """
  texts = 1 if ids_b is None else 2
  room = max_seq_length - 1 - texts
  if room < texts:
    raise ValueError(
      f"max_seq_length is {max_seq_length}, but [CLS], {texts} [SEP] and a "
      f"token of each text need {1 + 2 * texts}: give a larger one."
    )
  length_a = ids_a.row_lengths()  # [B]
  keep_a = tf.minimum(length_a, room)
  keep_b = None
  if ids_b is not None:
    length_b = ids_b.row_lengths()
    # A keeps what B leaves, but never less than half, rounded up.
    keep_a = tf.minimum(length_a, tf.maximum(room - length_b, (room + 1) // 2))
    keep_b = tf.minimum(length_b, room - keep_a)
  # All rows are taken from one list of ids by one gather: each row is a few
  # ranges of it, and [CLS] and [SEP] are ranges of one id.
  pieces = [tf.constant([cls_id, sep_id], ids_a.dtype), ids_a.values]
  first = tf.zeros_like(length_a)
  offset = tf.constant(2, length_a.dtype)
  ranges = [(first, first + 1), _range(ids_a, offset, keep_a)]
  ranges.append((first + 1, first + 2))
  length = keep_a + 2
  if ids_b is not None:
    pieces.append(ids_b.values)
    offset += tf.size(ids_a.values, length_a.dtype)
    ranges += [_range(ids_b, offset, keep_b), (first + 1, first + 2)]
    length += keep_b + 1
  starts, ends = (
    tf.reshape(tf.stack(column, axis=1), [-1]) for column in zip(*ranges)
  )
  ids = tf.gather(tf.concat(pieces, 0), tf.ragged.range(starts, ends).values)
  # An empty batch has a longest row of no length, which no model takes.
  longest = tf.maximum(tf.reduce_max(length), 1 + texts)
  rows = tf.RaggedTensor.from_row_lengths(ids, length, validate=False)
  mask = tf.sequence_mask(length, longest, tf.int32)
  segments = tf.zeros_like(mask)
  if ids_b is not None:
    segments = mask - tf.sequence_mask(keep_a + 2, longest, tf.int32)
  return {
    "input_ids": rows.to_tensor(shape=tf.stack([-1, longest])),
    "input_mask": mask,
    "segment_ids": segments,
  }


def _range(
  ids: tf.RaggedTensor, offset: tf.Tensor, keep: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
  """Where the first `keep` ids of each row are, `offset` further."""
  starts = ids.row_starts() + offset
  return starts, starts + keep
