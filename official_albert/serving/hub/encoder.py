"""The encoder of TF Hub's transformer encoders, to compute with and to train.

      encoder = hub.KerasLayer("ENCODER", trainable=True)
      pooled = encoder(preprocessor(texts))["pooled_output"]

Same names and shapes as tensorflow/albert_en_base/3, and a sub-object `sop`
that it lacks. What is saved holds the variables and plain TensorFlow
operations: dropout while training, no XLA, gradients by differentiation.

Source: the page of tensorflow/albert_en_base/3; "Common SavedModel APIs for
Text Tasks" and "Reusable SavedModels" of TF Hub's documentation.
"""

from __future__ import annotations

from typing import Any, Mapping, Optional

import tensorflow as tf

from official_albert import modeling
from official_albert.serving.hub import objects as hub_objects

# TF Hub's names, and those of this package.
FEATURES = {
  "input_word_ids": "input_ids",
  "input_mask": "input_mask",
  "input_type_ids": "segment_ids",
}
POSITIONS = "masked_lm_positions"
_TENSORS = ("pooled_output", "sequence_output", "default")

Tensors = Mapping[str, tf.Tensor]


class HubEncoder(hub_objects.HubObject):
  """`input_word_ids`, `input_mask`, `input_type_ids` <int32>[B, S] to outputs.

  A call takes the dict and `training` (False by default), and returns
  `pooled_output` <float32>[B, H], `default`, which is the same,
  `sequence_output` <float32>[B, S, H] and `encoder_outputs`, a list with one
  <float32>[B, S, H] for each block.

  Attributes:
    mlm: takes `masked_lm_positions` <int32>[B, P] too, and returns
      `mlm_logits` <float32>[B, P, V] too; there if the head is.
    sop: returns `sop_logits` <float32>[B, 2] too (0 in order, 1 swapped);
      there if the head is.
  """

  def __init__(
    self,
    albert: modeling.AlbertModel,
    masked_lm: Optional[modeling.MaskedLMHead] = None,
    sentence_order: Optional[modeling.SentenceOrderHead] = None,
  ):
    """Traces everything; the sub-objects share the encoder's variables.

    Args:
      albert: computes in float32.
      masked_lm: has been called before, so that its variables are there.
      sentence_order: likewise.

    Raises:
      ValueError: the encoder computes in another precision.
    """
    if albert.compute_dtype != "float32":
      raise ValueError(
        f"the encoder computes in {albert.compute_dtype}: make it under "
        "float32, as users may load it where nothing else is fast."
      )

    def encode(inputs: Tensors, training: bool) -> dict[str, Any]:
      features = {own: inputs[name] for name, own in FEATURES.items()}
      outputs = albert(
        features,
        training=training,
        dropout_seed=_new_seed() if training else None,
      )
      # Whoever fixes the length finds it in the outputs' shapes: TensorFlow
      # sees through this function, but not through the blocks within.
      hidden = [albert.config.hidden_size]
      shape = tf.concat([tf.shape(inputs["input_word_ids"]), hidden], axis=0)
      blocks = [tf.reshape(x, shape) for x in outputs["encoder_outputs"]]
      return {
        "pooled_output": outputs["pooled_output"],
        "default": outputs["pooled_output"],
        "sequence_output": blocks[-1],
        "encoder_outputs": blocks,
      }

    def mask_model(inputs: Tensors, training: bool) -> dict[str, Any]:
      outputs = encode(inputs, training)
      outputs["mlm_logits"] = masked_lm(
        outputs["sequence_output"],
        inputs[POSITIONS],
        albert.embedding,
        training=training,
      )
      return outputs

    def order_model(inputs: Tensors, training: bool) -> dict[str, Any]:
      outputs = encode(inputs, training)
      outputs["sop_logits"] = sentence_order(
        outputs["pooled_output"], training=training
      )
      return outputs

    variables = albert.trainable_variables
    super().__init__(_trace(encode, FEATURES), variables)
    if masked_lm is not None:
      self.mlm = hub_objects.HubObject(
        _trace(mask_model, (*FEATURES, POSITIONS)),
        variables + masked_lm.trainable_variables,
      )
    if sentence_order is not None:
      self.sop = hub_objects.HubObject(
        _trace(order_model, FEATURES),
        variables + sentence_order.trainable_variables,
      )

  def signature(self) -> tf.types.experimental.GenericFunction:
    """For servers and `saved_model_cli`: what is one tensor of the outputs."""
    specs = _specs(FEATURES)
    encode = self.__call__.get_concrete_function(specs, training=False)

    @tf.function(autograph=False, input_signature=list(specs.values()))
    def serve(input_word_ids, input_mask, input_type_ids):
      values = (input_word_ids, input_mask, input_type_ids)
      outputs = encode(dict(zip(FEATURES, values)), training=False)
      return {name: outputs[name] for name in _TENSORS}

    return serve


def _specs(names) -> dict[str, tf.TensorSpec]:
  return {name: tf.TensorSpec([None, None], tf.int32, name) for name in names}


def _trace(compute, names) -> Any:
  """`compute` as a function that is traced for training and for inference."""

  @tf.function(autograph=False)
  def call(inputs, training=False):
    with (
      modeling.plain_operations_only()
    ):  # In here, as saving traces once more.
      return compute(inputs, training)

  for training in (True, False):
    call.get_concrete_function(_specs(names), training=training)
  return call


def _new_seed() -> tf.Tensor:
  """<int32>[2], another one each time the graph runs.

  Not tf.random.uniform, into which the exporting process' global seed would be
  frozen, so that every user's dropout began alike.
  """
  return tf.raw_ops.RandomUniformInt(
    shape=[2], minval=0, maxval=2**31 - 1, seed=0, seed2=0
  )
