"""SQuAD 1.1 and 2.0 as a task of the training loop.

Reference: google-research/albert squad_utils.py (v1_model_fn_builder,
v2_model_fn_builder). The loss is the mean of the cross entropies of start and
end; 2.0 adds half the cross entropy of "there is no answer".
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Mapping, Optional, Sequence

import tensorflow as tf

from official_albert import modeling
from official_albert.tasks.common import finetuning_task
from official_albert.tasks.common.finetuning_task import (
  Batch,
  Losses,
  Predictions,
)
from official_albert.tasks.squad import answers, decoding, metrics
from official_albert.tasks.squad import model as model_lib
from official_albert.tasks.squad.examples import Recipe, SquadExample
from official_albert.tasks.squad.windows import Window


@dataclasses.dataclass(frozen=True)
class Questions:
  """The questions of a split, and the windows of its records."""

  examples: Sequence[SquadExample]
  windows: Sequence[Window]


class SquadTask(finetuning_task.FinetuningTask):
  """Predicts answer spans, and in 2.0 whether there is an answer.

  Attributes:
    has_impossible: whether questions may have no answer, as in SQuAD 2.0.
    recipe: the settings for decoding scores into answers.
  """

  def __init__(
    self,
    *args,
    has_impossible: bool,
    questions: Mapping[str, Questions],
    recipe: Recipe,
    null_score_diff_threshold: Optional[float] = None,
    by_characters: bool = False,
    **kwargs,
  ):
    """Creates the task.

    Args (the others: see the attributes and `FinetuningTask`):
      questions: the questions of the splits to evaluate or predict.
      null_score_diff_threshold: higher null odds mean no answer. For None, see
        `metrics.score_answers`; without an evaluation, every question is
        answered. SQuAD 2.0 only.
      by_characters: how answers are compared; see `metrics`.
    """
    super().__init__(*args, **kwargs)
    self.has_impossible = has_impossible
    self._questions = questions
    self.recipe = recipe
    self._by_characters = by_characters
    self._given_threshold = null_score_diff_threshold
    # Set by the evaluation, and used for other splits after it.
    self._threshold = null_score_diff_threshold
    # That of the metrics, by split.
    self._scored: dict[str, Optional[float]] = {}

  def describe(self) -> dict[str, Any]:
    """Extends `FinetuningTask.describe` by the settings of decoding.

    Later predictions with the run's model use the same decoding as its
    evaluation. The threshold is in the results of the evaluation.
    """
    described = super().describe()
    names = ["n_best_size", "max_answer_length"]
    if self.has_impossible:
      names += ["start_n_top", "end_n_top"]
    for name in names:
      described["settings"][name] = getattr(self.recipe, name)
    return described

  def build_model(self) -> tf.keras.Model:
    """Builds the encoder with the head of the version."""
    if not self.has_impossible:
      return model_lib.AlbertForSpans(self.config, **self.model_options())
    return model_lib.AlbertForSpansOrNone(
      self.config,
      self.recipe.start_n_top,
      self.recipe.end_n_top,
      self.settings.classifier_dropout,
      **self.model_options(),
    )

  def losses(
    self, model: tf.keras.Model, outputs: Any, batch: Batch, training: bool
  ) -> Losses:
    """Returns the summed loss in nats, and accuracies of starts and ends."""
    if self.has_impossible:
      scores = outputs["start_log_probs"], outputs["end_log_probs"]
    else:
      # Deviation: in the original, padding competes with the text, so the
      # loss depends on the length to which a batch is padded.
      padding = 1 - tf.cast(batch["input_mask"], tf.float32)
      scores = tuple(
        outputs[name] + model_lib.NEVER * padding
        for name in ("start_logits", "end_logits")
      )
    weight = batch["example_weight"]
    loss, ratios = 0.0, {}
    for name, logits in zip(("start", "end"), scores):
      labels = batch[f"{name}_positions"]
      loss += 0.5 * modeling.cross_entropy(logits, labels)
      ratios[f"{name}_accuracy"] = finetuning_task.accuracy_sums(
        logits, labels, weight
      )
    if self.has_impossible:
      loss += 0.5 * tf.nn.sigmoid_cross_entropy_with_logits(
        tf.cast(batch["is_impossible"], tf.float32), outputs["cls_logits"]
      )
    return {self.name: tf.reduce_sum(loss * weight)}, ratios

  def predictions(
    self, model: tf.keras.Model, outputs: Any, batch: Batch
  ) -> dict[str, tf.Tensor]:
    """Returns the scores of each window for `decoding`."""
    scores = {name: outputs[name] for name in model.scores}
    if not self.has_impossible:
      # Pads to S, so that batches of all lengths have one shape.
      missing = self.max_seq_length - tf.shape(batch["input_ids"])[1]
      shape = [None, self.max_seq_length]
      scores = {
        name: tf.ensure_shape(tf.pad(x, [[0, 0], [0, missing]]), shape)
        for name, x in scores.items()
      }
    return {"example_id": batch["example_id"], **scores}

  def answers(
    self, split: str, predictions: Predictions
  ) -> dict[str, answers.QuestionAnswers]:
    """Returns the n best answers to each question of a split."""
    questions = self._questions[split]
    scores = {k: v for k, v in predictions.items() if k != "example_id"}
    return decoding.decode(
      questions.windows,
      {e.question_id: e.context for e in questions.examples},
      scores,
      self.recipe.n_best_size,
      self.recipe.max_answer_length,
    )

  def score(self, predictions: Predictions) -> dict[str, float]:
    """Returns the official metrics that are logged during training."""
    values = self.score_split(self.eval_split, predictions)
    names = ["exact_match", "f1"]
    if self.has_impossible:
      names = ["exact", "f1", "best_exact", "best_f1"]
    return {name: values[name] for name in names}

  def score_split(
    self, split: str, predictions: Predictions
  ) -> dict[str, float]:
    """Returns `metrics.score_answers` of a split, in percent."""
    threshold = self._given_threshold
    if split != self.eval_split:  # Test data chooses nothing.
      threshold = self._threshold
      if threshold is None:
        threshold = metrics.NULL_SCORE_DIFF_THRESHOLD
    values = metrics.score_answers(
      metrics.gold_answers(self._questions[split].examples),
      self.answers(split, predictions),
      self.has_impossible,
      threshold,
      self._by_characters,
    )
    self._scored[split] = values.get("null_score_diff_threshold")
    if split == self.eval_split:
      self._threshold = values.get(
        metrics.CHOSEN_THRESHOLD, self._scored[split]
      )
    return values

  def write_predictions(
    self, split: str, predictions: Predictions, folder: str
  ) -> list[str]:
    """Writes predictions.json and the other files to `folder/split`.

    A split that was scored has the answers of its `exact` and `f1`.
    """
    return answers.write_predictions(
      os.path.join(folder, split),
      self.answers(split, predictions),
      self._scored.get(split, self._threshold),
    )
