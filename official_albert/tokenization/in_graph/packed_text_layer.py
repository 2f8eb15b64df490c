"""Packs texts as [CLS] A [SEP] or [CLS] A [SEP] B [SEP] in the graph.

The result, truncation included, equals that of `tokenization.pack_pair`, which
makes the training data.
"""

from __future__ import annotations

from typing import Optional, Union

import tensorflow as tf

from official_albert import tokenization
from official_albert.tokenization.in_graph import text_layers

_MASK = "[MASK]"


class PackedTextLayer(tf.Module):
  """Maps strings to `input_ids`, `input_mask` and `segment_ids`.

      layer = PackedTextLayer(SentencePieceTextLayer("30k-clean.model"), 128)
      layer(tf.constant(["It rains."]), tf.constant(["It is wet."]))

  Attributes:
    text_layer: the tokenizer.
    max_seq_length: the maximum sequence length S.
  """

  def __init__(self, text_layer: text_layers.TextLayer, max_seq_length: int):
    super().__init__(name="packed_text")
    self.text_layer = text_layer
    self.max_seq_length = max_seq_length

  def __call__(
    self, text_a: tf.Tensor, text_b: Optional[tf.Tensor] = None
  ) -> dict[str, tf.Tensor]:
    """Tokenizes one or two batches of texts <string>[B]; see `pack_pair`."""
    ids_a, ids_b = (
      x if x is None else self.text_layer.tokenize(x, self.max_seq_length)
      for x in (text_a, text_b)
    )
    return self._pack(ids_a, ids_b)

  def _pack(self, ids_a, ids_b=None):
    layer = self.text_layer
    return pack_pair(
      ids_a, ids_b, self.max_seq_length, layer.cls_id, layer.sep_id
    )


class FillMaskTextLayer(PackedTextLayer):
  """Maps strings with `[MASK]` to the inputs of a masked language model.

      layer = FillMaskTextLayer(SentencePieceTextLayer("30k-clean.model"), 128)
      layer(tf.constant(["The capital of [MASK] is Paris."]))

  The literal `[MASK]` (case matters) is found before normalization, and the
  texts between masks are tokenized separately. Text directly after a mask
  continues the word of the mask: "[MASK]." becomes `[MASK]` and ".", not
  `[MASK]`, "▁", ".", because this is what a masked word before a full stop
  looks like in pretraining data.
  """

  def __call__(  # type: ignore[override]  # It takes one text.
    self, texts: tf.Tensor
  ) -> dict[str, tf.Tensor]:
    """Packs each text of <string>[B] as `[CLS] text [SEP]`.

    Returns:
      The features of `pack_pair`, and `mask_positions` <int32>[B, M], the
      positions of [MASK], padded with -1. M is the largest number of masks in a
      text. Texts longer than max_seq_length lose their end, masks included.
    """
    features = self._pack(self._ids(text_layers.check_texts(texts)))
    ids = features["input_ids"]
    columns = tf.broadcast_to(tf.range(tf.shape(ids)[1]), tf.shape(ids))
    positions = tf.ragged.boolean_mask(
      columns, tf.equal(ids, self.text_layer.mask_id)
    )
    return {**features, "mask_positions": positions.to_tensor(-1)}

  def _ids(self, texts: tf.Tensor) -> tf.RaggedTensor:
    """Maps <string>[B] to <int32>[B, (pieces and masks)]."""
    layer, most = self.text_layer, self.max_seq_length
    # Of the whole texts, as the time of all parts adds up.
    parts = tf.strings.split(layer.shorten(texts, most), _MASK)
    parts = parts[:, :most]  # [B, (1 + masks)], each followed by a mask.
    ids = layer.tokenize(parts.flat_values, most)  # [all parts, (pieces)]
    # The first piece of a part continues the word if the part touches a mask.
    index_in_text = tf.ragged.range(parts.row_lengths()).flat_values
    space = text_layers.space_class()
    touches = (index_in_text > 0) & tf.equal(
      parts.flat_values,
      tf.strings.regex_replace(parts.flat_values, f"^{space}", ""),
    )
    begins = tf.equal(tf.ragged.range(ids.row_lengths()).flat_values, 0)
    within = begins & tf.gather(touches, ids.value_rowids())
    inner = self.text_layer.without_word_start(ids.flat_values)
    ids = ids.with_flat_values(tf.where(within, inner, ids.flat_values))
    ids = tf.ragged.boolean_mask(ids, tf.not_equal(ids, -1))
    mask = tf.fill([ids.nrows(out_type=tf.int32), 1], self.text_layer.mask_id)
    # Every part is followed by a mask, except the last one of a text.
    ids = parts.with_flat_values(tf.concat([ids, mask], axis=1))
    return ids.merge_dims(1, 2)[:, :-1]


