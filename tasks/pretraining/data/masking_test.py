"""Tests of the choices of n-gram masking and of their frequencies."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from official_albert.tasks.pretraining import data
from official_albert.tasks.pretraining.data import examples


def _thresholds(ngram, favor_shorter):
  return data.ExampleSettings(
    ngram=ngram, favor_shorter_ngram=favor_shorter
  ).ngram_thresholds


def _starts(*segments):
  """[CLS], segments given as the sizes of their units, [SEP] after each."""
  starts = [True]
  for sizes in segments:
    for size in sizes:
      starts += [True] + [False] * (size - 1)
    starts.append(True)
  return np.array(starts), 1 + sum(segments[0])


def _assert_frequencies(counts, probabilities):
  """Each count within 4 standard errors: a chance of 6e-5 to fail."""
  total = sum(counts)
  for count, probability in zip(counts, probabilities):
    error = np.sqrt(probability * (1 - probability) / total)
    assert abs(count / total - probability) <= 4 * error


def test_num_to_predict():
  count = data.num_to_predict
  assert count(10, 0.25, 99) == 2  # 2.5, rounded to even.
  assert count(14, 0.25, 99) == 4  # 3.5
  assert count(5, 0.01, 99) == 1
  assert count(512, 0.15, 77) == 77  # 76.8
  assert count(512, 0.15, 76) == 76


# Three units in A, five in B: edges are hit often.
@pytest.mark.parametrize(
  ("favor_shorter", "expected_thresholds"),
  [(True, [6 / 11, 9 / 11]), (False, [2 / 11, 5 / 11])],
)
def test_ngram_lengths_are_drawn_with_their_probabilities(
  favor_shorter, expected_thresholds
):
  starts, separator = _starts([1] * 3, [1] * 5)
  thresholds = _thresholds(3, favor_shorter)
  np.testing.assert_allclose(thresholds, expected_thresholds)
  rng = np.random.default_rng(1)
  first = [
    examples.choose_ngrams(starts, separator, 3, thresholds, rng)[1][0]
    for _ in range(10000)
  ]
  # Only the end of its segment limits the first n-gram: the last unit before
  # each [SEP] allows a length of 1, the unit before it a length of 2.
  p1, p2, p3 = np.diff(thresholds, prepend=0, append=1)
  last = before_last = 2 / 8
  expected = [
    p1 + last * (p2 + p3),
    p2 * (1 - last) + before_last * p3,
    p3 * (1 - last - before_last),
  ]
  _assert_frequencies(np.bincount(first, minlength=4)[1:], expected)


@pytest.mark.parametrize(
  ("segments", "budget", "num_tokens", "lengths"),
  [
    # One word in A and one in B: the n-gram stops at [SEP].
    (([2], [3]), 99, 5, [1, 1]),
    # Two words of two fit into 5; the odd one is never spent on half a word.
    (([2, 2, 2], [2, 2, 2]), 5, 4, None),
    # Too long words are skipped.
    (([4], [2, 4]), 3, 2, [1]),
    (([4], [4]), 3, 0, []),
  ],
)
@pytest.mark.parametrize("seed", range(5))
def test_long_ngrams_are_shortened(segments, budget, num_tokens, lengths, seed):
  starts, separator = _starts(*segments)
  always_3 = np.array([0.0, 0.0])
  positions, found = examples.choose_ngrams(
    starts, separator, budget, always_3, np.random.default_rng(seed)
  )
  assert len(positions) == num_tokens
  assert found == lengths or (lengths is None and sum(found) == 2)


# [CLS] 0, A 1 2, [SEP] 3, B 4 5, [SEP] 6.
@pytest.mark.parametrize(
  ("continues", "ngram", "choices"),
  [
    # Words 1 | 2 | 4 | 5, two in a row: also 2 with 4.
    ((), 2, {(1, 2), (2, 4), (4, 5), (1, 4), (1, 5), (2, 5)}),
    # B begins within a word, which is joined to A's last word.
    ((4,), 1, {(2, 4), (1, 5)}),
    # A begins within a word: a unit of its own, as there is none before it.
    ((1,), 1, set(itertools.combinations((1, 2, 4, 5), 2))),
  ],
)
def test_words_and_ngrams_of_compat_span_the_separator(
  continues, ngram, choices
):
  starts = np.ones(7, bool)
  starts[list(continues)] = False
  seen = set()
  for seed in range(200):
    rng = np.random.default_rng(seed)
    positions, lengths = examples.choose_ngrams(
      starts, 3, 2, _thresholds(ngram, True), rng, across_separator=True
    )
    assert sum(lengths) == len(positions) or continues
    seen.add(tuple(positions.tolist()))
  assert seen == choices


def test_80_10_10():
  mask_id, pieces = 4, np.array([5, 7, 8, 90], np.int32)
  tokens = np.full(40000, 6, np.int32)
  positions = np.arange(1, 40000, 2)
  replaced = examples.replace_tokens(
    tokens, positions, mask_id, pieces, np.random.default_rng(5)
  )
  assert (tokens == 6).all()  # The original is as it was.
  assert (replaced[::2] == 6).all()
  at = replaced[positions]
  assert set(at) == {4, 6, 5, 7, 8, 90}
  random = [int((at == piece).sum()) for piece in pieces]
  _assert_frequencies(
    [(at == mask_id).sum(), (at == 6).sum(), sum(random)], [0.8, 0.1, 0.1]
  )
  _assert_frequencies(random, [0.25] * 4)
  # The draws are independent: both neighbors are masked with 0.8^2.
  both = int(((at[::2] == mask_id) & (at[1::2] == mask_id)).sum())
  _assert_frequencies([both, 10000 - both], [0.64, 0.36])
