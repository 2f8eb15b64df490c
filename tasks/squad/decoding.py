"""Decodes the scores of windows into the n best answers of each question.

A context is split into overlapping windows, and the models score starts and
ends in each. Every pair of a start and an end is a candidate unless it leaves
the context, ends before it starts, is too long, or starts at a token that has
more context in another window. Served models decode inside the graph;
evaluation calls the same operations on blocks of questions.

Reference: google-research/albert squad_utils.py (accumulate_predictions_v1 and
_v2, write_predictions_v1 and _v2, _check_is_max_context).

Letters: B questions, W windows of all questions, T tokens of all contexts, S
sequence, K starts of a window, M ends of each start, C candidates and n answers
of a question.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from official_albert import tokenization
from official_albert.serving import Tensors
from official_albert.tasks.squad.answers import Candidate, QuestionAnswers
from official_albert.tasks.squad.examples import Recipe
from official_albert.tasks.squad.metrics import writes_no_spaces
from official_albert.tasks.squad.windows import Window
from official_albert.tokenization import in_graph

# The start and end score of a question without candidates.
_NO_CANDIDATE_SCORE = -1e6
# Questions that evaluation decodes together; a limit on memory.
_BLOCK = 512
# The number of best spans to compare for each requested answer. If they have
# too few different texts, more are compared.
_FIRST_LOOK = 2
_NEVER = float("-inf")
# The most characters by which an answer grows on each side.
_MOST_OF_WORD = 64
# Slow to compute, because it tries all Unicode characters.
_word = functools.cache(
  lambda: tokenization.character_class(
    _is_of_word, tokenization.all_characters()
  )
)


def _is_of_word(character: str) -> bool:
  """Whether a character is part of words that white space separates.

  Not of scripts without spaces, and not Hangul, whose answers end before the
  particles of a word.
  """
  is_letter = unicodedata.category(character)[0] in "LMN"
  is_hangul = unicodedata.name(character, "").startswith("HANGUL")
  return is_letter and not is_hangul and not writes_no_spaces(character)


class Windows(NamedTuple):
  """The contexts of W windows; the windows of a question are consecutive.

  Attributes:
    counts: <int64>[B], the number of windows of each question, at least 1.
    context_starts: <int64>[W], the position of each first context token.
    first_tokens: <int64>[W], the index of that token among the T tokens.
    lengths: <int64>[W], the number of context tokens.
    starts, ends: <int32>[T], the characters of each token in its context.
  """

  counts: tf.Tensor
  context_starts: tf.Tensor
  first_tokens: tf.Tensor
  lengths: tf.Tensor
  starts: tf.Tensor
  ends: tf.Tensor


class Answers(NamedTuple):
  """The n best answers; missing ones are "", 0, 0, -inf and -inf.

  Attributes:
    texts: <string>[B, n], all different.
    starts, ends: <int32>[B, n], characters in the context.
    start_scores, end_scores: <float64>[B, n].
  """

  texts: tf.Tensor
  starts: tf.Tensor
  ends: tf.Tensor
  start_scores: tf.Tensor
  end_scores: tf.Tensor

  def probabilities(self) -> tf.Tensor:
    """<float32>[B, n] over a question's answers; 1, 0, ... if it has none."""
    scores = self.start_scores + self.end_scores
    best = tf.maximum(scores[:, :1], tf.float64.min)  # Finite.
    return tf.cast(
      tf.nn.softmax(tf.concat([best, scores[:, 1:]], 1)), tf.float32
    )


