"""The preprocessor of TF Hub's transformer encoders: texts to model inputs.

      preprocessor = hub.load("PREPROCESSOR")
      inputs = preprocessor(["One text.", "Another one."])
      tokens = [preprocessor.tokenize(a), preprocessor.tokenize(b)]
      inputs = preprocessor.bert_pack_inputs(tokens, seq_length=64)

Same names and shapes as tensorflow/albert_en_preprocess/3, but the ids are
those of the tokenizer that made the training data (text_layers.py): what the
original does and that one does not, such as cutting "1922," into digits and
comma, is done here.

Source: the page of tensorflow/albert_en_preprocess/3; "Common SavedModel APIs
for Text Tasks" of TF Hub's documentation.
"""

from __future__ import annotations

import tensorflow as tf

from official_albert.serving.hub import SEQ_LENGTH
from official_albert.serving.hub import objects as hub_objects
from official_albert.serving.hub import packing as hub_packing
from official_albert.tokenization import in_graph

_TEXTS = tf.TensorSpec([None], tf.string, "sentences")


class HubPreprocessor(hub_objects.HubObject):
  """<string>[B] to `input_word_ids`, `input_mask`, `input_type_ids`.

  Attributes:
    tokenize: <string>[B] to <int32>[B, (tokens)], or for WordPiece
      <int32>[B, (words), (tokens)], like TF Hub's preprocessors of either
      kind. Its `get_special_tokens_dict()` gives `start_of_sequence_id`,
      `end_of_segment_id`, `padding_id`, `mask_id` and `vocab_size`,
      <int32>[] each.
    bert_pack_inputs: a list of one or two results of `tokenize`, and
      `seq_length`, to what a call of this object returns.
  """

  def __init__(
    self, text_layer: in_graph.TextLayer, seq_length: int = SEQ_LENGTH
  ):
    """Traces everything.

    Args:
      text_layer: the tokenizer.
      seq_length: S of a call, and of `bert_pack_inputs` unless it is told.

    Raises:
      ValueError: `seq_length` leaves no room for a token of each of two texts.
    """
    if seq_length < 5:
      raise ValueError(
        f"seq_length must be at least 5, got {seq_length}: [CLS], two [SEP] "
        "and a token of each of two texts need as many."
      )

    by_words = isinstance(text_layer, in_graph.WordPieceTextLayer)
    cut = text_layer.tokenize_words if by_words else text_layer.tokenize

    def pack(inputs, seq_length):
      return hub_packing.pack_segments(
        inputs,
        seq_length,
        text_layer.cls_id,
        text_layer.sep_id,
        text_layer.pad_id,
      )

    @tf.function(autograph=False)
    def preprocess(sentences):
      return pack([cut(sentences)], seq_length)

    @tf.function(autograph=False)
    def tokenize(sentences):
      return cut(sentences)

    preprocess.get_concrete_function(_TEXTS)
    tokenize.get_concrete_function(_TEXTS)
    super().__init__(preprocess)
    self.tokenize = hub_objects.HubObject(tokenize)
    self.tokenize.get_special_tokens_dict = _special_tokens(text_layer)
    self.bert_pack_inputs = hub_objects.HubObject(
      _pack_function(pack, seq_length)
    )
    # Whoever loads the functions needs what they look up.
    self.text_layer = text_layer

  def signature(self) -> tf.types.experimental.ConcreteFunction:
    """For servers and `saved_model_cli`."""
    return self.__call__.get_concrete_function(_TEXTS)


def _special_tokens(text_layer: in_graph.TextLayer):
  ids = {
    "start_of_sequence_id": text_layer.cls_id,
    "end_of_segment_id": text_layer.sep_id,
    "padding_id": text_layer.pad_id,
    "mask_id": text_layer.mask_id,
    "vocab_size": text_layer.vocab_size,
  }

  @tf.function(autograph=False, input_signature=[])
  def get_special_tokens_dict():
    return {name: tf.constant(value, tf.int32) for name, value in ids.items()}

  return get_special_tokens_dict


def _pack_function(pack, default_seq_length: int):
  """One trace for each number of segments, by tokens or by words."""

  @tf.function(autograph=False)
  def bert_pack_inputs(inputs, seq_length=default_seq_length):
    return pack(inputs, seq_length)

  for rank in (2, 3):
    for count in (1, 2):
      bert_pack_inputs.get_concrete_function(
        [tf.RaggedTensorSpec([None] * rank, tf.int32) for _ in range(count)],
        seq_length=tf.TensorSpec([], tf.int32),
      )
  return bert_pack_inputs
