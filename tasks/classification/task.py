"""Classification and regression of texts: a task of the training loop, served.

Reference: google-research/albert classifier_utils.py (create_model,
model_fn_builder): cross entropy, or for STS-B the squared error.
"""

from __future__ import annotations

from typing import Any, Callable, Mapping, Optional, Sequence

import numpy as np
import tensorflow as tf

from official_albert import modeling, serving
from official_albert import training as training_lib
from official_albert.serving import Tensors
from official_albert.tokenization import in_graph
from tasks import common
from tasks.common import Batch, Outputs, Predictions


class ClassificationTask(common.FinetuningTask):
  """Trains one head on the pooled output, for classes or for a number.

  Attributes:
    labels: the classes in order; None for a regression.
  """

  def __init__(
    self,
    *args,
    labels: Optional[Sequence[str]],
    evaluate: Callable[[np.ndarray, np.ndarray], dict[str, float]],
    guids: Mapping[str, Sequence[str]],
    **kwargs,
  ):
    """Creates the task.

    Args:
      *args: see `FinetuningTask`.
      labels: the classes in order; None for a regression.
      evaluate: maps predictions and labels, classes <int>[N] or numbers
        <float32>[N], to metrics.
      guids: ids of the examples by split, for files of predictions.
      **kwargs: see `FinetuningTask`.
    """
    super().__init__(*args, **kwargs)
    self.labels = None if labels is None else tuple(labels)
    self.head = training_lib.Head(
      "regression" if labels is None else "classification", self.labels or ()
    )
    self._evaluate = evaluate
    self._guids = guids

  def build_model(self) -> modeling.AlbertForSequenceClassification:
    """Builds the encoder with its pooler and one head."""
    return modeling.AlbertForSequenceClassification(
      self.config,
      len(self.labels or "1"),
      self.settings.classifier_dropout,
      **self.model_options(),
    )

  def forward(
    self,
    model: modeling.AlbertForSequenceClassification,
    batch: Batch,
    training: bool,
    dropout_seed: Optional[tf.Tensor],
  ) -> Outputs:
    """Returns the summed cross entropy or squared error, and the accuracy."""
    logits = self.logits(model, batch, training, dropout_seed)
    if self.labels is None:
      errors = tf.square(logits[:, 0] - batch["label_ids"])
      return {self.name: tf.reduce_sum(errors * batch["example_weight"])}, {}
    return self.cross_entropy(logits, batch, training)

  def predict(
    self, model: modeling.AlbertForSequenceClassification, batch: Batch
  ) -> dict[str, tf.Tensor]:
    """Returns `probabilities` <float32>[B, C], or `values` <float32>[B]."""
    logits = self.logits(model, batch)
    outputs = {name: batch[name] for name in ("example_id", "label_ids")}
    if self.labels is None:
      return {**outputs, "values": logits[:, 0]}
    return {**outputs, "probabilities": tf.nn.softmax(logits)}

  def score_split(
    self, split: str, predictions: Predictions
  ) -> dict[str, float]:
    """Returns the metrics of `evaluate`."""
    del split
    if self.labels is None:
      values = predictions["values"]
    else:
      values = np.argmax(predictions["probabilities"], axis=1)
    return self._evaluate(values, predictions["label_ids"])

  def write_predictions(
    self, split: str, predictions: Predictions, folder: str
  ) -> list[str]:
    """Writes `SPLIT.probabilities.tsv`."""
    name = "values" if self.labels is None else "probabilities"
    return common.write_table(
      folder, split, self._guids[split], self.labels or (), predictions[name]
    )


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
      self.text_signatures[0]: tf.function(
        function, input_signature=specs, autograph=False
      )
    }

  def settings(self) -> dict[str, Any]:
    return {"labels": list(self.labels), "inputs": list(self.inputs)}