def pack_pair(
  ids_a: tf.RaggedTensor,
  ids_b: Optional[tf.RaggedTensor],
  max_seq_length: int,
  cls_id: int,
  sep_id: int,
) -> dict[str, tf.Tensor]:
  """Applies `tokenization.pack_pair` to each row of ids and pads with 0.

  Returns:
    `input_ids`, `input_mask` and `segment_ids` <int32>[B, S]. S is the length
    of the longest sequence of the batch.
  """
  texts = 1 if ids_b is None else 2
  available = tokenization.available_tokens(max_seq_length, texts)
  return pack_available(ids_a, ids_b, available, cls_id, sep_id)


def pack_available(
  ids_a: tf.RaggedTensor,
  ids_b: Optional[tf.RaggedTensor],
  available: Union[int, tf.Tensor],
  cls_id: int,
  sep_id: int,
) -> dict[str, tf.Tensor]:
  """Packs like `pack_pair`, with `available` tokens besides [CLS] and [SEP]."""
  available = tf.cast(available, ids_a.row_splits.dtype)
  length_a = ids_a.row_lengths()  # [B]
  length_b = tf.zeros_like(length_a) if ids_b is None else ids_b.row_lengths()
  # As in `tokenization.pack_pair`.
  keep_a = tf.minimum(
    length_a, tf.maximum(available - length_b, (available + 1) // 2)
  )
  keep_b = tf.minimum(length_b, available - keep_a)
  # One gather collects all rows from one list of ids. Each row consists of a
  # few ranges of that list; [CLS] and [SEP] are ranges of length 1.
  values = [tf.constant([cls_id, sep_id], ids_a.dtype), ids_a.values]
  first = tf.zeros_like(length_a)
  start_a = ids_a.row_starts() + 2
  separator = (first + 1, first + 2)
  ranges = [(first, first + 1), (start_a, start_a + keep_a), separator]
  length = keep_a + 2
  if ids_b is not None:
    values.append(ids_b.values)
    start_b = ids_b.row_starts() + 2 + tf.size(ids_a.values, length_a.dtype)
    ranges += [(start_b, start_b + keep_b), separator]
    length += keep_b + 1
  starts, ends = (
    tf.reshape(tf.stack(column, axis=1), [-1]) for column in zip(*ranges)
  )
  ids = tf.gather(tf.concat(values, 0), tf.ragged.range(starts, ends).values)
  # Models do not accept length 0, which an empty batch would have.
  longest = tf.maximum(tf.reduce_max(length), 2 if ids_b is None else 3)
  rows = tf.RaggedTensor.from_row_lengths(ids, length, validate=False)
  mask = tf.sequence_mask(length, longest, tf.int32)
  # Segment 0 ends with the first [SEP].
  segments = mask - tf.sequence_mask(keep_a + 2, longest, tf.int32)
  return {
    "input_ids": rows.to_tensor(shape=tf.stack([-1, longest])),
    "input_mask": mask,
    "segment_ids": segments,
  }
