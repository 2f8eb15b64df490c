"""An encoder with the interface of TF Hub's transformer encoders.

      encoder = hub.KerasLayer("ENCODER", trainable=True)
      pooled = encoder(preprocessor(texts))["pooled_output"]

Names and shapes are those of tensorflow/albert_en_base/3; the sub-object `sop`
is new. The SavedModel holds variables and plain TensorFlow operations, without
XLA or custom gradients. Calls with training=True apply dropout.

Source: the page of tensorflow/albert_en_base/3; "Common SavedModel APIs for
Text Tasks" and "Reusable SavedModels" of TF Hub's documentation.
"""

from __future__ import annotations

import os
from typing import Any, Callable, Mapping, Optional, Sequence

import tensorflow as tf

from official_albert import modeling

# TF Hub's names, mapped to the names of this package.
FEATURES = {
  "input_word_ids": "input_ids",
  "input_mask": "input_mask",
  "input_type_ids": "segment_ids",
}
_POSITIONS = "masked_lm_positions"
Tensors = Mapping[str, tf.Tensor]


# A tf.Module has a property `variables`, which is not saved.
class HubObject(tf.train.Checkpoint):
  """An object to save, load and call, with what `hub.KerasLayer` looks for.

  Attributes:
    variables: the variables of a call.
    trainable_variables: the same.
    regularization_losses: none, as weight decay belongs to the optimizer.
  """

  def __init__(
    self, call: Callable[..., Any], variables: Sequence[tf.Variable] = ()
  ):
    """Initializes the object with a traced `tf.function` and its variables."""
    super().__init__()
    self.__call__ = call
    self.variables = list(variables)
    self.trainable_variables = list(variables)
    self.regularization_losses = []


def save_hub_object(module: HubObject, folder: str) -> None:
  """Writes the SavedModel of an object with a method `signature`.

  Raises:
    OSError: the folder cannot be written.
  """
  try:
    tf.saved_model.save(
      module, folder, signatures={"serving_default": module.signature()}
    )
  except tf.errors.OpError as error:
    raise OSError(f"{folder} could not be written: {error.message}") from error
  # TF Hub's site refuses it, and it is random.
  os.remove(os.path.join(folder, "fingerprint.pb"))


class HubEncoder(HubObject):
  """Maps `input_word_ids`, `input_mask`, `input_type_ids` <int32>[B, S].

  A call takes a dict of them and `training` (False by default). It returns
  `pooled_output` and `default` <float32>[B, H], which are equal,
  `sequence_output` <float32>[B, S, H] and `encoder_outputs`, a list of one
  <float32>[B, S, H] for each block.

  Attributes:
    mlm: also takes `masked_lm_positions` <int32>[B, P] and returns
      `mlm_logits` <float32>[B, P, V]; exists if there is such a head.
    sop: also returns `sop_logits` <float32>[B, 2] (0 in order, 1 swapped);
      exists if there is such a head.
  """

  def __init__(
    self,
    albert: modeling.AlbertModel,
    masked_lm: Optional[modeling.MaskedLMHead] = None,
    sentence_order: Optional[modeling.SentenceOrderHead] = None,
  ):
    """Traces all functions; the sub-objects share the encoder's variables.

    Args:
      albert: a float32 model.
      masked_lm: the masked LM head; its variables must exist.
      sentence_order: the sentence order head; its variables must exist.
    """
    if albert.compute_dtype != "float32":
      raise ValueError(
        f"the encoder computes in {albert.compute_dtype}: make it under "
        "float32, as users may load it where nothing else is fast."
      )

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

    def predict_order(inputs: Tensors, training: bool) -> dict[str, Any]:
      outputs = encode(inputs, training)
      pooled = outputs["pooled_output"]
      outputs["sop_logits"] = sentence_order(pooled, training=training)
      return outputs

    variables = albert.trainable_variables
    super().__init__(_trace(encode, FEATURES), variables)
    if masked_lm is not None:
      self.mlm = HubObject(
        _trace(predict_masked, (*FEATURES, _POSITIONS)),
        variables + masked_lm.trainable_variables,
      )
    if sentence_order is not None:
      self.sop = HubObject(
        _trace(predict_order, FEATURES),
        variables + sentence_order.trainable_variables,
      )

  def signature(self) -> tf.types.experimental.GenericFunction:
    """Returns the serving signature, with all outputs that are one tensor."""
    specs = _specs(FEATURES)
    encode = self.__call__.get_concrete_function(specs, training=False)

    @tf.function(autograph=False, input_signature=list(specs.values()))
    def serve(input_word_ids, input_mask, input_type_ids):
      values = (input_word_ids, input_mask, input_type_ids)
      outputs = encode(dict(zip(FEATURES, values)), training=False)
      names = ("pooled_output", "sequence_output", "default")
      return {name: outputs[name] for name in names}

    return serve


def _specs(names) -> dict[str, tf.TensorSpec]:
  return {name: tf.TensorSpec([None, None], tf.int32, name) for name in names}


def _trace(compute, names) -> Any:
  @tf.function(autograph=False)
  def call(inputs, training=False):
    # Inside the function, because saving traces it again.
    with modeling.plain_operations_only():
      return compute(inputs, training)

  for training in (True, False):
    call.get_concrete_function(_specs(names), training=training)
  return call
