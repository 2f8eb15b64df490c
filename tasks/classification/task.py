"""Classification and regression of texts: a task of the training loop, served.

Reference: google-research/albert classifier_utils.py (create_model,
model_fn_builder): cross entropy, or for STS-B the squared error.
"""

from __future__ import annotations

from typing import Any, Optional, Sequence

import tensorflow as tf

from official_albert import modeling, serving
from official_albert import training as training_lib
from official_albert.serving import Tensors
from official_albert.tokenization import in_graph
from tasks import common


class ClassificationTask(common.LabelTask):
  """Trains one head on the pooled output, for classes or for a number."""

  @property
  def head(self) -> training_lib.Head:
    """The meaning of the head's outputs; a warm start compares the classes."""
    kind = "regression" if self.labels is None else "classification"
    return training_lib.Head(kind, self.labels or ())

  def build_model(self) -> modeling.AlbertForSequenceClassification:
    """Builds the encoder with its pooler and one head."""
    return modeling.AlbertForSequenceClassification(
      self.config,
      len(self.labels or "1"),
      self.settings.classifier_dropout,
      **self.model_options(),
    )


class ServedTextTask(serving.ServedModule):
  """Returns `label` <string>[B], `probabilities` and `logits` <float32>[B, C].

  For a regression, returns `score` <float32>[B] instead.

  Attributes:
    labels: the classes in the head's order; () for a regression.
    inputs: the names of the texts.
  """

  def __init__(
    self,
    model: tf.keras.Model,
    text_layer: Optional[in_graph.TextLayer],
    max_seq_length: int,
    labels: Optional[Sequence[str]],
    is_pair: bool,
  ):
    """Serves an `AlbertForSequenceClassification`; see `ServedModule`.

    Without labels, it is a regression.
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
      named = dict(zip(self.inputs, texts))
      checked = serving.check_texts(named, self.max_seq_length)
      return self.ids_outputs(packed(*checked.values()))

    # A signature's inputs have the names of the function's arguments.
    def of_one(text):
      return outputs(text)

    def of_two(text_a, text_b):
      return outputs(text_a, text_b)

    function = of_two if len(self.inputs) > 1 else of_one
    return {
      self.text_signatures[0]: tf.function(
        function, input_signature=specs, autograph=False
      )
    }

  def settings(self) -> dict[str, Any]:
    return {"labels": list(self.labels), "inputs": list(self.inputs)}
