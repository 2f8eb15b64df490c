"""Windows of questions and contexts, inside the graph: the twin of `windows`.

All questions of a request become one batch of windows, of which a question has
as many as its context needs. What is computed is what `windows.make_windows`
computes, down to the float64 scores that choose a token's best window.

Letters: B questions, W windows of all of them, S sequence, T tokens of all
contexts, one context after the other.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from official_albert import serving
from official_albert.tokenization import in_graph


class Windows(NamedTuple):
  """W windows, those of a question after each other.

  Attributes:
    question: <int64>[W] which of the B questions each is of.
    counts: <int64>[B] windows of each question, at least one.
    features: `input_ids`, `input_mask`, `segment_ids` <int32>[W, S], S the
      longest window.
    is_context: <bool>[W, S] where a token of the context stands.
    is_max_context: <bool>[W, S] whether it is one that no other window has
      with more context around it.
    start_chars: <int32>[W, S] first character in the context of such a token,
      elsewhere any number.
    end_chars: <int32>[W, S] the character after its last.
  """

  question: tf.Tensor
  counts: tf.Tensor
  features: dict[str, tf.Tensor]
  is_context: tf.Tensor
  is_max_context: tf.Tensor
  start_chars: tf.Tensor
  end_chars: tf.Tensor


def make_windows(
  questions: tf.RaggedTensor,
  contexts: in_graph.EncodedTexts,
  cls_id: int,
  sep_id: int,
  max_seq_length: int,
  doc_stride: int,
  max_query_length: int,
  max_windows: int,
  min_length: int = 1,
) -> Windows:
  """The windows of B questions.

  Args:
    questions: <int32>[B, (tokens)]; those after `max_query_length` are left
      out.
    contexts: of B texts.
    cls_id: of [CLS].
    sep_id: of [SEP].
    max_seq_length: the most tokens that a window has.
    doc_stride: tokens from one window's begin to the next one's.
    max_query_length: the most tokens of a question.
    max_windows: more of them are refused.
    min_length: the least S.
  """
  query = questions[:, :max_query_length]
  room = max_seq_length - 3 - query.row_lengths()  # [B]
  has_room = serving.refuse_unless(
    tf.reduce_all(room >= 1),
    f"a question must leave room for its context in {max_seq_length} tokens, "
    "[CLS] and two [SEP] among them: shorten it, but its tokens are",
    tf.cast(tf.reduce_max(query.row_lengths()), tf.int32),
  )
  room = serving.after_checks([has_room], {"room": room})["room"]
  tokens = contexts.ids.row_lengths()  # [B]
  # A stride over the window's length would leave tokens out.
  stride = tf.minimum(room, doc_stride)
  over = tf.maximum(tokens - room, 0)
  counts = 1 + (over + stride - 1) // stride
  total = tf.reduce_sum(counts)
  is_enough = serving.refuse_unless(
    total <= max_windows,
    f"the contexts of a request may be read through {max_windows} windows in "
    "all: send fewer or shorter ones, for these need",
    tf.cast(tf.minimum(total, tf.int32.max), tf.int32),
  )
  counts = serving.after_checks([is_enough], {"counts": counts})["counts"]
  question = tf.repeat(tf.range(tf.size(counts, tf.int64)), counts)  # [W]

  def of_question(values: tf.Tensor) -> tf.Tensor:
    return tf.gather(values, question)

  number = tf.range(tf.size(question, tf.int64)) - of_question(
    tf.cumsum(counts, exclusive=True)
  )
  begin = number * of_question(stride)
  length = tf.minimum(of_question(room), of_question(tokens) - begin)
  first = of_question(contexts.ids.row_starts()) + begin  # In all T tokens.
  parts = tf.ragged.range(first, first + length)
  parts = parts.with_flat_values(
    tf.gather(contexts.ids.flat_values, parts.flat_values)
  )

  def column(id: int) -> tf.Tensor:
    return tf.fill([tf.size(question), 1], id)

  head = tf.concat(
    [column(cls_id), tf.gather(query, question), column(sep_id)], 1
  )
  ids = tf.concat([head, parts, column(sep_id)], 1)
  context_start = head.row_lengths()[:, None]  # [W, 1]
  input_ids = ids.to_tensor(0)
  # The model refuses S = 0, even for a batch of no sequences.
  missing = tf.maximum(min_length - tf.shape(input_ids)[1], 0)
  input_ids = tf.pad(input_ids, [[0, 0], [0, missing]])
  place = tf.range(tf.shape(input_ids, tf.int64)[1]) - context_start  # [W, S]
  size = length[:, None]
  there = place <= size
  is_context = (place >= 0) & (place < size)
  # One more, for where no context is.
  token = tf.where(
    is_context, first[:, None] + place, tf.size(contexts.ids, tf.int64)
  )
  return Windows(
    question,
    counts,
    {
      "input_ids": input_ids,
      "input_mask": tf.cast(there, tf.int32),
      "segment_ids": tf.cast(there & (place >= 0), tf.int32),
    },
    is_context,
    _is_max_context(place, size, is_context, token),
    _at(contexts.starts, token),
    _at(contexts.ends, token),
  )


def _at(values: tf.RaggedTensor, token: tf.Tensor) -> tf.Tensor:
  return tf.gather(tf.concat([values.flat_values, [0]], 0), token)


def _is_max_context(
  place: tf.Tensor, size: tf.Tensor, is_context: tf.Tensor, token: tf.Tensor
) -> tf.Tensor:
  """<bool>[W, S], see `Windows`; `token` is <int64>[W, S], its number or T."""
  score = tf.cast(tf.minimum(place, size - 1 - place), tf.float64)
  # In float64 and in this order: Python's sums decide which ones are equal.
  score += 0.01 * tf.cast(size, tf.float64)
  score = tf.where(is_context, score, -1.0)
  segments = tf.reduce_max(tf.concat([tf.reshape(token, [-1]), [0]], 0)) + 1
  best = tf.math.unsorted_segment_max(score, token, segments)
  window = tf.range(tf.shape(token, tf.int64)[0])[:, None] + 0 * token
  is_best = is_context & tf.equal(score, tf.gather(best, token))
  none = tf.int64.max
  first = tf.math.unsorted_segment_min(
    tf.where(is_best, window, none), token, segments
  )
  # Of equal ones the first.
  return is_best & tf.equal(window, tf.gather(first, token))
