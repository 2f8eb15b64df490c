"""Answers questions in the graph: windows, the model, the n best answers.

A context is split into overlapping windows, and the models score starts and
ends in each. Every pair of a start and an end is a candidate unless it leaves
the context, ends before it starts, is too long, or starts at a token that has
more context in another window. A served model maps raw questions and contexts
to answers; evaluation decodes the scores of its records by the same operations,
a block of questions at a time.

Reference: google-research/albert squad_utils.py (accumulate_predictions_v1 and
_v2, write_predictions_v1 and _v2, _check_is_max_context).

Letters: B questions, W windows of all questions, T tokens of all contexts, S
sequence, K starts of a window, M ends of each start, C candidates and n answers
of a question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional

import numpy as np
import tensorflow as tf

from official_albert import serving
from official_albert.serving import Tensors
from official_albert.tasks import common
from official_albert.tasks.squad import metrics
from official_albert.tasks.squad import model as model_lib
from official_albert.tasks.squad.examples import Recipe, Window
from official_albert.tokenization import in_graph

_SETTINGS = "doc_stride max_query_length n_best_size max_answer_length".split()
# Questions that evaluation decodes together; a limit on memory.
_BLOCK = 512
# The best spans to compare for each requested answer. Most have a text of their
# own.
_LOOK = 16
_NEVER = float("-inf")
# Classes of characters, and what is in them.
_OTHER, _SPACE, _WORD = range(3)
_SPACES = r"\t-\r\x1c-\x1f\x85\p{Z}"
_LETTERS = r"\p{L}\p{M}\p{N}"
_ALONE = common.NO_SPACES + r"\p{Hangul}"


class AnswerQuestions(serving.ServedModule):
  """Returns `answer` <string>[B] and its position in the context.

  `ids` and `examples` return `start_logits` and `end_logits` <float32>[B, S],
  or for SQuAD 2.0 the scores of `decode`. They take single windows,
  [CLS] question [SEP] context [SEP] with segments 0 and 1.

  Attributes:
    has_impossible: whether a question may have no answer, as in SQuAD 2.0.
    max_windows: the maximum windows of a request, a limit on a server's memory.
  """

  text_signatures = ("answer",)
  depth_inputs = ()
  takes_pairs = True
  max_windows = 256

  def __init__(
    self,
    model: tf.keras.Model,
    text_layer: Optional[in_graph.TextLayer],
    max_seq_length: int,
    settings: Mapping[str, Any],
    null_score_diff_threshold: Optional[float] = None,
  ):
    """Creates the module; see `ServedModule`.

    The settings are those of a run; the recipes give missing values. Null odds
    above the threshold mean no answer; None always answers. (SQuAD 2.0 only.)
    """
    super().__init__(model, text_layer, max_seq_length)
    self.has_impossible = isinstance(model, model_lib.AlbertForSpansOrNone)
    self.kind = "squad2" if self.has_impossible else "squad1"
    self._decoding = {
      name: settings.get(name, getattr(Recipe, name)) for name in _SETTINGS
    }
    self._threshold = null_score_diff_threshold

  def forward(self, **features: tf.Tensor) -> Tensors:
    outputs = self.model(features, training=False)
    return {name: outputs[name] for name in self.model.scores}

  def text_functions(self) -> dict[str, serving.TextFunction]:
    return {"answer": (("question", "context"), self._answer)}

  def _answer(self, question: tf.Tensor, context: tf.Tensor) -> Tensors:
    # Longer contexts would take too long; see `TextLayer.shorten`.
    tokens = min(self._decoding["doc_stride"], self.max_seq_length)
    most = serving.TOKEN_BYTES * self.max_windows * tokens
    context = serving.limit_bytes(context, most, "contexts")
    # Removes bytes that are not characters, because offsets count characters.
    context = tf.strings.unicode_transcode(
      context, "UTF-8", "UTF-8", errors="ignore"
    )
    features, windows = self.make_windows(question, context)
    scores = self.traced(features)
    found = best_answers(
      context,
      windows,
      scores,
      self._decoding["n_best_size"],
      self._decoding["max_answer_length"],
    )
    found["probabilities"] = tf.cast(found["probabilities"], tf.float32)
    columns = ("answers", "probabilities", "starts", "ends")
    outputs = {f"n_best_{name}": found[name] for name in columns}
    names = ("answer", "probability", "start", "end")
    best = {name: x[:, 0] for name, x in zip(names, outputs.values())}
    if self.has_impossible:
      odds = null_odds(windows, scores["cls_logits"])
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

  def make_windows(
    self, question: tf.Tensor, context: tf.Tensor
  ) -> tuple[Tensors, Windows]:
    """Makes windows like `examples.make_windows`, for <string>[B].

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
    counts = serving.limit_windows(counts, self.max_windows, "contexts")
    rows = tf.repeat(tf.range(tf.size(counts, tf.int64)), counts)  # [W]
    windows_before = tf.gather(tf.cumsum(counts, exclusive=True), rows)
    number = tf.range(tf.size(rows, tf.int64)) - windows_before
    begin = number * tf.gather(stride, rows)
    lengths = tf.gather(tokens, rows) - begin
    lengths = tf.minimum(tf.gather(space, rows), lengths)
    first = tf.gather(contexts.ids.row_starts(), rows) + begin
    tokens = tf.ragged.range(first, first + lengths)
    parts = tf.gather(contexts.ids.flat_values, tokens)
    query = tf.gather(query, rows)
    features = in_graph.pack_pair(
      query, parts, longest, layer.cls_id, layer.sep_id
    )
    begins = 2 + query.row_lengths()
    return features, Windows(
      counts, begins, first, lengths, contexts.starts, contexts.ends
    )

  def settings(self) -> dict[str, Any]:
    settings = {**self._decoding, "max_windows": self.max_windows}
    if self.has_impossible:
      settings["null_score_diff_threshold"] = self._threshold
    return settings


