"""A preprocessor with TF Hub's interface, from texts to model inputs.

      preprocessor = hub.load("PREPROCESSOR")
      inputs = preprocessor(["One text.", "Another one."])
      tokens = [preprocessor.tokenize(a), preprocessor.tokenize(b)]
      inputs = preprocessor.bert_pack_inputs(tokens, seq_length=64)

Names and shapes are those of tensorflow/albert_en_preprocess/3. The ids equal
those of the training data, even where that preprocessor differs. For example,
"1922," is split into digits and comma.

Source: the page of tensorflow/albert_en_preprocess/3; "Common SavedModel APIs
for Text Tasks" of TF Hub's documentation.
"""

from __future__ import annotations

from typing import Sequence

import tensorflow as tf

from official_albert.serving.hub import SEQ_LENGTH
from official_albert.serving.hub import objects as hub_objects
from official_albert.tokenization import in_graph

_TEXTS = tf.TensorSpec([None], tf.string, "sentences")


class HubPreprocessor(hub_objects.HubObject):
  """Maps <string>[B] to `input_word_ids`, `input_mask`, `input_type_ids`.

  Attributes:
    tokenize: maps <string>[B] to <int32>[B, (tokens)], or with WordPiece to
      <int32>[B, (words), (tokens)]. Its `get_special_tokens_dict()` returns
      `start_of_sequence_id`, `end_of_segment_id`, `padding_id`, `mask_id` and
      `vocab_size`, <int32>[] each.
    bert_pack_inputs: maps a list of one or two results of `tokenize`, and
      `seq_length`, to the same outputs as a call of this object.
  """

  def __init__(
    self, text_layer: in_graph.TextLayer, seq_length: int = SEQ_LENGTH
  ):
    """Traces all functions; `seq_length` is the default S."""
    if seq_length < 5:
      raise ValueError(
        f"seq_length must be at least 5, got {seq_length}: [CLS], two [SEP] "
        "and a token of each of two texts need as many."
      )
    by_words = isinstance(text_layer, in_graph.WordPieceTextLayer)
    cut = text_layer.tokenize_words if by_words else text_layer.tokenize
    special = {
      "start_of_sequence_id": text_layer.cls_id,
      "end_of_segment_id": text_layer.sep_id,
      "padding_id": text_layer.pad_id,
      "mask_id": text_layer.mask_id,
      "vocab_size": text_layer.vocab_size,
    }
    ids = tuple(special.values())[:3]

    @tf.function(autograph=False)
    def preprocess(sentences):
      return pack_segments([cut(sentences)], seq_length, *ids)

    @tf.function(autograph=False)
    def tokenize(sentences):
      return cut(sentences)

    @tf.function(autograph=False, input_signature=[])
    def get_special_tokens_dict():
      return {name: tf.constant(x, tf.int32) for name, x in special.items()}

    @tf.function(autograph=False)
    def bert_pack_inputs(inputs, seq_length=seq_length):
      return pack_segments(inputs, seq_length, *ids)

    preprocess.get_concrete_function(_TEXTS)
    tokenize.get_concrete_function(_TEXTS)
    for rank in (2, 3):  # Tokens, or words of tokens.
      segment = tf.RaggedTensorSpec([None] * rank, tf.int32)
      for segments in ([segment], [segment, segment]):
        bert_pack_inputs.get_concrete_function(
          segments, seq_length=tf.TensorSpec([], tf.int32)
        )
    super().__init__(preprocess)
    self.tokenize = hub_objects.HubObject(tokenize)
    self.tokenize.get_special_tokens_dict = get_special_tokens_dict
    self.bert_pack_inputs = hub_objects.HubObject(bert_pack_inputs)
    self.text_layer = text_layer  # Has the resources of the functions.

  def signature(self) -> tf.types.experimental.ConcreteFunction:
    """Returns the serving signature."""
    return self.__call__.get_concrete_function(_TEXTS)


def pack_segments(
  segments: Sequence[tf.RaggedTensor],
  seq_length: tf.Tensor,
  cls_id: int,
  sep_id: int,
  pad_id: int,
) -> dict[str, tf.Tensor]:
  """Packs tokenized texts: [CLS] A [SEP] B [SEP], then padding.

  If two texts are too long together, the longer one is truncated at its end, as
  in `tokenization.pack_pair` and tensorflow_text's RoundRobinTrimmer.

  Args:
    segments: one or two of <int32>[B, (tokens)]; further ragged axes are
      flattened.
    seq_length: S, <int32>[] or an int; at least 2 for one text, 3 for two.
    cls_id: the id of [CLS].
    sep_id: the id of [SEP].
    pad_id: the id of padding.

  Returns:
    `input_word_ids`, `input_mask`, `input_type_ids` <int32>[B, S]. The second
    text and its [SEP] have type 1.
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
  # In eager execution, assertions are None.
  with tf.control_dependencies([x for x in checks if x is not None]):
    batch = tf.identity(batches[0])
  lengths = [tf.cast(segment.row_lengths(), tf.int32) for segment in segments]
  kept = [tf.minimum(lengths[0], room)]
  if len(segments) == 2:
    a, b = lengths
    kept[0] = tf.minimum(a, tf.maximum(room - b, (room + 1) // 2))
    kept.append(tf.minimum(b, room - kept[0]))
  shape = tf.stack([batch, seq_length])
  columns = tf.range(seq_length)[None, :]  # [1, S]
  ids = tf.where(columns == 0, cls_id, 0)
  types = tf.zeros_like(columns)
  start = tf.ones([batch], tf.int32)
  for number, (segment, length) in enumerate(zip(segments, kept)):
    end = (start + length)[:, None]  # [B, 1], the position of its [SEP].
    ids += _placed(segment, length, start, shape)
    ids += tf.where(columns == end, sep_id, 0)
    inside = (columns >= start[:, None]) & (columns <= end)
    types += tf.where(inside, number, 0)
    start += length + 1
  mask = columns < start[:, None]
  named = {
    "input_word_ids": tf.where(mask, ids, pad_id),
    "input_mask": tf.cast(mask, tf.int32),
    "input_type_ids": types,
  }
  # Sets the static shapes.
  return {name: tf.reshape(value, shape) for name, value in named.items()}


def _placed(
  segment: tf.RaggedTensor, kept: tf.Tensor, start: tf.Tensor, shape: tf.Tensor
) -> tf.Tensor:
  """Places the first `kept` <int32>[B] tokens of rows at `start` <int32>[B].

  Ragged operations would be shorter but several times slower.
  """
  rows = tf.cast(segment.value_rowids(), tf.int32)
  positions = tf.ragged.range(segment.row_lengths()).flat_values
  positions = tf.cast(positions, tf.int32)
  inside = positions < tf.gather(kept, rows)
  places = tf.stack([rows, positions + tf.gather(start, rows)], axis=1)
  return tf.scatter_nd(
    tf.boolean_mask(places, inside),
    tf.boolean_mask(segment.flat_values, inside),
    shape,
  )
