"""Serves classes and numbers of texts: GLUE's tasks and the user's own."""

from __future__ import annotations

from typing import Any, Optional, Sequence

import tensorflow as tf

from official_albert import serving
from official_albert.serving import Tensors
from official_albert.tokenization import in_graph


class ServedTextTask(serving.ServedModule):
  """Returns `label` <string>[B], `probabilities` and `logits` <float32>[B, C].

  Or, without labels, `score` <float32>[B].

  Attributes:
    labels: the classes in the head's order; () for a regression.
    inputs: names of the texts.
  """

  def __init__(
    self,
    model: tf.keras.Model,
    text_layer: Optional[in_graph.TextLayer],
    max_seq_length: int,
    labels: Optional[Sequence[str]],
    is_pair: bool,
  ):
    """Composes the module of an `AlbertForSequenceClassification`.

    Without labels it is a regression; see also `ServedModule`.
    """
    super().__init__(model, text_layer, max_seq_length)
    self.labels = tuple(labels or ())
    self.inputs = ("text_a", "text_b") if is_pair else ("text",)
    self.kind = "classification" if labels else "regression"
    self.text_signatures = ("classify",) if labels else ("score",)

  def forward(self, **features: tf.Tensor) -> Tensors:
    return self.model(features, training=False, logits_only=True)

  def ids_outputs(self, features: Tensors) -> Tensors:
    logits = self.run(**features)["logits"]
    if not self.labels:
      return {"score": logits[:, 0]}
    best = tf.argmax(logits, axis=-1, output_type=tf.int32)
    return {
      "label": tf.gather(tf.constant(self.labels), best),
      "probabilities": tf.nn.softmax(logits),
      "logits": logits,
    }

  def text_functions(self) -> dict[str, Any]:
    packed = in_graph.PackedTextLayer(self.text_layer, self.max_seq_length)
    specs = [tf.TensorSpec([None], tf.string, name) for name in self.inputs]

    def outputs(*texts):
      checked = serving.check_texts(dict(zip(self.inputs, texts)))
      return self.ids_outputs(packed(*checked.values()))

    # A signature's inputs have the names of the function's arguments.
    def of_one(text):
      return outputs(text)

    def of_two(text_a, text_b):
      return outputs(text_a, text_b)

    function = of_two if len(self.inputs) > 1 else of_one
    return {
      self.text_signatures[0]: tf.function(function, input_signature=specs)
    }

  def settings(self) -> dict[str, Any]:
    return {"labels": list(self.labels), "inputs": list(self.inputs)}
