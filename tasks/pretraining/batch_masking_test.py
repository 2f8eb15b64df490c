"""Tests of masking in batches: the choices of `masking`, row by row."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tasks.pretraining import batch_masking, data

_S = 23


class _Rng:
  """Gives `masking.choose_ngrams` the draws that the graph was given."""

  def __init__(self, order, ngram):
    self._order, self._ngram = order, ngram

  def permutation(self, count):
    assert count == len(self._order)
    return self._order

  def random(self, count):
    return self._ngram[:count]


def _choose_one(starts, separator, budget, thresholds, order, ngram):
  """`masking.choose_ngrams` with a row's draws: positions and lengths."""
  length = np.flatnonzero(starts)[-1] + 1
  edges = np.flatnonzero(starts)
  middle = np.searchsorted(edges, separator)
  # The draw of a unit is that of its index among the edges.
  units = [u for u in range(1, len(edges) - 1) if u != middle]
  visits = np.argsort(-order[units], kind="stable")
  return data.choose_ngrams(
    starts[:length], separator, budget, thresholds, _Rng(visits, ngram)
  )


def _rows(rng, count):
  """Sequences of all lengths from 5 to S, words of one to four pieces."""
  starts = np.zeros((count, _S), bool)
  separators = np.zeros(count, np.int32)
  for row in range(count):
    length = rng.integers(5, _S + 1)
    separator = rng.integers(2, length - 2)
    starts[row, :length] = rng.random(length) < rng.choice([0.3, 0.7, 1.0])
    starts[row, [0, 1, separator, separator + 1, length - 1]] = True
    separators[row] = separator
  return starts, separators


@pytest.mark.parametrize("ngram", [1, 3, 5])
@pytest.mark.parametrize("favor_shorter", [True, False])
def test_same_draws_same_ngrams(ngram, favor_shorter):
  """Not only the distribution: the very n-grams of `masking`."""
  rng = np.random.default_rng(ngram)
  count = 300
  starts, separators = _rows(rng, count)
  budgets = rng.integers(1, 9, count).astype(np.int32)
  thresholds = data.ngram_thresholds(ngram, favor_shorter)
  order, lengths = rng.random((2, count, _S))
  taken = batch_masking.choose_ngrams(
    tf.constant(starts),
    tf.constant(separators),
    tf.constant(budgets),
    thresholds,
    tf.constant(order),
    tf.constant(lengths),
  ).numpy()
  seen = set()
  for row in range(count):
    positions, ngrams = _choose_one(
      starts[row],
      separators[row],
      int(budgets[row]),
      thresholds,
      order[row],
      lengths[row],
    )
    assert np.flatnonzero(taken[row]).tolist() == positions.tolist()
    # Units of each n-gram, in the order of the visits.
    visits = np.unique(taken[row][taken[row] > 0])
    assert [
      int((starts[row] & (taken[row] == visit)).sum()) for visit in visits
    ] == ngrams
    seen.update(ngrams)
  assert seen == set(range(1, ngram + 1))


def test_padding_and_special_tokens_are_never_chosen():
  """With single units and a budget beyond the row, everything else is."""
  starts, separators = _rows(np.random.default_rng(1), 40)
  taken = batch_masking.choose_ngrams(
    tf.constant(starts),
    tf.constant(separators),
    tf.fill([40], _S),
    data.ngram_thresholds(1, True),
    *tf.random.stateless_uniform([2, 40, _S], [1, 2], dtype=tf.float64),
  ).numpy()
  for row in range(40):
    last = np.flatnonzero(starts[row])[-1]
    chosen = set(range(1, last)) - {int(separators[row])}
    assert set(np.flatnonzero(taken[row]).tolist()) == chosen


def test_row_that_has_nothing_left_to_choose_ends_too():
  """Two words of two pieces do not fit a budget of one."""
  starts = tf.constant([[1, 1, 0, 1, 1, 0, 1, 0]]) > 0
  taken = batch_masking.choose_ngrams(
    starts,
    tf.constant([3]),
    tf.constant([1]),
    data.ngram_thresholds(2, True),
    *tf.random.stateless_uniform([2, 1, 8], [1, 2], dtype=tf.float64),
  )
  assert not taken.numpy().any()


def _batch():
  """A of two, B of three; A of three, B of one; S = 8."""
  return {
    name: tf.constant(value)
    for name, value in {
      "input_ids": [
        [2, 11, 12, 3, 21, 22, 23, 3],
        [2, 13, 14, 15, 3, 24, 3, 0],
      ],
      "input_mask": [[1] * 8, [1] * 7 + [0]],
      "segment_ids": [[0] * 4 + [1] * 4, [0] * 5 + [1] * 2 + [0]],
      "token_boundary": [[1, 1, 0, 1, 0, 0, 1, 1], [1, 1, 1, 0, 1, 1, 1, 0]],
      "next_sentence_labels": [[0], [0]],
      "other": [[7], [8]],
    }.items()
  }


def test_first_separator():
  assert batch_masking.first_separator(_batch()).numpy().tolist() == [3, 4]


@pytest.mark.parametrize("swap", [[True, False], [False, True], [True, True]])
def test_swap(swap):
  batch = _batch()
  swapped = batch_masking.swap_segments(batch, tf.constant(swap))
  expected = {
    "input_ids": [[2, 21, 22, 23, 3, 11, 12, 3], [2, 24, 3, 13, 14, 15, 3, 0]],
    "input_mask": [[1] * 8, [1] * 7 + [0]],
    "segment_ids": [[0] * 5 + [1] * 3, [0] * 3 + [1] * 4 + [0]],
    "token_boundary": [[1, 0, 0, 1, 1, 1, 0, 1], [1, 1, 1, 1, 1, 0, 1, 0]],
    "next_sentence_labels": [[1], [1]],
    "other": [[7], [8]],
  }
  assert swapped.keys() == expected.keys()
  for name, value in swapped.items():
    assert value.dtype == tf.int32
    for row in range(2):
      source = expected[name] if swap[row] else batch[name].numpy().tolist()
      assert value[row].numpy().tolist() == source[row], (name, row)


def test_replacement_by_hand():
  ids = np.array([[6, 7, 8, 9, 5]], np.int32)
  chosen = np.array([[True, True, True, True, False]])
  shown = batch_masking.replace_tokens(
    tf.constant(ids),
    tf.constant(chosen),
    4,
    np.array([50, 60, 70], np.int32),
    # [MASK] below 0.8, as it is below 0.9, a random piece from there on.
    tf.constant([[0.799, 0.8, 0.9, 0.999, 0.0]], tf.float64),
    tf.constant([[0.0, 0.0, 0.33, 1 - 2.0**-32, 0.0]], tf.float64),
  )
  assert shown.numpy().tolist() == [[4, 7, 50, 70, 5]]


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
