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
from official_albert.serving.hub import encoder as hub_encoder
from official_albert.tokenization import in_graph

_TEXTS = tf.TensorSpec([None], tf.string, "sentences")


class HubPreprocessor(hub_encoder.HubObject):
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
    self.tokenize = hub_encoder.HubObject(tokenize)
    self.tokenize.get_special_tokens_dict = get_special_tokens_dict
    self.bert_pack_inputs = hub_encoder.HubObject(bert_pack_inputs)
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
  first, *others = segments
  room = seq_length - 1 - len(segments)
  checks = [
    tf.debugging.assert_non_negative(
      room,
      f"seq_length is too small: [CLS] and [SEP] of {len(segments)} segments "
      f"need {1 + len(segments)}",
    ),
    tf.debugging.assert_equal(
      first.nrows(),
      segments[-1].nrows(),
      "the segments have different batch sizes",
    ),
  ]
  # In eager execution, assertions are None.
  with tf.control_dependencies([x for x in checks if x is not None]):
    room = tf.identity(room)
  packed = in_graph.pack_available(
    first, others[0] if others else None, room, cls_id, sep_id
  )
  ids, mask = packed["input_ids"], packed["input_mask"]
  named = {
    "input_word_ids": tf.where(mask > 0, ids, pad_id),
    "input_mask": mask,
    "input_type_ids": packed["segment_ids"],
  }
  shape = tf.stack([first.nrows(out_type=tf.int32), seq_length])
  padding = [[0, 0], [0, seq_length - tf.shape(ids)[1]]]
  values = {"input_word_ids": pad_id}
  # The reshape sets the static shapes.
  return {
    name: tf.reshape(
      tf.pad(x, padding, constant_values=values.get(name, 0)), shape
    )
    for name, x in named.items()
  }