def best_answers(
  contexts: tf.Tensor,
  windows: Windows,
  scores: Tensors,
  n_best_size: int,
  max_answer_length: int,
) -> Answers:
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
  """
  totals, *columns = _candidates(
    windows, scores, n_best_size, max_answer_length
  )
  each = tf.shape(totals)[1]
  first = tf.cumsum(windows.counts, exclusive=True)
  first = tf.cast(first, tf.int32)[:, None] * each
  columns = [tf.reshape(column, [-1]) for column in columns]
  totals = tf.RaggedTensor.from_row_lengths(
    totals, windows.counts, validate=False
  ).to_tensor(_NEVER)  # [B, most windows, K * M]
  size = tf.shape(totals)[1] * each
  totals = tf.reshape(totals, [tf.shape(totals)[0], size])  # [B, C]

  def look(number, *_):
    """Compares the best `number` spans; returns whether to compare more."""
    # Of equal scores the first, as in the original.
    top = tf.math.top_k(totals, number)
    fits = top.values > _NEVER
    index = tf.where(fits, first + top.indices, 0)
    starts, ends, start_scores, end_scores = (
      tf.where(fits, tf.gather(column, index), tf.zeros([], column.dtype))
      for column in columns
    )
    texts, starts, ends = _whole_words(contexts, starts, ends)
    is_new = tf.not_equal(texts, "") & _is_first(texts)
    too_few = tf.reduce_sum(tf.cast(is_new, tf.int32), 1) < n_best_size
    more = tf.reduce_any(too_few & tf.reduce_all(fits, 1)) & (number < size)

    def best(values: tf.Tensor, default) -> tf.Tensor:
      rows = tf.ragged.boolean_mask(values, is_new)[:, :n_best_size]
      return rows.to_tensor(default, shape=[None, n_best_size])

    return (
      tf.minimum(4 * number, size),
      more,
      Answers(
        best(texts, ""),
        best(starts, 0),
        best(ends, 0),
        best(start_scores, _NEVER),
        best(end_scores, _NEVER),
      ),
    )

  seen = look(tf.minimum(_FIRST_LOOK * n_best_size, size))
  return tf.while_loop(lambda number, more, answers: more, look, seen)[-1]


def _candidates(
  windows: Windows, scores: Tensors, n_best_size: int, max_answer_length: int
) -> list[tf.Tensor]:
  """Returns the spans of each window, [W, K * M] each.

  Deviation: for SQuAD 1.1, the best starts and ends are chosen within the
  context of the window. The original chooses them from the whole sequence and
  then drops those in the question and the padding, so its answers depend on the
  padding.

  Returns:
    The sum of both scores, which is -inf for spans that are not candidates;
    start and end in characters; and both scores.
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
    return tf.gather(
      tf.concat([values, tf.zeros([1], values.dtype)], 0), tokens
    )

  this = tf.range(tf.size(begin, tf.int64))[:, None, None]
  fits = (
    tf.equal(at(_best_windows(windows), starts), this)
    & (starts >= 0)
    & (ends >= starts)
    & (ends < length[:, None])
    & (ends - starts < max_answer_length)
  )  # [W, K, M]
  columns = (
    tf.where(fits, start_scores + end_scores, _NEVER),
    at(windows.starts, starts),
    at(windows.ends, ends),
    start_scores,
    end_scores,
  )
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
  count = tf.size(windows.starts)
  best = tf.math.unsorted_segment_max(score, tokens, count)
  is_best = tf.equal(score, tf.gather(best, tokens))
  # Of equal ones the first.
  return tf.math.unsorted_segment_min(
    tf.where(is_best, rows, tf.int64.max), tokens, count
  )


