"""Classification and regression of texts as the training loop sees them.

Reference: google-research/albert classifier_utils.py (create_model,
model_fn_builder): cross entropy, or for STS-B the squared error.
"""

from __future__ import annotations

import os
from typing import Callable, Mapping, Optional, Sequence

import numpy as np
import tensorflow as tf

from official_albert import modeling
from official_albert import training as training_lib
from tasks import common
from tasks.common import Batch, Predictions


class ClassificationTask(common.FinetuningTask):
  """One head over the pooler, for classes or, without any, a number.

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
    """See `FinetuningTask`.

    Args:
      *args: of `FinetuningTask`.
      labels: the classes in order; None for a regression.
      evaluate: from predictions and labels, classes <int>[N] or numbers
        <float32>[N], to the metrics.
      guids: of each split the examples' ids, for files of predictions.
      **kwargs: of `FinetuningTask`.
    """
    super().__init__(*args, **kwargs)
    self.labels = None if labels is None else tuple(labels)
    self.head = training_lib.Head(
      "regression" if labels is None else "classification", self.labels or ()
    )
    self._evaluate = evaluate
    self._guids = guids

  def build_model(self) -> modeling.AlbertForSequenceClassification:
    """The encoder with its pooler, and one head."""
    return modeling.AlbertForSequenceClassification(
      self.config,
      1 if self.labels is None else len(self.labels),
      self.settings.classifier_dropout,
      recompute_activations=self.settings.recompute_activations,
      layerwise_lr_decay=self.settings.layerwise_lr_decay,
      name="model",
    )

  def forward(
    self,
    model: modeling.AlbertForSequenceClassification,
    batch: Batch,
    training: bool,
    dropout_seed: Optional[tf.Tensor],
  ) -> tuple[dict[str, tf.Tensor], dict[str, training_lib.Ratio]]:
    """Summed cross entropy in nats, or squared error; and the accuracy."""
    outputs = model(
      batch,
      training=training,
      dropout_seed=dropout_seed,
      logits_only=True,
      num_layers=self.num_layers,
    )
    logits = outputs["logits"]
    weight, labels = batch["example_weight"], batch["label_ids"]
    if self.labels is None:
      errors = tf.square(logits[:, 0] - labels)
      return {self.name: tf.reduce_sum(errors * weight)}, {}
    losses = modeling.cross_entropy(logits, labels)
    total = {self.name: tf.reduce_sum(losses * weight)}
    if not training:
      return total, {}  # `score_split` says more.
    accuracy = common.accuracy_sums(logits, labels, weight)
    return total, {f"{self.name}_accuracy": accuracy}

  def predict(
    self,
    model: modeling.AlbertForSequenceClassification,
    batch: Batch,
  ) -> dict[str, tf.Tensor]:
    """`probabilities` <float32>[B, classes], or `values` <float32>[B]."""
    logits = model(
      batch, training=False, logits_only=True, num_layers=self.num_layers
    )["logits"]
    said = (
      {"values": logits[:, 0]}
      if self.labels is None
      else {"probabilities": tf.nn.softmax(logits)}
    )
    return {
      "example_id": batch["example_id"],
      "label_ids": batch["label_ids"],
      **said,
    }

  def score_split(
    self, split: str, predictions: Predictions
  ) -> dict[str, float]:
    """What `evaluate` says of the split."""
    del split
    if self.labels is None:
      said = predictions["values"]
    else:
      said = np.argmax(predictions["probabilities"], axis=1)
    return self._evaluate(said, predictions["label_ids"])

  def table(
    self, split: str, predictions: Predictions
  ) -> common.ProbabilityTable:
    """The predictions with the examples' ids."""
    return common.ProbabilityTable(
      ids=tuple(self._guids[split]),
      labels=self.labels or (),
      values=predictions["values" if self.labels is None else "probabilities"],
    )

  def write_predictions(
    self, split: str, predictions: Predictions, folder: str
  ) -> list[str]:
    """Writes `SPLIT.probabilities.tsv`."""
    path = os.path.join(folder, f"{split}{common.PROBABILITIES_SUFFIX}")
    common.write_probabilities(path, self.table(split, predictions))
    return [path]
