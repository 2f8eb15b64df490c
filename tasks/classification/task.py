"""Classification and regression of texts as a task of the training loop.

Reference: google-research/albert classifier_utils.py (create_model,
model_fn_builder): cross entropy, or for STS-B the squared error.
"""

from __future__ import annotations

from typing import Callable, Mapping, Optional, Sequence

import numpy as np
import tensorflow as tf

from official_albert import modeling
from official_albert import training as training_lib
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
