"""From scores to the n best answers, inside the graph: the twin of `decoding`.

The same candidates in the same order, float64 sums and ties included, as
`decoding`, `candidate_spans` and `answers` have them.

Letters: B questions, W windows of all of them, S sequence, K starts of a
window, M ends of each of them, C candidates of a question, n answers of it.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from official_albert.tokenization import in_graph
from tasks.squad import serving_windows

# For each answer that is wanted so many candidates are looked at; should they
# have too few different texts, more.
_FIRST_LOOK = 8
_NEVER = float("-inf")


class Candidates(NamedTuple):
  """Spans of the contexts, K * M of each window.

  Attributes:
    scores: <float64>[W, K * M], -inf for what is no candidate.
    starts: <int32>[W, K * M], in characters.
    ends: <int32>[W, K * M], exclusive.
  """

  scores: tf.Tensor
  starts: tf.Tensor
  ends: tf.Tensor


class Answers(NamedTuple):
  """The best first; after a question's last one "", 0, 0, and -inf.

  Attributes:
    texts: <string>[B, n], no text twice.
    starts: <int32>[B, n], in characters of the context.
    ends: <int32>[B, n], exclusive.
    scores: <float64>[B, n].
  """

  texts: tf.Tensor
  starts: tf.Tensor
  ends: tf.Tensor
  scores: tf.Tensor

  def probabilities(self) -> tf.Tensor:
    """<float32>[B, n] among a question's answers; 1, 0, ... without one."""
    weights = tf.exp(self.scores - self.scores[:, :1])
    none = tf.math.is_inf(self.scores[:, :1])
    first = tf.one_hot([0], tf.shape(weights)[1], dtype=tf.float64)
    weights = tf.where(none, first, weights)
    total = tf.reduce_sum(weights, 1, keepdims=True)
    return tf.cast(weights / total, tf.float32)


def candidates_v1(
  windows: serving_windows.Windows,
  start_logits: tf.Tensor,
  end_logits: tf.Tensor,
  n_best_size: int,
  max_answer_length: int,
) -> Candidates:
  """The spans between the best starts and ends of each window.

  Args:
    windows: W.
    start_logits: <float32>[W, S].
    end_logits: <float32>[W, S].
    n_best_size: starts and ends of a window.
    max_answer_length: tokens of an answer, at most.
  """
  k = tf.minimum(n_best_size, tf.shape(start_logits)[1])
  never = start_logits.dtype.min
  # Of equal scores the first position.
  start, end = (
    tf.math.top_k(tf.where(windows.is_context, logits, never), k)
    for logits in (start_logits, end_logits)
  )
  return _spans(
    windows,
    start.indices,
    start.values,
    end.indices[:, None],
    end.values[:, None],
    max_answer_length,
  )


