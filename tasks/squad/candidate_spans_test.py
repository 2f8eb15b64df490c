"""Tests of what a span must be to become a candidate."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from tasks.squad import answers, candidate_spans


class _Window(NamedTuple):
  question_id: str
  context_start: int
  token_starts: list
  token_ends: list
  is_max_context: list


_CONTEXT = "On a red  hill."
# On | a | red | _ (a lone piece of white space) | hill | .
_WINDOW = _Window(
  "q", 4, [0, 3, 5, 8, 10, 14], [2, 4, 8, 9, 14, 15], [True] * 5 + [False]
)


def _spans(start, ends, max_answer_length=30, windows=(_WINDOW,), rows=(0,)):
  tokens = candidate_spans.Tokens(
    windows, {w.question_id: _CONTEXT for w in windows}
  )
  found = tokens.spans(
    np.array(rows),
    np.array(start),
    np.zeros(np.shape(start)),
    np.array(ends),
    np.array(ends) * -1.0,
    max_answer_length,
  )
  return tokens, found


def _texts(found):
  return [_CONTEXT[s:e] for s, e in zip(found.start_char, found.end_char)]


def test_spans_leave_neither_the_context_nor_their_order():
  # Position 4 is the first token of the context, 9 the last.
  _, found = _spans([[6, 3, 0]], [[[8, 5, 6, 9, 10, 3]]])
  assert _texts(found) == ["red  hill", "red", "red  hill."]
  np.testing.assert_array_equal(found.end_score, [-8.0, -6.0, -9.0])


def test_a_start_needs_the_most_context_an_end_does_not():
  _, found = _spans([[9, 8]], [[[9]]])
  assert _texts(found) == ["hill."]


@pytest.mark.parametrize("longest, texts", [(2, ["On", "On a"]), (1, ["On"])])
def test_longest_answer(longest, texts):
  _, found = _spans([[4]], [[[4, 5, 6]]], longest)
  assert _texts(found) == texts


def test_each_start_has_its_own_ends():
  _, found = _spans([[4, 6]], [[[5, 4], [8, 6]]])
  assert _texts(found) == ["On a", "On", "red  hill", "red"]


def test_rows_choose_windows():
  other = _Window("r", 2, [5, 10], [8, 14], [True, True])
  _, found = _spans([[2]], [[[3, 4]]], windows=(_WINDOW, other), rows=(1,))
  assert _texts(found) == ["red  hill"]
  np.testing.assert_array_equal(found.question, [1])


def test_windows_without_context():
  empty = _Window("q", 3, [], [], [])
  _, found = _spans([[3, 0]], [[[3, 4]]], windows=(empty,))
  assert not len(found.question)


def _best(start_chars, end_chars, scores, n_best_size=20):
  tokens, _ = _spans([[4]], [[[4]]])
  c = len(start_chars)
  spans = candidate_spans.Spans(
    np.zeros(c, np.int64),
    np.array(start_chars, np.int64),
    np.array(end_chars, np.int64),
    np.array(scores, np.float64),
    np.zeros(c),
  )
  found = tokens.n_best([spans], n_best_size, [1.25])
  assert list(found) == ["q"] and found["q"].null_odds == 1.25
  return found["q"].n_best


def test_probabilities_are_those_of_the_candidates_that_are_kept():
  best = _best([0, 5, 3, 10], [2, 8, 4, 14], np.log([2.0, 6.0, 1.0, 4.0]), 3)
  assert [c.text for c in best] == ["red", "hill", "On"]
  np.testing.assert_allclose(
    [c.probability for c in best], [6 / 12, 4 / 12, 2 / 12], rtol=1e-14
  )
  assert (best[0].start_char, best[0].end_char) == (5, 8)
  assert best[0].score == np.log(6.0)


def test_a_text_counts_once_with_its_best_score():
  # "red", with white space around it, and again.
  best = _best([4, 5, 0], [10, 8, 2], [1.0, 3.0, 2.0])
  assert [(c.text, c.score) for c in best] == [("red", 3.0), ("On", 2.0)]
  best = _best([4, 5], [10, 8], [4.0, 3.0])
  assert best == [answers.Candidate("red", 1.0, 4.0, 0.0, 5, 8)]


def test_of_equal_scores_the_first_is_better():
  best = _best([5, 0, 10], [8, 2, 14], [1.0, 1.0, 1.0])
  assert [c.text for c in best] == ["red", "On", "hill"]


@pytest.mark.parametrize("start_chars, end_chars", [([], []), ([8], [9])])
def test_without_a_letter_there_is_no_candidate(start_chars, end_chars):
  best = _best(start_chars, end_chars, [5.0] * len(start_chars))
  assert best == [answers.Candidate("", 1.0, -1e6, -1e6)]


def test_far_scores_do_not_overflow():
  best = _best([0, 5], [2, 8], [2e4, -2e4])
  assert [c.probability for c in best] == [1.0, 0.0]


def test_contexts_are_those_of_the_windows():
  with pytest.raises(ValueError, match="question q has no context"):
    candidate_spans.Tokens([_WINDOW], {})
  with pytest.raises(ValueError, match="question r has a context, but no win"):
    candidate_spans.Tokens([_WINDOW], {"q": _CONTEXT, "r": _CONTEXT})
  with pytest.raises(ValueError, match="one length"):
    candidate_spans.Tokens([_WINDOW._replace(token_ends=[2])], {"q": _CONTEXT})


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
