"""Packs texts to model inputs in the graph: [CLS] A [SEP] or with B [SEP].

The result, truncation included, equals that of `packing.py`, which makes the
training data.
"""

from __future__ import annotations

from typing import Optional

import tensorflow as tf

from official_albert.tokenization.in_graph import graph_text
from official_albert.tokenization.in_graph import (
  sentencepiece_layers as text_layers,
)


class PackedTextLayer(tf.Module):
  """Maps strings to `input_ids`, `input_mask` and `segment_ids`.

      layer = PackedTextLayer(SentencePieceTextLayer("30k-clean.model"), 128)
      layer(tf.constant(["It rains."]), tf.constant(["It is wet."]))

  Attributes:
    text_layer: the tokenizer.
    max_seq_length: the maximum sequence length S.
  """

  def __init__(self, text_layer: text_layers.TextLayer, max_seq_length: int):
    """Stores the tokenizer and the maximum length."""
    super().__init__(name="packed_text")
    self.text_layer = text_layer
    self.max_seq_length = max_seq_length

  def __call__(
    self, text_a: tf.Tensor, text_b: Optional[tf.Tensor] = None
  ) -> dict[str, tf.Tensor]:
    """Tokenizes and packs texts.

    Args:
      text_a: <string>[B], UTF-8.
      text_b: <string>[B], or None if there is no second text.

    Returns:
      `input_ids`, `input_mask` and `segment_ids` <int32>[B, S], padded with 0.
      S is the length of the longest sequence of the batch.

    Raises:
      ValueError: the texts are not batches of strings, or max_seq_length is
        too small for one token of each text.
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
  """Applies `packing.pack_pair` to each row and pads with 0.

  Args:
    ids_a: <int32>[B, (tokens)] of A.
    ids_b: <int32>[B, (tokens)] of B; None if there is no second text.
    max_seq_length: the maximum length of a row, special tokens included.
    cls_id: the id of [CLS].
    sep_id: the id of [SEP].

  Returns:
    See `PackedTextLayer`.

  Raises:
    ValueError: `max_seq_length` is too small for one token of each text.
  """
  texts = 1 if ids_b is None else 2
  available = max_seq_length - 1 - texts
  if available < texts:
    raise ValueError(
      f"max_seq_length is {max_seq_length}, but [CLS], {texts} [SEP] and a "
      f"token of each text need {1 + 2 * texts}: increase it."
    )
  length_a = ids_a.row_lengths()  # [B]
  keep_a = tf.minimum(length_a, available)
  keep_b = None
  if ids_b is not None:
    length_b = ids_b.row_lengths()
    # As in packing.py.
    keep_a = tf.minimum(
      length_a, tf.maximum(available - length_b, (available + 1) // 2)
    )
    keep_b = tf.minimum(length_b, available - keep_a)
  # One gather collects all rows from one list of ids. Each row consists of a
  # few ranges of that list; [CLS] and [SEP] are ranges of length 1.
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
  # Models do not accept the length 0 of an empty batch.
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
  """Returns the range of the first `keep` ids of each row, plus `offset`."""
  starts = ids.row_starts() + offset
  return starts, starts + keep
