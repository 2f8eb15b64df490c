"""RACE as the training loop sees it: which of four options is right.

Reference: google-research/albert race_utils.py (create_model): cross entropy
of a softmax over the options.
"""

from __future__ import annotations

import os
from typing import Mapping, Optional, Sequence

import tensorflow as tf

from official_albert import modeling
from official_albert import training as training_lib
from tasks import common
from tasks.common import Batch, Predictions
from tasks.race import metrics
from tasks.race import model as model_lib
from tasks.race.examples import LETTERS, RaceExample


class RaceTask(common.FinetuningTask):
  """One score for each option of a question."""

  head = training_lib.Head("multiple_choice")

  def __init__(
    self, *args, examples: Mapping[str, Sequence[RaceExample]], **kwargs
  ):
    """See `FinetuningTask`.

    Args:
      *args: of `FinetuningTask`.
      examples: of the splits that are evaluated or predicted.
      **kwargs: of `FinetuningTask`.
    """
    super().__init__(*args, **kwargs)
    self._examples = examples

  @property
  def sequences_per_example(self) -> int:
    """The options."""
    return len(LETTERS)

  def build_model(self) -> model_lib.AlbertForMultipleChoice:
    """The encoder with its pooler, and one score for each sequence."""
    return model_lib.AlbertForMultipleChoice(
      self.config,
      self.settings.classifier_dropout,
      recompute_activations=self.settings.recompute_activations,
      layerwise_lr_decay=self.settings.layerwise_lr_decay,
      name="model",
    )

  def forward(
    self,
    model: model_lib.AlbertForMultipleChoice,
    batch: Batch,
    training: bool,
    dropout_seed: Optional[tf.Tensor],
  ) -> tuple[dict[str, tf.Tensor], dict[str, training_lib.Ratio]]:
    """The summed cross entropy in nats, and the accuracy."""
    outputs = model(
      batch,
      training=training,
      dropout_seed=dropout_seed,
      logits_only=True,
      num_layers=self.num_layers,
    )
    logits = outputs["logits"]
    weight, labels = batch["example_weight"], batch["label_ids"]
    losses = modeling.cross_entropy(logits, labels)
    total = {self.name: tf.reduce_sum(losses * weight)}
    if not training:
      return total, {}  # `score_split` says more.
    accuracy = common.accuracy_sums(logits, labels, weight)
    return total, {f"{self.name}_accuracy": accuracy}

  def predict(
    self, model: model_lib.AlbertForMultipleChoice, batch: Batch
  ) -> dict[str, tf.Tensor]:
    """`probabilities` <float32>[B, 4]."""
    logits = model(
      batch, training=False, logits_only=True, num_layers=self.num_layers
    )["logits"]
    return {
      "example_id": batch["example_id"],
      "probabilities": tf.nn.softmax(logits),
    }

  def score_split(
    self, split: str, predictions: Predictions
  ) -> dict[str, float]:
    """Accuracy of all questions, and of middle and high school's."""
    examples = self._examples[split]
    return metrics.accuracy_by_level(
      predictions["probabilities"].argmax(axis=1),
      [example.label for example in examples],
      [example.level for example in examples],
    )

  def write_predictions(
    self, split: str, predictions: Predictions, folder: str
  ) -> list[str]:
    """Writes `SPLIT.probabilities.tsv`, a line for each question."""
    path = os.path.join(folder, f"{split}{common.PROBABILITIES_SUFFIX}")
    common.write_probabilities(
      path,
      common.ProbabilityTable(
        ids=tuple(e.example_id for e in self._examples[split]),
        labels=tuple(LETTERS),
        values=predictions["probabilities"],
      ),
    )
    return [path]