class Windows(NamedTuple):
  """The contexts of W windows; the windows of a question are consecutive.

  Attributes:
    counts: <int64>[B], the number of windows of each question, at least 1.
    context_starts: <int64>[W], the position of each first context token.
    first_tokens: <int64>[W], the index of that token among the T tokens.
    lengths: <int64>[W], the number of context tokens.
    starts, ends: <int32>[B, (tokens)], the characters of each token.
  """

  counts: tf.Tensor
  context_starts: tf.Tensor
  first_tokens: tf.Tensor
  lengths: tf.Tensor
  starts: tf.RaggedTensor
  ends: tf.RaggedTensor


def best_answers(
  contexts: tf.Tensor,
  windows: Windows,
  scores: Tensors,
  n_best_size: int,
  max_answer_length: int,
) -> Tensors:
  """Returns the best candidates of each question that have different texts.

  Deviation: a span of only white space is not a candidate, because "" means
  that there is no answer. A question without candidates gets "", while the
  original returns "empty" for SQuAD 1.1.

  Deviation: an answer that begins or ends within a word gets the whole word, as
  "Denver Bron" of "Denver Broncos". In the original, it is cut at its pieces.
  Of the 14,480 questions with answers in the development sets of both versions,
  one has only gold answers that are cut so.

  Contexts are <string>[B], valid UTF-8. n is `n_best_size`; for SQuAD 1.1 it is
  also K and M. See `decode` for the other arguments.

  Returns:
    `answers` <string>[B, n], all different, or "" if they are missing; the
    characters `starts` and `ends` <int32>[B, n]; `start_scores`, `end_scores`
    and `probabilities` <float64>[B, n], which are 1, 0, ... without answers.
  """
  characters = tf.strings.unicode_decode(contexts, "UTF-8")  # [B, (characters)]
  token_starts, token_ends = _whole_words(characters, windows)
  totals, *columns = _candidates(
    windows, token_starts, token_ends, scores, n_best_size, max_answer_length
  )
  each = tf.shape(totals)[1]
  totals = tf.RaggedTensor.from_row_lengths(
    totals, windows.counts, validate=False
  ).to_tensor(_NEVER)  # [B, most windows, K * M]
  size = tf.shape(totals)[1] * each
  totals = tf.reshape(totals, [tf.shape(totals)[0], size])  # [B, C]
  # Of equal scores the first, as in the original.
  top = tf.math.top_k(totals, tf.minimum(_LOOK * n_best_size, size))
  fits = top.values > _NEVER
  first = tf.cast(tf.cumsum(windows.counts, exclusive=True), tf.int32)
  index = tf.where(fits, first[:, None] * each + top.indices, 0)
  starts, ends, start_scores, end_scores = (
    tf.where(fits, tf.gather(tf.reshape(x, [-1]), index), tf.zeros([], x.dtype))
    for x in columns
  )
  spans = tf.ragged.range(tf.reshape(starts, [-1]), tf.reshape(ends, [-1]))
  spans = tf.gather(characters.flat_values, spans)
  texts = tf.strings.unicode_encode(spans, "UTF-8")
  texts = tf.reshape(texts, tf.shape(starts))
  is_new = fits & _is_first(texts)

  def best(values: tf.Tensor, default: Any) -> tf.Tensor:
    rows = tf.ragged.boolean_mask(values, is_new)[:, :n_best_size]
    return rows.to_tensor(default, shape=[None, n_best_size])

  offsets = tf.cast(characters.row_starts(), tf.int32)[:, None]
  start_scores, end_scores = (
    best(x, _NEVER) for x in (start_scores, end_scores)
  )
  totals = start_scores + end_scores
  highest = tf.maximum(totals[:, :1], tf.float64.min)  # Finite.
  return {
    "answers": best(texts, ""),
    "probabilities": tf.nn.softmax(tf.concat([highest, totals[:, 1:]], 1)),
    "starts": best(starts - offsets, 0),
    "ends": best(ends - offsets, 0),
    "start_scores": start_scores,
    "end_scores": end_scores,
  }


