"""SQuAD 1.1 and 2.0 as the training loop sees them.

Reference: google-research/albert squad_utils.py (v1_model_fn_builder,
v2_model_fn_builder): the mean of the cross entropies of start and end; in 2.0
half of their sum and half the cross entropy of "there is no answer".
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Mapping, Optional, Sequence

import tensorflow as tf

from official_albert import modeling
from official_albert import training as training_lib
from tasks import common
from tasks.common import Batch, Predictions
from tasks.squad import answers, decoding, metrics, prediction_files
from tasks.squad import model as model_lib
from tasks.squad.examples import SquadExample
from tasks.squad.windows import Window

# What a position that cannot be an answer gets.
_NEVER = -1e30


@dataclasses.dataclass(frozen=True)
class Decoding:
  """How answers are made of scores."""

  n_best_size: int = decoding.N_BEST_SIZE
  max_answer_length: int = decoding.MAX_ANSWER_LENGTH
  # Starts that are kept, and ends for each of them; 2.0 only.
  start_n_top: int = 5
  end_n_top: int = 5
  # Null odds over it mean no answer; None takes the best one of the evaluated
  # questions, and answers always where there are none. 2.0 only.
  null_score_diff_threshold: Optional[float] = None


@dataclasses.dataclass(frozen=True)
class Questions:
  """A split: its questions, and the windows that its records hold."""

  examples: Sequence[SquadExample]
  windows: Sequence[Window]


class SquadTask(common.FinetuningTask):
  """Spans of a context, and in 2.0 whether there is one.

  Attributes:
    has_impossible: whether questions may have no answer, as in SQuAD 2.0.
  """

  def __init__(
    self,
    *args,
    has_impossible: bool,
    questions: Mapping[str, Questions],
    decode: Decoding = Decoding(),
    **kwargs,
  ):
    """See `FinetuningTask`.

    Args:
      *args: of `FinetuningTask`.
      has_impossible: SQuAD 2.0.
      questions: of the splits that are evaluated or predicted.
      decode: how answers are made of scores.
      **kwargs: of `FinetuningTask`.
    """
    super().__init__(*args, **kwargs)
    self.has_impossible = has_impossible
    self._questions = questions
    self._decoding = decode
    # That of the evaluated split; what is predicted after it uses it too.
    self._threshold = decode.null_score_diff_threshold

  def describe(self) -> dict[str, Any]:
    """As `FinetuningTask.describe`; the settings have those of decoding too.

    So whoever predicts with the run's model makes the answers that it was
    evaluated on. The threshold stands in the results: it is found there.
    """
    described = super().describe()
    names = ["n_best_size", "max_answer_length"]
    if self.has_impossible:
      names += ["start_n_top", "end_n_top"]
    for name in names:
      described["settings"][name] = getattr(self._decoding, name)
    return described

  def build_model(self) -> tf.keras.Model:
    """The encoder with the head of the version."""
    arguments = {
      "recompute_activations": self.settings.recompute_activations,
      "layerwise_lr_decay": self.settings.layerwise_lr_decay,
      "name": "model",
    }
    if not self.has_impossible:
      return model_lib.AlbertForSpans(self.config, **arguments)
    return model_lib.AlbertForSpansOrNone(
      self.config,
      self._decoding.start_n_top,
      self._decoding.end_n_top,
      self.settings.classifier_dropout,
      **arguments,
    )

  def forward(
    self,
    model: tf.keras.Model,
    batch: Batch,
    training: bool,
    dropout_seed: Optional[tf.Tensor],
  ) -> tuple[dict[str, tf.Tensor], dict[str, training_lib.Ratio]]:
    """The summed loss in nats, and the share of right starts and ends."""
    outputs = model(
      batch,
      training=training,
      dropout_seed=dropout_seed,
      num_layers=self.num_layers,
    )
    if self.has_impossible:
      scores = outputs["start_log_probs"], outputs["end_log_probs"]
    else:
      # Deviation: the original lets padding compete with the text, so that its
      # loss depends on how far a batch is padded.
      padding = 1 - tf.cast(batch["input_mask"], tf.float32)
      scores = tuple(
        outputs[name] + _NEVER * padding
        for name in ("start_logits", "end_logits")
      )
    weight = batch["example_weight"]
    loss, ratios = 0.0, {}
    for name, logits in zip(("start", "end"), scores):
      labels = batch[f"{name}_positions"]
      loss += 0.5 * modeling.cross_entropy(logits, labels)
      ratios[f"{name}_accuracy"] = common.accuracy_sums(logits, labels, weight)
    if self.has_impossible:
      loss += 0.5 * tf.nn.sigmoid_cross_entropy_with_logits(
        tf.cast(batch["is_impossible"], tf.float32), outputs["cls_logits"]
      )
    return {self.name: tf.reduce_sum(loss * weight)}, ratios

  def predict(
    self, model: tf.keras.Model, batch: Batch
  ) -> dict[str, tf.Tensor]:
    """The scores that `decoding` takes, of each window."""
    outputs = model(batch, training=False, num_layers=self.num_layers)
    if self.has_impossible:
      names = (
        "start_top_log_probs",
        "start_top_index",
        "end_top_log_probs",
        "end_top_index",
        "cls_logits",
      )
      said = {name: outputs[name] for name in names}
    else:
      # One shape for batches of all lengths.
      missing = self.max_seq_length - tf.shape(batch["input_ids"])[1]
      said = {
        name: tf.ensure_shape(
          tf.pad(outputs[name], [[0, 0], [0, missing]]),
          [None, self.max_seq_length],
        )
        for name in ("start_logits", "end_logits")
      }
    return {"example_id": batch["example_id"], **said}

  def answers(
    self, split: str, predictions: Predictions
  ) -> dict[str, answers.QuestionAnswers]:
    """The n best answers to each question of a split."""
    questions = self._questions[split]
    contexts = {e.question_id: e.context for e in questions.examples}
    scores = {k: v for k, v in predictions.items() if k != "example_id"}
    decode = decoding.decode_v2 if self.has_impossible else decoding.decode_v1
    return decode(
      questions.windows,
      contexts,
      **scores,
      n_best_size=self._decoding.n_best_size,
      max_answer_length=self._decoding.max_answer_length,
    )

  def score(self, predictions: Predictions) -> dict[str, float]:
    """Of the official metrics those that are watched while training."""
    values = self.score_split(self.eval_split, predictions)
    return {
      name: values[name]
      for name in ("exact_match", "exact", "f1")
      if name in values
    }

  def score_split(
    self, split: str, predictions: Predictions
  ) -> dict[str, float]:
    """The official metrics, in percent.

    2.0: with the threshold that was given, or the one that is best for these
    questions, as `null_score_diff_threshold` says.
    """
    values = score_answers(
      metrics.gold_answers(self._questions[split].examples),
      self.answers(split, predictions),
      self.has_impossible,
      self._decoding.null_score_diff_threshold,
    )
    self._threshold = values.get("null_score_diff_threshold")
    return values

  def write_predictions(
    self, split: str, predictions: Predictions, folder: str
  ) -> list[str]:
    """Writes predictions.json and the other official files, in a folder."""
    return prediction_files.write_predictions(
      os.path.join(folder, split),
      self.answers(split, predictions),
      self._threshold,
    )


def score_answers(
  gold: metrics.Gold,
  said: Mapping[str, answers.QuestionAnswers],
  has_impossible: bool,
  null_score_diff_threshold: Optional[float] = None,
) -> dict[str, float]:
  """The official metrics of answers, in percent.

  Args:
    gold: the texts of each question's answers.
    said: the n best answers to each question.
    has_impossible: SQuAD 2.0.
    null_score_diff_threshold: null odds over it mean no answer; None takes the
      best one for these questions. 2.0 only.

  Returns:
    Of 2.0 also `null_score_diff_threshold`, the one that was taken.

  Raises:
    ValueError: a question of 2.0 is not answered, or answers have no null
      odds.
  """
  texts = answers.final_texts(said)
  if not has_impossible:
    return metrics.evaluate_v1(gold, texts)
  odds = {
    question: answer.null_odds
    for question, answer in said.items()
    if answer.null_odds is not None
  }
  threshold = null_score_diff_threshold
  if threshold is None:
    threshold = metrics.best_null_threshold(gold, texts, odds)
  values = metrics.evaluate_v2(gold, texts, odds, threshold)
  return {**values, "null_score_diff_threshold": threshold}
