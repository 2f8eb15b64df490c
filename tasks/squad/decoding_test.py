"""Compares decoding with loops that follow the original step by step."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pytest

from tasks.squad import answers, decoding

# More than one block of windows, the last one incomplete.
_QUESTIONS = 400


class _Window(NamedTuple):
  question_id: str
  context_start: int
  token_starts: list
  token_ends: list
  is_max_context: list


def _data(seed, questions=_QUESTIONS, longest=13):
  """Returns overlapping windows of up to 5 tokens, shuffled, and contexts."""
  rng = np.random.default_rng(seed)
  windows, contexts = [], {}
  for i in range(questions):
    # Few different words, so that texts repeat.
    words = rng.choice(["red", "blue", "a", "I"], rng.integers(1, longest))
    text = "  ".join(words)
    contexts[f"q{i}"] = text
    starts, at = [], 0
    for word in words:
      starts.append(at)
      at += len(word) + 2
    ends = [s + len(w) for s, w in zip(starts, words)]
    for first in range(0, len(words), 3):
      part = slice(first, first + 5)
      windows.append(
        _Window(
          f"q{i}",
          int(rng.integers(3, 6)),
          starts[part],
          ends[part],
          [bool(b) for b in rng.random(len(starts[part])) < 0.8],
        )
      )
  order = rng.permutation(len(windows))
  return [windows[i] for i in order], contexts


def _reference(windows, contexts, pairs, n_best_size, longest):
  """Decodes with the loops of the original.

  Args:
    windows: all.
    contexts: by question.
    pairs: window -> its (start score, start, end score, end), in order.
    n_best_size: of candidates.
    longest: answer in tokens.
  """
  spans = {w.question_id: [] for w in windows}
  for n, window in enumerate(windows):
    for start_score, start, end_score, end in pairs(n):
      start, end = start - window.context_start, end - window.context_start
      size = len(window.token_starts)
      if not 0 <= start < size or end >= size or end < start:
        continue
      if not window.is_max_context[start] or end - start + 1 > longest:
        continue
      chars = window.token_starts[start], window.token_ends[end]
      spans[window.question_id].append((start_score, end_score, *chars))
  result = {}
  for question_id, found in spans.items():
    found.sort(key=lambda s: s[0] + s[1], reverse=True)
    best, seen = [], set()
    for start_score, end_score, start, end in found:
      text = contexts[question_id][start:end].strip()
      if text not in seen and len(best) < n_best_size:
        seen.add(text)
        best.append((text, start_score, end_score, start, end))
    best = best or [("", -1e6, -1e6, None, None)]
    weights = [math.exp(b[1] + b[2] - best[0][1] - best[0][2]) for b in best]
    result[question_id] = [
      (*b, w / sum(weights)) for b, w in zip(best, weights)
    ]
  return result


def _assert_equal(found, expected):
  assert list(found) == list(expected)
  for question_id, answer in found.items():
    rows = [
      (c.text, c.start_score, c.end_score, c.start_char, c.end_char)
      for c in answer.n_best
    ]
    assert rows == [row[:5] for row in expected[question_id]], question_id
    np.testing.assert_allclose(
      [c.probability for c in answer.n_best],
      [row[5] for row in expected[question_id]],
      rtol=1e-12,  # sums in another order
    )


def _logits(rng, *shape):
  # Few different values, so that there are ties.
  return rng.integers(-9, 9, shape).astype(np.float32) / 4


def test_v1_follows_the_original():
  windows, contexts = _data(1)
  assert len(windows) > 512
  rng = np.random.default_rng(2)
  start, end = _logits(rng, 2, len(windows), 11)

  def pairs(n):
    w = windows[n]
    inside = range(w.context_start, w.context_start + len(w.token_starts))

    def top(logits):
      return sorted(inside, key=lambda i: logits[i], reverse=True)[:3]

    for i in top(start[n]):
      for j in top(end[n]):
        yield float(start[n, i]), i, float(end[n, j]), j

  found = decoding.decode_v1(windows, contexts, start, end, 3, 4)
  _assert_equal(found, _reference(windows, contexts, pairs, 3, 4))
  assert all(answer.null_odds is None for answer in found.values())
  assert any(answer.text() == "" for answer in found.values())


def test_v1_does_not_depend_on_the_padding():
  windows, contexts = _data(3, 7)
  start, end = _logits(np.random.default_rng(4), 2, len(windows), 11)
  expected = decoding.decode_v1(windows, contexts, start, end, 3)
  # Values outside of the context, in padding and question.
  wide = np.pad([start, end], [(0, 0), (0, 0), (0, 8)], constant_values=99.0)
  wide[..., -1] = np.nan
  for n, window in enumerate(windows):
    wide[:, n, : window.context_start] = 1e3
  assert decoding.decode_v1(windows, contexts, *wide, 3) == expected


def test_v2_follows_the_original():
  windows, contexts = _data(5)
  rng = np.random.default_rng(6)
  n, k, m = len(windows), 3, 2
  start, end = _logits(rng, n, k), _logits(rng, n, k * m)
  # Including positions in the question, the padding and [CLS].
  start_at, end_at = (
    rng.integers(0, 11, (n, k)),
    rng.integers(0, 11, (n, k * m)),
  )
  null = rng.normal(size=n).astype(np.float32)

  def pairs(n):
    for i in range(k):
      for j in range(m):
        at = i * m + j
        yield (
          float(start[n, i]),
          start_at[n, i],
          float(end[n, at]),
          end_at[n, at],
        )

  found = decoding.decode_v2(
    windows, contexts, start, start_at, end, end_at, null, 4, 3
  )
  _assert_equal(found, _reference(windows, contexts, pairs, 4, 3))
  for question_id, answer in found.items():
    own = [v for w, v in zip(windows, null) if w.question_id == question_id]
    assert answer.null_odds == min(own)


def test_one_question_by_hand():
  window = _Window("q", 4, [0, 3, 5], [2, 4, 8], [True] * 3)
  found = decoding.decode_v2(
    [window],
    {"q": "On a hill"},
    np.log([[0.5, 0.25]]),
    np.array([[4, 6]]),
    np.log([[0.5, 0.25, 1.0, 0.5]]),
    np.array([[5, 4, 6, 5]]),
    np.array([-0.5]),
  )
  # 1/4, 1/8 and 1/4; the fourth ends before it starts.
  best = found["q"].n_best
  assert [c.text for c in best] == ["On a", "hil", "On"]
  np.testing.assert_allclose(
    [c.probability for c in best], [0.4, 0.4, 0.2], rtol=1e-12
  )
  assert found["q"].null_odds == -0.5
  assert (best[1].start_char, best[1].end_char) == (5, 8)
  assert best[1].score == pytest.approx(math.log(0.25))


def test_masked_scores_of_a_window_without_context():
  window = _Window("q", 2, [], [], [])
  masked = np.full([1, 2], -1e30, np.float32)
  at = np.array([[0, 1]])
  found = decoding.decode_v2(
    [window], {"q": ""}, masked, at, masked, at, np.array([3.0])
  )
  assert found["q"].n_best == [answers.Candidate("", 1.0, -1e6, -1e6)]


def test_nothing_to_decode():
  empty = np.zeros([0, 7])
  assert decoding.decode_v1([], {}, empty, empty) == {}
  assert (
    decoding.decode_v2([], {}, empty, empty, empty, empty, empty[:, 0]) == {}
  )


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_scores_must_be_finite(value):
  windows, contexts = _data(7, 2)
  scores = np.zeros([len(windows), 11])
  broken = scores.copy()
  broken[1, windows[1].context_start] = value
  with pytest.raises(ValueError, match="infinite or not a number"):
    decoding.decode_v1(windows, contexts, scores, broken)
  start, end, null = scores[:, :2], scores[:, :6], scores[:, 0]
  at = start.astype(int), end.astype(int)
  with pytest.raises(ValueError, match="infinite or not a number"):
    decoding.decode_v2(
      windows, contexts, start, at[0], end, at[1], null + value
    )


_CONTEXT = "On a red  hill."
# On | a | red | _ (white space) | hill | .
_WINDOW = _Window(
  "q", 4, [0, 3, 5, 8, 10, 14], [2, 4, 8, 9, 14, 15], [True] * 5 + [False]
)


def _spans(start, ends, max_answer_length=30, windows=(_WINDOW,), rows=(0,)):
  tokens = decoding.Tokens(windows, {w.question_id: _CONTEXT for w in windows})
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


def test_spans_stay_in_the_context_and_in_order():
  # Position 4 is the first token of the context, 9 the last.
  _, found = _spans([[6, 3, 0]], [[[8, 5, 6, 9, 10, 3]]])
  assert _texts(found) == ["red  hill", "red", "red  hill."]
  np.testing.assert_array_equal(found.end_score, [-8.0, -6.0, -9.0])


def test_only_starts_need_the_most_context():
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
  spans = decoding.Spans(
    np.zeros(c, np.int64),
    np.array(start_chars, np.int64),
    np.array(end_chars, np.int64),
    np.array(scores, np.float64),
    np.zeros(c),
  )
  found = tokens.n_best([spans], n_best_size, [1.25])
  assert list(found) == ["q"] and found["q"].null_odds == 1.25
  return found["q"].n_best


def test_probabilities_of_the_n_best():
  best = _best([0, 5, 3, 10], [2, 8, 4, 14], np.log([2.0, 6.0, 1.0, 4.0]), 3)
  assert [c.text for c in best] == ["red", "hill", "On"]
  np.testing.assert_allclose(
    [c.probability for c in best], [6 / 12, 4 / 12, 2 / 12], rtol=1e-14
  )
  assert (best[0].start_char, best[0].end_char) == (5, 8)
  assert best[0].score == np.log(6.0)


def test_duplicate_texts_keep_the_best_score():
  # "red" twice, once with white space around it.
  best = _best([4, 5, 0], [10, 8, 2], [1.0, 3.0, 2.0])
  assert [(c.text, c.score) for c in best] == [("red", 3.0), ("On", 2.0)]
  best = _best([4, 5], [10, 8], [4.0, 3.0])
  assert best == [answers.Candidate("red", 1.0, 4.0, 0.0, 5, 8)]


def test_ties_keep_the_first_span():
  best = _best([5, 0, 10], [8, 2, 14], [1.0, 1.0, 1.0])
  assert [c.text for c in best] == ["red", "On", "hill"]


@pytest.mark.parametrize("start_chars, end_chars", [([], []), ([8], [9])])
def test_white_space_is_no_candidate(start_chars, end_chars):
  best = _best(start_chars, end_chars, [5.0] * len(start_chars))
  assert best == [answers.Candidate("", 1.0, -1e6, -1e6)]


def test_large_scores_do_not_overflow():
  best = _best([0, 5], [2, 8], [2e4, -2e4])
  assert [c.probability for c in best] == [1.0, 0.0]


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
