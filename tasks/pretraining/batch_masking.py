"""Swaps segments and masks n-grams in batches: `data.masking` in TensorFlow.

`data.masking` visits the units of one sequence until the budget is spent. Each
visit depends on those before it, but rows are independent. So step k visits the
k-th unit of all rows at once, until the last row is done. All random numbers
are arguments.

arXiv 1909.11942 section 3.1 and 4.1; reference: google-research/albert
create_pretraining_data.py (create_masked_lm_predictions).
"""

from __future__ import annotations

from typing import Mapping

import numpy as np
import tensorflow as tf

from tasks.pretraining import data

Batch = Mapping[str, tf.Tensor]


def first_separator(batch: Batch) -> tf.Tensor:
  """Returns the position of the first [SEP], <int32>[B]."""
  first = batch["input_mask"] - batch["segment_ids"]
  return tf.reduce_sum(first, axis=1) - 1


def swap_segments(batch: Batch, swap: tf.Tensor) -> dict[str, tf.Tensor]:
  """Turns `[CLS] A [SEP] B [SEP]` into `[CLS] B [SEP] A [SEP]`, labeled 1.

  Args:
    batch: features of `schemas.unmasked_schema`, <int32>[B, S] and, for
      `next_sentence_labels`, <int32>[B, 1].
    swap: <bool>[B], the rows to swap; the others do not change.

  Returns:
    The batch with new `input_ids`, `token_boundary`, `segment_ids` and
    `next_sentence_labels`.
  """
  length = tf.reduce_sum(batch["input_mask"], axis=1, keepdims=True)
  separator = first_separator(batch)[:, None]
  new_separator = length - 1 - separator  # After [CLS] and B.
  columns = tf.range(batch["input_ids"].shape[1])
  in_b = (columns > 0) & (columns < new_separator)
  in_a = (columns > new_separator) & (columns < length - 1)
  source = tf.where(in_b, columns + separator, columns)
  source = tf.where(in_a, columns - new_separator, source)
  source = tf.where(columns == new_separator, separator, source)
  source = tf.where(swap[:, None], source, columns)
  # [CLS] and [SEP] stay, so segment ids are computed instead of moved.
  in_1 = (columns > tf.where(swap[:, None], new_separator, separator)) & (
    columns < length
  )
  # Ids and boundaries move together; ids are below 2^30.
  both = 2 * batch["input_ids"] + batch["token_boundary"]
  both = tf.gather(both, source, batch_dims=1)
  return {
    **batch,
    "input_ids": both // 2,
    "token_boundary": both % 2,
    "segment_ids": tf.cast(in_1, tf.int32),
    "next_sentence_labels": tf.cast(swap[:, None], tf.int32),
  }


def choose_ngrams(
  starts: tf.Tensor,
  separator: tf.Tensor,
  budget: tf.Tensor,
  thresholds: np.ndarray,
  order: tf.Tensor,
  ngram: tf.Tensor,
) -> tf.Tensor:
  """Does what `data.choose_ngrams` does, for B sequences.

  Args:
    starts: <bool>[B, S], True where a unit starts and at [CLS] and both
      [SEP], False in the padding.
    separator: <int32>[B], position of the first [SEP].
    budget: <int32>[B], maximum number of tokens.
    thresholds: <float64>[ngram - 1], see `data.ngram_thresholds`.
    order: <float64>[B, S], random numbers that order the units.
    ngram: <float64>[B, S], random numbers for the lengths of the n-grams.

  Returns:
    <int32>[B, S]: k + 1 for the tokens of the n-gram taken at visit k, else 0.
  """
  columns = tf.range(starts.shape[1])
  # Column i is the start of unit i, or the end of unit i - 1.
  edges = tf.ragged.boolean_mask(tf.broadcast_to(columns, starts.shape), starts)
  edges = edges.to_tensor(shape=starts.shape)
  last = tf.reduce_sum(tf.cast(starts, tf.int32), axis=1, keepdims=True) - 1
  middle = tf.reduce_sum(
    tf.cast(starts & (columns < separator[:, None]), tf.int32),
    axis=1,
    keepdims=True,
  )
  is_unit = (columns > 0) & (columns != middle) & (columns < last)
  # From here on, columns are visits. Each row has last - 2 of them.
  num_visits = last[:, 0] - 2
  units = tf.math.top_k(
    tf.where(is_unit, order, -1.0), k=starts.shape[1]
  ).indices
  lengths = 1 + sum(tf.cast(ngram >= t, tf.int32) for t in thresholds)
  segment_end = tf.where(units < middle, middle, last)
  start = tf.gather(edges, units, batch_dims=1)
  visits = [start]
  for n in range(1, len(thresholds) + 2):
    end = tf.minimum(units + tf.minimum(n, lengths), segment_end)
    visits.append(tf.gather(edges, end, batch_dims=1) - start)
  visits = tf.stack([tf.transpose(part) for part in visits], axis=2)

  def is_unfinished(visit, budget, taken):
    del taken
    return tf.reduce_any((budget > 0) & (visit < num_visits))

  def one_visit(visit, budget, taken):
    start, sizes = tf.split(visits[visit], [1, len(thresholds) + 1], axis=1)
    # The most units that fit; none if the first one does not.
    left = tf.where(visit < num_visits, budget, 0)[:, None]
    size = tf.reduce_max(
      tf.where(sizes <= left, sizes, 0), axis=1, keepdims=True
    )
    reach = (columns >= start) & (columns < start + size)
    overlaps = tf.reduce_any(reach & (taken > 0), axis=1, keepdims=True)
    taken = tf.where(reach & ~overlaps, visit + 1, taken)
    budget -= tf.where(overlaps, 0, size)[:, 0]
    return visit + 1, budget, taken

  _, _, taken = tf.while_loop(
    is_unfinished,
    one_visit,
    (tf.constant(0), budget, tf.zeros(starts.shape, tf.int32)),
    parallel_iterations=1,
  )
  return taken


def replace_tokens(
  ids: tf.Tensor,
  chosen: tf.Tensor,
  mask_id: int,
  replacement_ids: np.ndarray,
  choice: tf.Tensor,
  piece: tf.Tensor,
) -> tf.Tensor:
  """Does what `data.masking.replace_tokens` does, for B sequences.

  Args:
    ids: <int32>[B, S].
    chosen: <bool>[B, S], the tokens to predict.
    mask_id: id of [MASK].
    replacement_ids: <int32>[R].
    choice: <float64>[B, S], random numbers for the kind of replacement.
    piece: <float64>[B, S], random numbers for the random pieces.

  Returns:
    <int32>[B, S].
  """
  random = tf.gather(
    replacement_ids, tf.cast(piece * len(replacement_ids), tf.int32)
  )
  shown = tf.where(choice < data.MASK_SHARE, mask_id, ids)
  replaced = choice >= data.MASK_SHARE + data.KEEP_SHARE
  shown = tf.where(replaced, random, shown)
  return tf.where(chosen, shown, ids)