def candidates_v2(
  windows: serving_windows.Windows,
  start_top_log_probs: tf.Tensor,
  start_top_index: tf.Tensor,
  end_top_log_probs: tf.Tensor,
  end_top_index: tf.Tensor,
  max_answer_length: int,
) -> Candidates:
  """The spans that the model chose.

  Args:
    windows: W.
    start_top_log_probs: <float32>[W, K].
    start_top_index: <int32>[W, K], positions in the sequence.
    end_top_log_probs: <float32>[W, K * M], start by start.
    end_top_index: <int32>[W, K * M].
    max_answer_length: tokens of an answer, at most.
  """
  count, k = tf.unstack(tf.shape(start_top_index))
  shape = [count, k, tf.shape(end_top_index)[1] // k]
  return _spans(
    windows,
    start_top_index,
    start_top_log_probs,
    tf.reshape(end_top_index, shape),
    tf.reshape(end_top_log_probs, shape),
    max_answer_length,
  )


def _spans(
  windows: serving_windows.Windows,
  start: tf.Tensor,
  start_scores: tf.Tensor,
  end: tf.Tensor,
  end_scores: tf.Tensor,
  max_answer_length: int,
) -> Candidates:
  """Of starts [W, K] and ends [W, K or 1, M], positions in the sequence."""
  start = start[:, :, None]

  def at(values: tf.Tensor, place: tf.Tensor) -> tf.Tensor:
    return tf.gather(values, place, batch_dims=1)

  fits = (
    at(windows.is_max_context, start)
    & at(windows.is_context, end)
    & (end >= start)
    & (end - start < max_answer_length)
  )  # [W, K, M]
  scores = (
    tf.cast(start_scores, tf.float64)[:, :, None]
    + tf.cast(end_scores, tf.float64)
  )  # fmt: skip
  scores = tf.where(fits, scores, _NEVER)
  shape = tf.shape(scores)
  flat = [shape[0], shape[1] * shape[2]]
  return Candidates(
    *(
      tf.reshape(tf.broadcast_to(values, shape), flat)
      for values in (
        scores,
        at(windows.start_chars, start),
        at(windows.end_chars, end),
      )
    )
  )


def best_answers(
  contexts: tf.Tensor,
  counts: tf.Tensor,
  candidates: Candidates,
  n_best_size: int,
) -> Answers:
  """The best candidates of each question that have different texts.

  Args:
    contexts: <string>[B], valid UTF-8.
    counts: <int64>[B] windows of each question.
    candidates: of the W windows.
    n_best_size: n.
  """
  each = tf.shape(candidates.scores)[1]
  scores = tf.RaggedTensor.from_row_lengths(
    candidates.scores, counts, validate=False
  ).to_tensor(_NEVER)  # [B, most windows, K * M]
  all_of_it = tf.shape(scores)[1] * each  # C
  scores = tf.reshape(scores, [tf.shape(scores)[0], all_of_it])
  before = tf.cast(tf.cumsum(counts, exclusive=True), tf.int32) * each
  starts = tf.reshape(candidates.starts, [-1])
  ends = tf.reshape(candidates.ends, [-1])

  def look(number: tf.Tensor) -> tuple[tf.Tensor, Answers]:
    """Of the best ones so many; whether more of them would be more answers."""
    # Of equal scores the first, as found from window to window.
    top = tf.math.top_k(scores, number)
    fits = top.values > _NEVER
    index = tf.where(fits, before[:, None] + top.indices, 0)
    texts, begin, end = _stripped(
      contexts,
      tf.where(fits, tf.gather(starts, index), 0),
      tf.where(fits, tf.gather(ends, index), 0),
    )
    new = tf.not_equal(texts, "") & _is_first(texts)
    more = (tf.reduce_sum(tf.cast(new, tf.int32), 1) < n_best_size) & (
      tf.reduce_all(fits, 1)
    )

    def best(values: tf.Tensor, default) -> tf.Tensor:
      rows = tf.ragged.boolean_mask(values, new)[:, :n_best_size]
      return rows.to_tensor(default, shape=[None, n_best_size])

    return tf.reduce_any(more) & (number < all_of_it), Answers(
      best(texts, ""), best(begin, 0), best(end, 0), best(top.values, _NEVER)
    )

  number = tf.minimum(_FIRST_LOOK * n_best_size, all_of_it)
  more, found = look(number)

  def look_again(number, more, found):
    del more, found
    number = tf.minimum(4 * number, all_of_it)
    return (number, *look(number))

  _, _, found = tf.while_loop(
    lambda number, more, found: more, look_again, (number, more, found)
  )
  return found


def _stripped(
  contexts: tf.Tensor, start: tf.Tensor, end: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
  """Texts of spans <int32>[B, n] and their places, without space around."""
  shape = tf.shape(start)
  start, length = (
    tf.reshape(x, [-1]) for x in (start, tf.maximum(end - start, 0))
  )
  space = in_graph.character_class(str.isspace)
  # Nothing may stand at the end, where tf.strings.substr does not look.
  texts = tf.strings.substr(
    tf.repeat(contexts, shape[1]),
    tf.where(length > 0, start, 0),
    length,
    unit="UTF8_CHAR",
  )
  lengths = tf.strings.length(texts, unit="UTF8_CHAR")
  texts = tf.strings.regex_replace(texts, f"^{space}+", "")
  start += lengths - tf.strings.length(texts, unit="UTF8_CHAR")
  texts = tf.strings.regex_replace(texts, f"{space}+$", "")
  end = start + tf.strings.length(texts, unit="UTF8_CHAR")
  return tuple(tf.reshape(x, shape) for x in (texts, start, end))


def _is_first(texts: tf.Tensor) -> tf.Tensor:
  """<string>[B, n] -> <bool>[B, n], whether the row has it here first."""
  shape = tf.shape(texts)
  row = tf.strings.as_string(tf.range(shape[0]))
  keys = tf.strings.join(
    [tf.repeat(row, shape[1]), tf.reshape(texts, [-1])], ":"
  )
  place = tf.range(tf.size(keys))
  _, number = tf.unique(keys)
  first = tf.math.unsorted_segment_min(place, number, tf.size(keys))
  return tf.reshape(tf.equal(tf.gather(first, number), place), shape)
