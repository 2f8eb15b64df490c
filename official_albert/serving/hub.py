"""An encoder and its preprocessor with the interface of TF Hub's modules.

      inputs = hub.KerasLayer("PREPROCESSOR")(texts)
      outputs = hub.KerasLayer("ENCODER", trainable=True)(inputs)

Names and shapes are those of tensorflow/albert_en_base/3 and
tensorflow/albert_en_preprocess/3. The SavedModels hold variables and TensorFlow
operations, without XLA or custom gradients.

Source: "Common SavedModel APIs for Text Tasks" and "Reusable SavedModels" of
TF Hub's documentation.
"""

from __future__ import annotations

from typing import Any, Callable, Iterable, Mapping, Optional, Sequence

import tensorflow as tf

from official_albert import checkpoints, modeling
from official_albert.serving import request_checks
from official_albert.tokenization import in_graph

# TF Hub's names, mapped to the names of this package.
FEATURES = {
  "input_word_ids": "input_ids",
  "input_mask": "input_mask",
  "input_type_ids": "segment_ids",
}
_POSITIONS = "masked_lm_positions"
_TEXTS = tf.TensorSpec([None], tf.string, "sentences")
Tensors = Mapping[str, tf.Tensor]


# A tf.Module has a property `variables`, which is not saved.
class HubObject(tf.train.Checkpoint):
  """An object to save, load and call, with what `hub.KerasLayer` looks for."""

  def __init__(
    self,
    call: tf.types.experimental.GenericFunction,
    variables: Sequence[tf.Variable] = (),
  ):
    """Takes a traced `tf.function` and its variables."""
    super().__init__()
    self.__call__ = call
    self.variables = list(variables)
    self.trainable_variables = list(variables)
    # Weight decay belongs to the optimizer.
    self.regularization_losses: list[tf.Tensor] = []


class HubEncoder(HubObject):
  """Maps `input_word_ids`, `input_mask`, `input_type_ids` <int32>[B, S].

  A call takes a dict of them and `training` (False by default), which applies
  dropout. It returns `pooled_output` and `default` <float32>[B, H], which are
  equal, `sequence_output` <float32>[B, S, H] and `encoder_outputs`, a list of
  one <float32>[B, S, H] for each block.

  Attributes:
    mlm: also takes `masked_lm_positions` <int32>[B, P] and returns
      `mlm_logits` <float32>[B, P, V]; exists if there is such a head.

  The SavedModel's variables have the names of a run's checkpoint, so everything
  that opens a checkpoint opens it.
  """

  def __init__(
    self,
    albert: modeling.AlbertModel,
    masked_lm: Optional[modeling.MaskedLMHead] = None,
    sentence_order: Optional[modeling.ClassificationHead] = None,
  ):
    """Traces all functions of a float32 model.

    The variables of `masked_lm` must exist; those of `sentence_order` are
    saved, too.
    """

    def encode(inputs: Tensors, training: bool) -> dict[str, Any]:
      seed = None
      if training:
        # tf.random.uniform would save the global seed of this process, and all
        # users would draw the same dropout masks.
        seed = tf.raw_ops.RandomUniformInt(
          shape=[2], minval=0, maxval=2**31 - 1, seed=0, seed2=0
        )
      features = {own: inputs[name] for name, own in FEATURES.items()}
      outputs = albert(features, training=training, dropout_seed=seed)
      # Sets a fixed length in the outputs' static shapes.
      hidden = [albert.config.hidden_size]
      shape = tf.concat([tf.shape(inputs["input_word_ids"]), hidden], axis=0)
      blocks = [tf.reshape(x, shape) for x in outputs["encoder_outputs"]]
      return {
        "pooled_output": outputs["pooled_output"],
        "default": outputs["pooled_output"],
        "sequence_output": blocks[-1],
        "encoder_outputs": blocks,
      }

    def predict_masked(inputs: Tensors, training: bool) -> dict[str, Any]:
      outputs = encode(inputs, training)
      outputs["mlm_logits"] = masked_lm(
        outputs["sequence_output"],
        inputs[_POSITIONS],
        albert.embedding,
        training=training,
      )
      return outputs

    variables = albert.trainable_variables
    super().__init__(_trace(encode, FEATURES), variables)
    self._config = albert.config
    parts = {"albert": albert, "masked_lm": masked_lm}
    parts["sentence_order"] = sentence_order
    checkpoints.name_variables(self, parts)
    if masked_lm is not None:
      self.mlm = HubObject(
        _trace(predict_masked, (*FEATURES, _POSITIONS)),
        variables + masked_lm.trainable_variables,
      )

  def signature(self) -> tf.types.experimental.GenericFunction:
    """Returns the serving signature, with all outputs that are one tensor."""
    specs, config = _specs(FEATURES), self._config
    encode = self.__call__.get_concrete_function(specs, training=False)

    @tf.function(autograph=False, input_signature=list(specs.values()))
    def serve(input_word_ids, input_mask, input_type_ids):
      values = (input_word_ids, input_mask, input_type_ids)
      features = dict(zip(FEATURES, values))
      checked = request_checks.check_ids(features, "B S", config, [*FEATURES])
      outputs = encode(checked, training=False)
      names = ("pooled_output", "sequence_output", "default")
      return {name: outputs[name] for name in names}

    return serve


