"""Serves SQuAD: maps a raw question and its raw context to the answer's text.

The graph contains the tokenizer with its offsets, the windows, the model on the
windows of all questions at once, and the decoding of the n best answers.

Letters: B questions, W windows of all questions, S sequence.
"""

from __future__ import annotations

from typing import Any, Mapping, Optional

import tensorflow as tf

from official_albert import serving
from official_albert.serving import Tensors
from official_albert.tasks.squad import decoding
from official_albert.tasks.squad import model as model_lib
from official_albert.tasks.squad.examples import Recipe
from official_albert.tokenization import in_graph

# The maximum windows of a request; a limit on the memory of a server.
MAX_WINDOWS = 256
# More than texts have, for a limit before they are tokenized: 8 characters of 3
# bytes.
_TOKEN_BYTES = 24
_SETTINGS = (
  "doc_stride",
  "max_query_length",
  "n_best_size",
  "max_answer_length",
)


class AnswerQuestions(serving.ServedModule):
  """Returns `answer` <string>[B] and its position in the context.

  `ids` and `examples` return `start_logits` and `end_logits` <float32>[B, S],
  or for SQuAD 2.0 the scores of `decoding.decode`. They take single windows,
  [CLS] question [SEP] context [SEP] with segments 0 and 1.

  Attributes:
    has_impossible: whether a question may have no answer, as in SQuAD 2.0.
    max_windows: the maximum number of windows of a request.
  """

  text_signatures = ("answer",)
  takes_pairs = True
  # A batch has one limit on its windows, and filling repeats a question.
  shares_batches = False
  max_windows = MAX_WINDOWS

  def __init__(
    self,
    model: tf.keras.Model,
    text_layer: Optional[in_graph.TextLayer],
    max_seq_length: int,
    settings: Mapping[str, Any],
    null_score_diff_threshold: Optional[float] = None,
  ):
    """Creates the module.

    Args (the others: see `ServedModule`):
      text_layer: the tokenizer; None serves only ids.
      settings: the settings of a run; the recipes give missing values.
      null_score_diff_threshold: higher null odds mean no answer; None always
        answers. SQuAD 2.0 only.
    """
    super().__init__(model, text_layer, max_seq_length)
    self.has_impossible = isinstance(model, model_lib.AlbertForSpansOrNone)
    self.kind = "squad2" if self.has_impossible else "squad1"
    self._decoding = {
      name: settings.get(name, getattr(Recipe, name)) for name in _SETTINGS
    }
    self._threshold = null_score_diff_threshold
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
      # Raises ValueError for a vocabulary without offsets.
      text_layer.tokenize_with_offsets(tf.zeros([0], tf.string))

  def forward(self, **features: tf.Tensor) -> Tensors:
    if self.has_impossible:
      features["p_mask"] = _p_mask(
        features["input_mask"], features["segment_ids"]
      )
    outputs = self.model(features, training=False)
    return {name: outputs[name] for name in self.model.scores}

  def text_functions(self) -> dict[str, serving.TextFunction]:
    return {"answer": (("question", "context"), self._answer)}

  def _answer(self, question: tf.Tensor, context: tf.Tensor) -> Tensors:
    context = self._check_bytes(context)
    # Removes bytes that are not characters, because offsets count characters.
    context = tf.strings.unicode_transcode(
      context, "UTF-8", "UTF-8", errors="ignore"
    )
    features, windows = self.make_windows(question, context)
    scores = self.run(**features)
    found = decoding.best_answers(
      context,
      windows,
      scores,
      self._decoding["n_best_size"],
      self._decoding["max_answer_length"],
    )
    n_best = {
      "answer": found.texts,
      "probability": found.probabilities(),
      "start": found.starts,
      "end": found.ends,
    }
    best = {name: x[:, 0] for name, x in n_best.items()}
    outputs = {
      "n_best_answers": n_best["answer"],
      "n_best_probabilities": n_best["probability"],
      "n_best_starts": n_best["start"],
      "n_best_ends": n_best["end"],
    }
    if self.has_impossible:
      odds = decoding.null_odds(windows, scores["cls_logits"])
      outputs["null_score_diff"] = odds
      if self._threshold is not None:
        has_answer = tf.cast(odds, tf.float64) <= self._threshold
        # The null odds are trained as a logit.
        no_answer = {"answer": "", "probability": tf.sigmoid(odds)}
        best = {
          name: tf.where(has_answer, x, no_answer.get(name, 0))
          for name, x in best.items()
        }
    return {**best, **outputs}

  def _check_bytes(self, contexts: tf.Tensor) -> tf.Tensor:
    """Returns contexts <string>[B] that may fit into the windows.

    Longer ones would take too long; see `TextLayer.shorten`.
    """
    longest, most = (
      _TOKEN_BYTES * self.max_windows * min(tokens, self.max_seq_length)
      for tokens in (self._decoding["doc_stride"], self.max_seq_length)
    )
    sizes = tf.cast(tf.strings.length(contexts), tf.int64)
    check = serving.refuse_unless(
      tf.reduce_all(sizes <= longest) & (tf.reduce_sum(sizes) <= most),
      f"a context may have at most {longest} bytes, and those of a request "
      f"{most} in total: send fewer or shorter contexts",
    )
    return serving.after_checks([check], contexts)

  def make_windows(
    self, question: tf.Tensor, context: tf.Tensor
  ) -> tuple[Tensors, decoding.Windows]:
    """Makes windows in the graph like `windows.make_windows`, for <string>[B].

    Returns:
      `input_ids`, `input_mask` and `segment_ids` <int32>[W, S], where S is the
      longest window, and the contexts of the windows.
    """
    layer, longest = self.text_layer, self.max_seq_length
    most = self._decoding["max_query_length"]
    query = layer.tokenize(question, most)[:, :most]
    contexts = layer.tokenize_with_offsets(context)
    tokens = contexts.ids.row_lengths()  # [B]
    space = longest - 3 - query.row_lengths()  # [B]
    has_space = serving.refuse_unless(
      tf.reduce_all(space >= 1),
      f"a question must leave space for its context in {longest} tokens, which "
      "include [CLS] and two [SEP]: shorten it; its number of tokens is",
      tf.cast(tf.reduce_max(query.row_lengths()), tf.int32),
    )
    space = serving.after_checks([has_space], space)
    # A stride larger than a window would skip tokens.
    stride = tf.minimum(space, self._decoding["doc_stride"])
    counts = 1 + (tf.maximum(tokens - space, 0) + stride - 1) // stride
    total = tf.reduce_sum(counts)
    fits = serving.refuse_unless(
      total <= self.max_windows,
      f"the contexts of a request may have at most {self.max_windows} windows "
      "in total: send fewer or shorter contexts; the number of windows is",
      tf.cast(tf.minimum(total, tf.int32.max), tf.int32),
    )
    counts = serving.after_checks([fits], counts)
    rows = tf.repeat(tf.range(tf.size(counts, tf.int64)), counts)  # [W]
    windows_before = tf.gather(tf.cumsum(counts, exclusive=True), rows)
    number = tf.range(tf.size(rows, tf.int64)) - windows_before
    begin = number * tf.gather(stride, rows)
    lengths = tf.gather(tokens, rows) - begin
    lengths = tf.minimum(tf.gather(space, rows), lengths)
    first = tf.gather(contexts.ids.row_starts(), rows) + begin
    parts = tf.ragged.range(first, first + lengths)
    parts = parts.with_flat_values(
      tf.gather(contexts.ids.flat_values, parts.flat_values)
    )
    query = tf.gather(query, rows)
    cls, sep = (
      tf.fill([tf.size(rows), 1], id) for id in (layer.cls_id, layer.sep_id)
    )
    ids = tf.concat([cls, query, sep, parts, sep], 1)
    context_starts = 2 + query.row_lengths()
    # The model refuses S = 0, even for an empty batch.
    size = tf.maximum(tf.reduce_max(ids.row_lengths()), 1)
    mask = tf.sequence_mask(ids.row_lengths(), size, tf.int32)
    features = {
      "input_ids": ids.to_tensor(0, shape=tf.stack([-1, size])),
      "input_mask": mask,
      "segment_ids": mask - tf.sequence_mask(context_starts, size, tf.int32),
    }
    starts, ends = contexts.starts.flat_values, contexts.ends.flat_values
    return features, decoding.Windows(
      counts, context_starts, first, lengths, starts, ends
    )

  def settings(self) -> dict[str, Any]:
    settings = {**self._decoding, "max_windows": self.max_windows}
    if self.has_impossible:
      settings["null_score_diff_threshold"] = self._threshold
    return settings


def _p_mask(input_mask: tf.Tensor, segment_ids: tf.Tensor) -> tf.Tensor:
  """Returns <float32>[B, S], see `windows.p_mask`."""
  # A context token is followed by another one or by [SEP].
  followed = tf.pad(input_mask[:, 1:], [[0, 0], [0, 1]])
  is_context = input_mask * followed * segment_ids
  is_cls = tf.one_hot([0], tf.shape(input_mask)[1], dtype=tf.int32)
  return tf.cast((1 - is_context) * (1 - is_cls), tf.float32)
