"""RACE as a model and a task: which of four options is correct.

Reference: google-research/albert race_utils.py (create_model): cross entropy
of a softmax over the options.
"""

from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence

import tensorflow as tf

from official_albert import modeling
from official_albert import training as training_lib
from tasks import common
from tasks.common import Batch, Outputs, Predictions
from tasks.race.examples import LETTERS, RaceExample, accuracy_by_level


@tf.keras.utils.register_keras_serializable(package="official_albert")
class AlbertForMultipleChoice(modeling.AlbertForSequenceClassification):
  """Scores each option as a sequence of its own."""

  def __init__(
    self,
    config: modeling.AlbertConfig,
    classifier_dropout_prob: float = 0.1,
    recompute_activations: bool = False,
    layerwise_lr_decay: float = 1.0,
    **kwargs,
  ):
    super().__init__(
      config,
      1,
      classifier_dropout_prob,
      recompute_activations,
      layerwise_lr_decay,
      **kwargs,
    )

  def call(
    self,
    features: Mapping[str, tf.Tensor],
    training: Optional[bool] = None,
    dropout_seed: Optional[tf.Tensor] = None,
    logits_only: bool = False,
    num_layers: Optional[int] = None,
  ) -> dict[str, Any]:
    """Scores O options of each example, <int32>[B, O, S].

    Returns:
      `logits` <float32>[B, O] and, unless `logits_only`, the outputs of
      `AlbertModel` for B * O sequences.
    """
    inputs, _ = self.named_inputs(features)
    ids = inputs["input_ids"]
    if len(ids.shape) == 2:  # The constructor creates the variables with it.
      return super().call(inputs, training, dropout_seed, logits_only)
    options, length = ids.shape[1], tf.shape(ids)[2]
    flat = {name: tf.reshape(x, [-1, length]) for name, x in inputs.items()}
    outputs = super().call(
      flat, training, dropout_seed, logits_only, num_layers
    )
    outputs["logits"] = tf.reshape(outputs["logits"], [-1, options])
    return outputs

  def get_config(self) -> dict[str, Any]:
    config = super().get_config()
    del config["num_classes"]
    return config


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

  def build_model(self) -> AlbertForMultipleChoice:
    """Builds the encoder with its pooler, and one score for each sequence."""
    return AlbertForMultipleChoice(
      self.config, self.settings.classifier_dropout, **self.model_options()
    )

  def forward(
    self,
    model: AlbertForMultipleChoice,
    batch: Batch,
    training: bool,
    dropout_seed: Optional[tf.Tensor],
  ) -> Outputs:
    """Returns the summed cross entropy in nats, and the accuracy."""
    logits = self.logits(model, batch, training, dropout_seed)
    return self.cross_entropy(logits, batch, training)

  def predict(
    self, model: AlbertForMultipleChoice, batch: Batch
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
