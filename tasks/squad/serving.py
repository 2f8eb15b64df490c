"""SQuAD, served: a raw question and its raw context to the answer's text.

All of it is in the graph: the tokenizer with its offsets, windows, the model on
the windows of all questions at once, and the n best answers, each as
`windows` and `decoding` make them.

Letters: B questions, W windows of all of them, S sequence, K starts of a
window, M ends of each of them, N answers of a question.
"""

from __future__ import annotations

from typing import Any, Mapping, Optional

import tensorflow as tf

from official_albert import serving
from official_albert.serving import Tensors
from official_albert.tokenization import in_graph
from tasks.squad import decoding, serving_answers, serving_windows
from tasks.squad import model as model_lib

# Windows that a request may have in all: bounds the memory of a server.
MAX_WINDOWS = 256
# Of what `AlbertForSpansOrNone` says.
_SCORES_V2 = (
  "start_top_log_probs",
  "start_top_index",
  "end_top_log_probs",
  "end_top_index",
  "cls_logits",
)


class AnswerQuestions(serving.ServedModule):
  """`answer` <string>[B] and where it stands in the context.

  `ids` and `examples` return `start_logits` and `end_logits` <float32>[B, S],
  or for SQuAD 2.0 what `decoding.decode_v2` takes. They are of single windows,
  [CLS] question [SEP] context [SEP] with segments 0 and 1.

  Attributes:
    has_impossible: whether a question may have no answer, as in SQuAD 2.0.
    max_windows: the most windows of a request.
    min_length: windows are padded to at least this length.
  """

  text_signatures = ("answer",)
  min_length = 1

  def __init__(
    self,
    model: tf.keras.Model,
    text_layer: Optional[in_graph.TextLayer],
    max_seq_length: int,
    doc_stride: int = 128,
    max_query_length: int = 64,
    n_best_size: int = decoding.N_BEST_SIZE,
    max_answer_length: int = decoding.MAX_ANSWER_LENGTH,
    null_score_diff_threshold: Optional[float] = None,
    max_windows: int = MAX_WINDOWS,
  ):
    """Composes the module.

    Args:
      model: an `AlbertForSpans` or `AlbertForSpansOrNone`.
      text_layer: see `ServedModule`; offsets are found out here.
      max_seq_length: tokens of a window with its question.
      doc_stride: tokens from one window of a context to the next.
      max_query_length: tokens of a question; the rest is cut.
      n_best_size: N.
      max_answer_length: tokens of an answer, at most.
      null_score_diff_threshold: null odds over it mean no answer; None answers
        always. SQuAD 2.0 only.
      max_windows: of all questions of a request together.

    Raises:
      ValueError: see `ServedModule` and `SentencePieceOffsetLayer`; or a
        setting leaves no room, or is for the other version.
    """
    super().__init__(model, text_layer, max_seq_length)
    self.has_impossible = isinstance(model, model_lib.AlbertForSpansOrNone)
    self.kind = "squad2" if self.has_impossible else "squad1"
    self._decoding = {
      "doc_stride": doc_stride,
      "max_query_length": max_query_length,
      "n_best_size": n_best_size,
      "max_answer_length": max_answer_length,
    }
    self.max_windows = max_windows
    self._threshold = null_score_diff_threshold
    for name, value in (*self._decoding.items(), ("max_windows", max_windows)):
      if value < 1:
        raise ValueError(f"{name} is {value}, but must be at least 1.")
    if max_seq_length < 5:
      raise ValueError(
        f"max_seq_length is {max_seq_length}, but [CLS], two [SEP] and a token "
        "of question and context each need 5: give a larger one."
      )
    if null_score_diff_threshold is not None and not self.has_impossible:
      raise ValueError(
        "null_score_diff_threshold is for SQuAD 2.0: this model always has an "
        "answer."
      )
    if text_layer is not None:
      self.text_layer = in_graph.make_offset_layer(text_layer)

  def forward(self, **features: tf.Tensor) -> Tensors:
    if not self.has_impossible:
      outputs = self.model(features, training=False)
      return {name: outputs[name] for name in ("start_logits", "end_logits")}
    p_mask = _p_mask(features["input_mask"], features["segment_ids"])
    outputs = self.model({**features, "p_mask": p_mask}, training=False)
    return {name: outputs[name] for name in _SCORES_V2}

  def text_functions(self) -> dict[str, Any]:
    @tf.function(
      input_signature=[
        tf.TensorSpec([None], tf.string, "question"),
        tf.TensorSpec([None], tf.string, "context"),
      ]
    )
    def answer(question, context):
      return self._answer(question, context)

    return {"answer": answer}

  def _answer(self, question: tf.Tensor, context: tf.Tensor) -> Tensors:
    texts = serving.check_texts({"question": question, "context": context})
    # Characters are counted, and cut out, without bytes that are none.
    context = tf.strings.unicode_transcode(
      texts["context"], "UTF-8", "UTF-8", errors="ignore"
    )
    settings = self._decoding
    windows = serving_windows.make_windows(
      self.text_layer.tokenize(texts["question"]),
      self.text_layer.tokenize_with_offsets(context),
      self.text_layer.cls_id,
      self.text_layer.sep_id,
      self.max_seq_length,
      settings["doc_stride"],
      settings["max_query_length"],
      self.max_windows,
      self.min_length,
    )
    scores = self.run(**windows.features)
    longest = settings["max_answer_length"]
    n = settings["n_best_size"]
    null_odds = None
    if self.has_impossible:
      null_odds = tf.math.unsorted_segment_min(
        scores.pop("cls_logits"), windows.question, tf.size(context)
      )
      candidates = serving_answers.candidates_v2(
        windows, **scores, max_answer_length=longest
      )
    else:
      candidates = serving_answers.candidates_v1(
        windows, **scores, n_best_size=n, max_answer_length=longest
      )
    found = serving_answers.best_answers(context, windows.counts, candidates, n)
    return self._outputs(found, null_odds)

  def _outputs(
    self, found: serving_answers.Answers, null_odds: Optional[tf.Tensor]
  ) -> Tensors:
    probabilities = found.probabilities()
    first = {
      "answer": found.texts[:, 0],
      "probability": probabilities[:, 0],
      "start": found.starts[:, 0],
      "end": found.ends[:, 0],
    }
    others = {
      "n_best_answers": found.texts,
      "n_best_probabilities": probabilities,
      "n_best_starts": found.starts,
      "n_best_ends": found.ends,
    }
    if null_odds is None:
      return {**first, **others}
    others["null_score_diff"] = null_odds
    if self._threshold is not None:
      there = tf.cast(null_odds, tf.float64) <= self._threshold
      # The head has learnt the odds as a logit.
      nothing = {
        "answer": "",
        "probability": tf.sigmoid(null_odds),
        "start": 0,
        "end": 0,
      }
      first = {
        name: tf.where(there, x, nothing[name]) for name, x in first.items()
      }
    return {**first, **others}

  def settings(self) -> dict[str, Any]:
    settings = {**self._decoding, "max_windows": self.max_windows}
    if self.has_impossible:
      settings["null_score_diff_threshold"] = self._threshold
    return settings

  def example_texts(
    self, signature: str, names: Mapping[str, tf.TensorSpec], length: int
  ) -> dict[str, str]:
    del signature, names
    asked = min(self._decoding["max_query_length"], max(1, length // 8))
    words = {"question": asked, "context": max(1, length - 3 - asked)}
    return {name: " ".join(["the"] * n) for name, n in words.items()}


def served_squad(
  model: tf.keras.Model,
  text_layer: Optional[in_graph.TextLayer],
  max_seq_length: int,
  settings: Mapping[str, Any],
  null_score_diff_threshold: Optional[float] = None,
) -> AnswerQuestions:
  """The module of a fine-tuned run.

  Args:
    model: the run's, with its weights.
    text_layer: of the run's tokenizer; None to serve ids only.
    max_seq_length: of the run.
    settings: `doc_stride`, `max_query_length`, `n_best_size` and
      `max_answer_length`, as a run's record has them; what it has not is as
      in all recipes, and other ones do not matter.
    null_score_diff_threshold: see `AnswerQuestions`.

  Raises:
    ValueError: see `AnswerQuestions`.
  """
  names = ("doc_stride", "max_query_length", "n_best_size", "max_answer_length")
  return AnswerQuestions(
    model,
    text_layer,
    max_seq_length,
    **{name: settings[name] for name in names if name in settings},
    null_score_diff_threshold=null_score_diff_threshold,
  )


def _p_mask(input_mask: tf.Tensor, segment_ids: tf.Tensor) -> tf.Tensor:
  """<float32>[B, S], see `windows.p_mask`."""
  # A [SEP] follows the context, so that its tokens have one behind them.
  followed = tf.pad(input_mask[:, 1:], [[0, 0], [0, 1]])
  is_context = input_mask * followed * segment_ids
  return tf.concat(
    [
      tf.zeros_like(input_mask[:, :1], tf.float32),
      tf.cast(1 - is_context, tf.float32)[:, 1:],
    ],
    axis=1,
  )
