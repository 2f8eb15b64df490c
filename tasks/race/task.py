"""RACE as a task of the training loop: which of four options is correct.

Reference: google-research/albert race_utils.py (create_model): cross entropy
of a softmax over the options.
"""

from __future__ import annotations

from typing import Mapping, Optional, Sequence

import tensorflow as tf

from official_albert import training as training_lib
from tasks import common
from tasks.common import Batch, Outputs, Predictions
from tasks.race import model as model_lib
from tasks.race.examples import LETTERS, RaceExample, accuracy_by_level


class RaceTask(common.FinetuningTask):
  """One score for each option of a question."""

  head = training_lib.Head("multiple_choice")
  sequences_per_example = len(LETTERS)

  def __init__(
    self, *args, examples: Mapping[str, Sequence[RaceExample]], **kwargs
  ):
    """Creates the task.

    Args:
      *args: see `FinetuningTask`.
      examples: of the splits that are evaluated or predicted.
      **kwargs: see `FinetuningTask`.
    """
    super().__init__(*args, **kwargs)
    self._examples = examples

  def build_model(self) -> model_lib.AlbertForMultipleChoice:
    """Builds the encoder with its pooler, and one score for each sequence."""
    return model_lib.AlbertForMultipleChoice(
      self.config, self.settings.classifier_dropout, **self.model_options()
    )

  def forward(
    self,
    model: model_lib.AlbertForMultipleChoice,
    batch: Batch,
    training: bool,
    dropout_seed: Optional[tf.Tensor],
  ) -> Outputs:
    """Returns the summed cross entropy in nats, and the accuracy."""
    logits = self.logits(model, batch, training, dropout_seed)
    return self.cross_entropy(logits, batch, training)

  def predict(
    self, model: model_lib.AlbertForMultipleChoice, batch: Batch
  ) -> dict[str, tf.Tensor]:
    """Returns `probabilities` <float32>[B, 4]."""
    return {
      "example_id": batch["example_id"],
      "probabilities": tf.nn.softmax(self.logits(model, batch)),
    }

  def score_split(
    self, split: str, predictions: Predictions
  ) -> dict[str, float]:
    """Returns the accuracy of all questions and of each level of school."""
    examples = self._examples[split]
    return accuracy_by_level(
      predictions["probabilities"].argmax(axis=1),
      [example.label for example in examples],
      [example.level for example in examples],
    )

  def write_predictions(
    self, split: str, predictions: Predictions, folder: str
  ) -> list[str]:
    """Writes `SPLIT.probabilities.tsv`, a line for each question."""
    ids = [example.example_id for example in self._examples[split]]
    return common.write_table(
      folder, split, ids, LETTERS, predictions["probabilities"]
    )