def _candidates(
  windows: Windows,
  token_starts: tf.Tensor,
  token_ends: tf.Tensor,
  scores: Tensors,
  n_best_size: int,
  max_answer_length: int,
) -> list[tf.Tensor]:
  """Returns the spans of each window, [W, K * M] each.

  Deviation: for SQuAD 1.1, the best starts and ends are chosen within the
  context of the window. The original chooses them from the whole sequence and
  then drops those in the question and the padding, so its answers depend on the
  padding.

  Returns:
    The sum of both scores, which is -inf for spans that are not candidates;
    start and end as `_whole_words` has them; and both scores.
  """
  begin, length, first_token = (
    x[:, None]
    for x in (windows.context_starts, windows.lengths, windows.first_tokens)
  )
  if "start_logits" in scores:
    sequence = tf.shape(scores["start_logits"], tf.int64)[1]
    places = tf.range(sequence) - begin
    is_context = (places >= 0) & (places < length)
    k = tf.minimum(n_best_size, tf.cast(sequence, tf.int32))
    # Of equal scores the first position.
    (start_scores, starts), (end_scores, ends) = (
      tf.math.top_k(tf.where(is_context, x, x.dtype.min), k)
      for x in (scores["start_logits"], scores["end_logits"])
    )
    ends, end_scores = ends[:, None], end_scores[:, None]  # [W, 1, M]
  else:
    starts = scores["start_top_index"]
    start_scores = scores["start_top_log_probs"]
    count, k = tf.unstack(tf.shape(starts))
    ends, end_scores = (
      tf.reshape(x, [count, k, tf.shape(x)[1] // k])
      for x in (scores["end_top_index"], scores["end_top_log_probs"])
    )
  # Counted from the first token of the context, [W, K, 1] and [W, 1 or K, M].
  starts = (tf.cast(starts, tf.int64) - begin)[:, :, None]
  ends = tf.cast(ends, tf.int64) - begin[:, None]
  start_scores = tf.cast(start_scores, tf.float64)[:, :, None]
  end_scores = tf.cast(end_scores, tf.float64)

  def at(values: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
    tokens = first_token[:, None] + places
    # Positions outside the context are never candidates, so any value is valid.
    tokens = tf.clip_by_value(tokens, 0, tf.size(values, tf.int64))
    return tf.gather(tf.pad(values, [[0, 1]]), tokens)

  this = tf.range(tf.size(begin, tf.int64))[:, None, None]
  from_character, to_character = at(token_starts, starts), at(token_ends, ends)
  fits = (
    tf.equal(at(_best_windows(windows), starts), this)
    & (starts >= 0)
    & (ends >= starts)
    & (ends < length[:, None])
    & (ends - starts < max_answer_length)
    & (from_character < to_character)
  )  # [W, K, M]
  totals = tf.where(fits, start_scores + end_scores, _NEVER)
  columns = totals, from_character, to_character, start_scores, end_scores
  shape = tf.shape(fits)
  return [
    tf.reshape(tf.broadcast_to(x, shape), [shape[0], shape[1] * shape[2]])
    for x in columns
  ]


def _best_windows(windows: Windows) -> tf.Tensor:
  """Returns the window with the most context around each token, <int64>[T]."""
  first, lengths = windows.first_tokens, windows.lengths
  tokens = tf.ragged.range(first, first + lengths)
  rows, tokens = tokens.value_rowids(), tokens.values
  left, length = tokens - tf.gather(first, rows), tf.gather(lengths, rows)
  score = tf.cast(tf.minimum(left, length - 1 - left), tf.float64)
  # In float64 and in this order: the original's sums decide which are equal.
  score += 0.01 * tf.cast(length, tf.float64)
  count = tf.size(windows.starts.flat_values)
  best = tf.math.unsorted_segment_max(score, tokens, count)
  is_best = tf.equal(score, tf.gather(best, tokens))
  # Of equal ones the first.
  return tf.math.unsorted_segment_min(
    tf.where(is_best, rows, tf.int64.max), tokens, count
  )


def _whole_words(
  characters: tf.RaggedTensor, windows: Windows
) -> tuple[tf.Tensor, tf.Tensor]:
  """Returns where an answer begins and ends that has a token first or last.

  It has no space there, and the whole word. Both are <int32>[T], among the
  characters of all contexts, <int32>[B, (characters)].
  """
  # One more character on each side, for tokens that have none.
  kinds = tf.pad(_classes(characters.flat_values), [[1, 1]])
  rows = tf.pad(characters.value_rowids(), [[1, 1]], constant_values=-1)
  # A run is a word, spaces, or another character.
  continues = (
    (kinds[1:] == kinds[:-1]) & (rows[1:] == rows[:-1]) & (kinds[1:] != _OTHER)
  )
  runs = tf.pad(tf.cumsum(1 - tf.cast(continues, tf.int32)), [[1, 0]])
  places = tf.range(tf.size(runs))
  run_begins = tf.gather(tf.math.segment_min(places, runs), runs)
  run_ends = tf.gather(tf.math.segment_max(places, runs), runs) + 1
  offsets = tf.cast(characters.row_starts(), tf.int32) + 1
  offsets = tf.gather(offsets, windows.starts.value_rowids())
  is_space = kinds == _SPACE
  begin = tf.where(is_space, run_ends, run_begins)
  end = tf.where(is_space, run_begins, run_ends)
  return (
    tf.gather(begin, offsets + windows.starts.flat_values) - 1,
    tf.gather(end, offsets + windows.ends.flat_values - 1) - 1,
  )


def _classes(characters: tf.Tensor) -> tf.Tensor:
  """Returns the class of each character, <int32>[N].

  _WORD is for parts of words that white space separates: not for scripts
  without spaces, and not for Hangul, whose answers end before the particles of
  a word.
  """
  unique, places = tf.unique(characters)
  texts = tf.strings.unicode_encode(unique[:, None], "UTF-8")
  is_space, is_letter, is_alone = (
    tf.strings.regex_full_match(texts, f"[{x}]")
    for x in (_SPACES, _LETTERS, _ALONE)
  )
  kinds = tf.where(is_letter & ~is_alone, _WORD, _OTHER)
  return tf.gather(tf.where(is_space, _SPACE, kinds), places)


def _is_first(texts: tf.Tensor) -> tf.Tensor:
  """Returns <bool>[B, N], true at the first occurrence of a text in its row."""
  shape = tf.shape(texts)
  row = tf.strings.as_string(tf.range(shape[0]))
  keys = tf.strings.join(
    [tf.repeat(row, shape[1]), tf.reshape(texts, [-1])], ":"
  )
  place = tf.range(tf.size(keys))
  _, number = tf.unique(keys)
  first = tf.math.unsorted_segment_min(place, number, tf.size(keys))
  return tf.reshape(tf.equal(tf.gather(first, number), place), shape)


def decode(
  windows: Sequence[Window],
  contexts: Sequence[str],
  scores: Mapping[str, np.ndarray],
  n_best_size: int = Recipe.n_best_size,
  max_answer_length: int = Recipe.max_answer_length,
) -> dict[str, metrics.QuestionAnswers]:
  """Returns the answers of a model, and for SQuAD 2.0 the null odds.

  Args:
    windows: the W windows of all questions; those of a question are
      consecutive.
    contexts: the raw context of each question.
    scores: the `scores` of the model, with a row for each window.
    n_best_size: the maximum number of candidates of a question; in SQuAD 1.1
      also of starts and ends of a window.
    max_answer_length: the maximum tokens of an answer.
  """
  # The first windows of the questions, and the end.
  begins = [i for i, w in enumerate(windows) if w.first_token == 0]
  begins.append(len(windows))
  result = {}
  for first in range(0, len(contexts), _BLOCK):
    block = begins[first : first + _BLOCK + 1]
    rows = slice(block[0], block[-1])
    with tf.device("CPU:0"):
      packed = _pack(windows[rows], np.diff(block))
      own = {name: tf.constant(x[rows]) for name, x in scores.items()}
      found = best_answers(
        tf.constant(contexts[first : first + _BLOCK]),
        packed,
        own,
        n_best_size,
        max_answer_length,
      )
      odds = [None] * (len(block) - 1)
      if "cls_logits" in own:
        odds = null_odds(packed, own["cls_logits"]).numpy().tolist()
    columns = ("answers", "probabilities", "start_scores", "end_scores")
    answers = zip(*(found[name].numpy().tolist() for name in columns))
    for begin, answer, value in zip(block, answers, odds):
      n_best = [
        metrics.Candidate(text.decode(), *numbers)
        for text, *numbers in zip(*answer)
        if text
      ]
      result[windows[begin].question_id] = metrics.QuestionAnswers(
        n_best or [metrics.Candidate("", 1.0)], value
      )
  return result


def null_odds(windows: Windows, cls_logits: tf.Tensor) -> tf.Tensor:
  """Returns the minimum over the windows of each question, <float32>[B]."""
  rows = tf.RaggedTensor.from_row_lengths(
    cls_logits, windows.counts, validate=False
  )
  return tf.reduce_min(rows, axis=1)


def _pack(windows: Sequence[Window], counts: np.ndarray) -> Windows:
  """Returns windows as tensors, given their number for each question."""
  contexts = [w.context for w in windows if w.first_token == 0]
  sizes = [len(context.ids) for context in contexts]
  before = np.repeat(np.cumsum([0, *sizes[:-1]]), counts)
  numbers = (
    counts,
    [w.context_start for w in windows],
    before + [w.first_token for w in windows],
    [w.length for w in windows],
  )
  characters = [c.starts for c in contexts], [c.ends for c in contexts]
  columns: list[Any] = [tf.constant(x, tf.int64) for x in numbers]
  columns += (
    tf.RaggedTensor.from_row_lengths(
      np.concatenate(rows).astype(np.int32), sizes
    )
    for rows in characters
  )
  return Windows(*columns)