def _whole_words(
  contexts: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
  """Strips spans <int32>[B, N], and then adds the rest of their words.

  Returns:
    Their texts and positions, [B, N] each.
  """
  shape = tf.shape(starts)
  starts = tf.reshape(starts, [-1])
  lengths = tf.maximum(tf.reshape(ends, [-1]) - starts, 0)
  # tf.strings.substr refuses an empty text at the end of the context.
  contexts = tf.repeat(tf.strings.join([contexts, " "]), shape[1])

  def part(begin: tf.Tensor, size: Any) -> tf.Tensor:
    size = tf.broadcast_to(size, tf.shape(begin))
    return tf.strings.substr(contexts, begin, size, unit="UTF8_CHAR")

  def length(text: tf.Tensor) -> tf.Tensor:
    return tf.strings.length(text, unit="UTF8_CHAR")

  texts = part(starts, lengths)
  texts = tf.strings.regex_replace(texts, f"^{in_graph.space_class()}+", "")
  starts += lengths - length(texts)
  texts = tf.strings.regex_replace(texts, f"{in_graph.space_class()}+$", "")
  ends = starts + length(texts)

  def rest(text: tf.Tensor, pattern: str) -> tf.Tensor:
    """Returns how many characters match besides that of the answer itself."""
    left = length(tf.strings.regex_replace(text, pattern, ""))
    more = tf.maximum(length(text) - left - 1, 0)
    return tf.where(ends > starts, more, 0)

  begin = tf.maximum(starts - _MOST_OF_WORD, 0)
  before = rest(part(begin, starts - begin + 1), f"{_word()}+$")
  after = part(tf.maximum(ends - 1, 0), 1 + _MOST_OF_WORD)
  starts, ends = starts - before, ends + rest(after, f"^{_word()}+")
  texts = part(starts, ends - starts)
  return tuple(tf.reshape(x, shape) for x in (texts, starts, ends))


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
  contexts: Mapping[str, str],
  scores: Mapping[str, np.ndarray],
  n_best_size: int = Recipe.n_best_size,
  max_answer_length: int = Recipe.max_answer_length,
) -> dict[str, QuestionAnswers]:
  """Returns the answers of a model, and for SQuAD 2.0 the null odds.

  Args:
    windows: the W windows of all questions; those of a question are
      consecutive.
    contexts: the raw contexts by question.
    scores: the `scores` of the model, with a row for each window.
    n_best_size: the maximum number of candidates of a question; in SQuAD 1.1
      also of starts and ends of a window.
    max_answer_length: the maximum tokens of an answer.
  """
  if not all(np.isfinite(values).all() for values in scores.values()):
    raise ValueError(
      "scores are infinite or not a number: the model has diverged; use an "
      "earlier checkpoint."
    )
  # The first windows of the questions, and the end.
  begins = [i for i, w in enumerate(windows) if w.first_token == 0]
  begins.append(len(windows))
  host = tf.config.list_logical_devices("CPU")[0].name
  result = {}
  for first in range(0, len(begins) - 1, _BLOCK):
    block = begins[first : first + _BLOCK + 1]
    names = [windows[begin].question_id for begin in block[:-1]]
    packed = _pack(windows[block[0] : block[-1]], np.diff(block))
    own = {name: x[block[0] : block[-1]] for name, x in scores.items()}
    with tf.device(host):
      found = best_answers(
        tf.constant([contexts[name] for name in names]),
        packed,
        {name: tf.constant(x) for name, x in own.items()},
        n_best_size,
        max_answer_length,
      )
      odds = [None] * len(names)
      if "cls_logits" in own:
        odds = null_odds(packed, own["cls_logits"]).numpy().tolist()
    columns = [found.texts, found.start_scores, found.end_scores]
    rows = zip(*(column.numpy() for column in columns))
    for name, row, value in zip(names, rows, odds):
      result[name] = QuestionAnswers(_to_candidates(*row), value)
  return result


def null_odds(windows: Windows, cls_logits: tf.Tensor) -> tf.Tensor:
  """Returns the minimum over the windows of each question, <float32>[B]."""
  rows = tf.RaggedTensor.from_row_lengths(
    cls_logits, windows.counts, validate=False
  )
  return tf.reduce_min(rows, axis=1)


def _pack(windows: Sequence[Window], counts: np.ndarray) -> Windows:
  """Returns windows as tensors, given their number for each question."""
  before, first_tokens = 0, []
  starts: list[int] = []
  ends: list[int] = []
  for window in windows:
    if window.first_token == 0:  # The first window of a question.
      before = len(starts)
    first_tokens.append(before + window.first_token)
    known = len(starts) - first_tokens[-1]  # From the window before it.
    starts += window.token_starts[known:]
    ends += window.token_ends[known:]
  columns = (
    counts,
    [window.context_start for window in windows],
    first_tokens,
    [len(window.token_starts) for window in windows],
  )
  return Windows(
    *(tf.constant(x, tf.int64) for x in columns),
    *(tf.constant(x, tf.int32) for x in (starts, ends)),
  )


def _to_candidates(
  texts: np.ndarray, starts: np.ndarray, ends: np.ndarray
) -> list[Candidate]:
  """Returns a question's candidates, with probabilities in float64."""
  count = np.count_nonzero(starts > _NEVER)
  if not count:
    return [Candidate("", 1.0, _NO_CANDIDATE_SCORE, _NO_CANDIDATE_SCORE)]
  starts, ends = starts[:count], ends[:count]
  totals = starts + ends
  weights = np.exp(totals - totals[0])
  numbers = zip(*(x.tolist() for x in (weights / weights.sum(), starts, ends)))
  return [Candidate(text.decode(), *row) for text, row in zip(texts, numbers)]
