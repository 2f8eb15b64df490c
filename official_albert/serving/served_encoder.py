"""The encoder alone as a served model: texts or ids in, vectors out."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from official_albert.serving import request_checks, served_module
from official_albert.serving.served_module import Tensors
from official_albert.tokenization import in_graph

TEXT_SIGNATURES = ("encode", "encode_pair")


def encoder_outputs(outputs: Tensors) -> Tensors:
  """What is served of `AlbertModel`'s outputs, in float32."""
  return {
    name: tf.cast(outputs[name], tf.float32)
    for name in ("pooled_output", "sequence_output")
  }


class ServedEncoder(served_module.ServedModule):
  """`pooled_output` <float32>[B, H], `sequence_output` <float32>[B, S, H].

  Attributes:
    model: the `AlbertModel`.
  """

  kind = "encoder"
  text_signatures = TEXT_SIGNATURES

  def forward(self, **features: tf.Tensor) -> Tensors:
    return encoder_outputs(self.model(features, training=False))

  def text_functions(self) -> dict[str, Any]:
    packed = in_graph.PackedTextLayer(self.text_layer, self.max_seq_length)
    return encode_functions(packed, self.ids_outputs)


def encode_functions(
  packed: in_graph.PackedTextLayer, encode
) -> dict[str, Any]:
  """`encode` and `encode_pair`, which also say what ids the texts became.

  Args:
    packed: makes features.
    encode: from features to `encoder_outputs`.
  """
  text, text_a, text_b = (
    tf.TensorSpec([None], tf.string, name)
    for name in ("text", "text_a", "text_b")
  )

  @tf.function(input_signature=[text])
  def encode_one(text):
    """<string>[B]: vectors, `input_ids` and `input_mask` <int32>[B, S]."""
    features = packed(request_checks.check_texts({"text": text})["text"])
    outputs = encode(features)
    del features["segment_ids"]
    return {**outputs, **features}

  @tf.function(input_signature=[text_a, text_b])
  def encode_pair(text_a, text_b):
    """<string>[B] each: vectors, ids, mask and `segment_ids`."""
    texts = request_checks.check_texts({"text_a": text_a, "text_b": text_b})
    features = packed(texts["text_a"], texts["text_b"])
    return {**encode(features), **features}

  return dict(zip(TEXT_SIGNATURES, (encode_one, encode_pair)))