def _specs(names: Iterable[str]) -> dict[str, tf.TensorSpec]:
  return {name: tf.TensorSpec([None, None], tf.int32, name) for name in names}


def _trace(compute: Callable[..., Any], names: Iterable[str]) -> Any:
  @tf.function(autograph=False)
  def call(inputs, training=False):
    # Inside the function, because saving traces it again.
    with modeling.plain_operations_only():
      return compute(inputs, training)

  for training in (True, False):
    call.get_concrete_function(_specs(names), training=training)
  return call


class HubPreprocessor(HubObject):
  """Maps <string>[B] to `input_word_ids`, `input_mask`, `input_type_ids`.

  The ids equal those of the training data, even where the preprocessor of
  tensorflow/albert_en_preprocess/3 differs.

  Attributes:
    tokenize: maps <string>[B] to <int32>[B, (tokens)], or with WordPiece to
      <int32>[B, (words), (tokens)]. It returns all tokens, so with
      SentencePiece, its time grows with the square of a run of characters that
      the vocabulary does not have: 1.4 s for 256 KiB. Its
      `get_special_tokens_dict()` returns `start_of_sequence_id`,
      `end_of_segment_id`, `padding_id`, `mask_id` and `vocab_size`, <int32>[]
      each.
    bert_pack_inputs: maps a list of one or two results of `tokenize`, and
      `seq_length`, to the same outputs as a call of this object.
  """

  def __init__(self, text_layer: in_graph.TextLayer, seq_length: int):
    """Traces all functions; `seq_length` is the default S."""
    if seq_length < 5:
      raise ValueError(
        f"seq_length must be at least 5, got {seq_length}: [CLS], two [SEP] "
        "and a token of each of two texts need as many."
      )
    by_words = isinstance(text_layer, in_graph.WordPieceTextLayer)
    tokens_of = text_layer.tokenize_words if by_words else text_layer.tokenize

    def tokens(sentences, most=0):
      checked = request_checks.check_texts({"sentences": sentences})
      return tokens_of(checked["sentences"], most)

    special = {
      "start_of_sequence_id": text_layer.cls_id,
      "end_of_segment_id": text_layer.sep_id,
      "padding_id": text_layer.pad_id,
      "mask_id": text_layer.mask_id,
      "vocab_size": text_layer.vocab_size,
    }
    ids = (text_layer.cls_id, text_layer.sep_id, text_layer.pad_id)

    @tf.function(autograph=False)
    def preprocess(sentences):
      return pack_segments([tokens(sentences, seq_length)], seq_length, *ids)

    @tf.function(autograph=False)
    def tokenize(sentences):
      return tokens(sentences)

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
    self.tokenize = HubObject(tokenize)
    self.tokenize.get_special_tokens_dict = get_special_tokens_dict
    self.bert_pack_inputs = HubObject(bert_pack_inputs)
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

  `segments` are one or two of <int32>[B, (tokens)], whose further ragged axes
  are flattened, and `seq_length` is S, at least 2 for one and 3 for two. The
  longer text loses its last tokens, as in `tokenization.pack_pair` and
  tensorflow_text's RoundRobinTrimmer. The second one and its [SEP] have type 1.
  """
  flat = [x.merge_dims(1, -1) if x.shape.rank > 2 else x for x in segments]
  first, second = flat if len(flat) == 2 else (*flat, None)
  has_room = request_checks.refuse_unless(
    tf.greater(seq_length, len(flat)),
    "seq_length is too small for [CLS] and [SEP]",
  )
  checked = request_checks.after_checks([has_room], seq_length)
  packed = in_graph.pack_pair(first, second, checked, cls_id, sep_id)
  shape = tf.stack([first.nrows(out_type=tf.int32), seq_length])
  padding = [[0, 0], [0, seq_length - tf.shape(packed["input_ids"])[1]]]
  # The reshape sets the static shapes.
  padded = {
    name: tf.reshape(tf.pad(x, padding), shape) for name, x in packed.items()
  }
  is_token = padded["input_mask"] > 0
  padded["input_ids"] = tf.where(is_token, padded["input_ids"], pad_id)
  return {name: padded[own] for name, own in FEATURES.items()}


def save_hub_object(module: HubObject, folder: str) -> None:
  """Writes the SavedModel of an object with a method `signature`."""
  signatures = {"serving_default": module.signature()}
  tf.saved_model.save(module, folder, signatures)
