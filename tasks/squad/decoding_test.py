"""Compares decoding with loops that follow the original step by step."""

from __future__ import annotations

import math

import numpy as np
import pytest

from official_albert import tokenization
from official_albert.tasks.squad import serving
from official_albert.tasks.squad.examples import Window
from official_albert.tasks.squad.metrics import Candidate, QuestionAnswers

_LENGTH = 11


def window(name, context_start, first_token, starts, ends, most=99):
  """Returns the window from `first_token` on, of at most `most` tokens."""
  context = tokenization.EncodedText([0] * len(starts), starts, ends)
  ids = [0] * (context_start + min(len(starts) - first_token, most) + 1)
  return Window(name, context, ids, context_start, first_token)


def data(seed, questions=97):
  """Returns overlapping windows of up to 5 tokens, and contexts."""
  rng = np.random.default_rng(seed)
  windows, contexts = [], {}
  for i in range(questions):
    # Few words, so that texts repeat; and characters of several bytes.
    words = rng.choice(["red", "blé", "日", "🙂"], rng.integers(0, 14))
    spaces = rng.choice([" ", "\u3000 ", "\x1c"], len(words))
    text, starts, ends = "", [], []
    for word, space in zip(words, spaces):
      # Some tokens include the space after them, some nothing else.
      starts.append(len(text) + (len(word) if rng.random() < 0.2 else 0))
      text += str(word) + str(space)
      ends.append(len(text) - (len(space) if rng.random() < 0.8 else 0))
    contexts[f"q{i}"] = text
    for first in range(0, max(len(words) - 5, 0) + 3, 3):
      begin = int(rng.integers(3, 6))
      windows.append(window(f"q{i}", begin, first, starts, ends, 5))
  return windows, contexts


def best_window(windows, name, token):
  """Returns the window with the most context, as _check_is_max_context."""

  def score(w):
    left = token - w.first_token
    right = w.length - 1 - left
    if w.question_id != name or left < 0 or right < 0:
      return -1
    return min(left, right) + 0.01 * w.length

  return max(windows, key=score)


def reference(windows, contexts, pairs, n_best_size, longest):
  """Decodes with the loops of the original.

  Args:
    windows: all.
    contexts: by question.
    pairs: window number -> its (start score, start, end score, end), in order.
    n_best_size: of candidates.
    longest: answer in tokens.
  """
  spans = {name: [] for name in contexts}
  for n, w in enumerate(windows):
    for start_score, start, end_score, end in pairs(n):
      start, end = start - w.context_start, end - w.context_start
      if not 0 <= start <= end < w.length or end - start >= longest:
        continue
      start, end = start + w.first_token, end + w.first_token
      if best_window(windows, w.question_id, start) is not w:
        continue
      text = contexts[w.question_id][
        w.context.starts[start] : w.context.ends[end]
      ]
      spans[w.question_id].append((start_score, end_score, text.strip()))
  result = {}
  for name, found in spans.items():
    best = {}
    for start, end, text in sorted(found, key=lambda s: -s[0] - s[1]):
      if text and text not in best and len(best) < n_best_size:
        best[text] = start, end
    top = next(iter(best.values()), ())
    weights = [math.exp(sum(s) - sum(top)) for s in best.values()]
    result[name] = [
      (text, pytest.approx(weight / sum(weights), rel=1e-12), *scores)
      for (text, scores), weight in zip(best.items(), weights)
    ] or [("", 1.0, None, None)]
  return result


def logits(rng, *shape):
  # Few different values, so that there are ties.
  return rng.integers(-9, 9, shape).astype(np.float32) / 4


@pytest.mark.parametrize("n", [3, 20])
def test_v1_follows_the_original(monkeypatch, n):
  monkeypatch.setattr(serving, "_BLOCK", 13)
  windows, contexts = data(1)
  rng = np.random.default_rng(2)
  start, end = logits(rng, 2, len(windows), _LENGTH)

  def pairs(i):
    w = windows[i]
    inside = range(w.context_start, w.context_start + w.length)
    starts, ends = (
      sorted(inside, key=lambda at: -x[i, at])[:n] for x in (start, end)
    )
    for s in starts:
      for e in ends:
        yield float(start[i, s]), s, float(end[i, e]), e

  scores = {"start_logits": start, "end_logits": end}
  found = serving.decode(windows, [*contexts.values()], scores, n, 4)
  expected = reference(windows, contexts, pairs, n, 4)
  assert list(found) == list(contexts)
  for name, answer in found.items():
    assert answer.n_best == expected[name], name
    assert answer.null_odds is None
  assert any(len(answer.n_best) == n for answer in found.values())
  assert any(answer.text() == "" for answer in found.values())
  # Values outside of the context, in padding and question.
  wide = np.pad([start, end], [(0, 0), (0, 0), (0, 8)], constant_values=99.0)
  for i, w in enumerate(windows):
    wide[:, i, : w.context_start] = 1e3
  scores = dict(zip(scores, wide))
  assert serving.decode(windows, [*contexts.values()], scores, n, 4) == found


def test_v2_follows_the_original():
  windows, contexts = data(5)
  rng = np.random.default_rng(6)
  n, k, m = len(windows), 3, 2
  start, end = logits(rng, n, k), logits(rng, n, k * m)
  # Including positions in the question, the padding and [CLS].
  start_at = rng.integers(0, 99, (n, k)) % _LENGTH
  end_at = rng.integers(0, 99, (n, k * m)) % _LENGTH
  null = rng.normal(size=n).astype(np.float32)

  def pairs(i):
    for s in range(k):
      for e in range(s * m, s * m + m):
        yield float(start[i, s]), start_at[i, s], float(end[i, e]), end_at[i, e]

  scores = {
    "start_top_log_probs": start,
    "start_top_index": start_at,
    "end_top_log_probs": end,
    "end_top_index": end_at,
    "cls_logits": null,
  }
  found = serving.decode(windows, [*contexts.values()], scores, 4, 3)
  expected = reference(windows, contexts, pairs, 4, 3)
  for name, answer in found.items():
    assert answer.n_best == expected[name], name
    own = [x for w, x in zip(windows, null) if w.question_id == name]
    assert answer.null_odds == min(own)


def test_windows_without_context_and_nothing_to_decode():
  masked, at = np.full([1, 2], -1e30, np.float32), np.array([[0, 1]])
  scores = {
    "start_top_log_probs": masked,
    "start_top_index": at,
    "end_top_log_probs": masked,
    "end_top_index": at,
    "cls_logits": np.array([3.0]),
  }
  found = serving.decode([window("q", 2, 0, [], [])], [""], scores)
  assert found["q"] == QuestionAnswers([Candidate("", 1.0)], 3.0)
  assert serving.decode([], [], {k: x[:0] for k, x in scores.items()}) == {}


def spans(text, tokens, scores):
  """Decodes spans of one token each, of a window."""
  starts, ends = zip(*tokens)
  one = window("q", 0, 0, list(starts), list(ends))
  at = np.arange(len(tokens))[None]
  scores = {
    "start_top_log_probs": np.array([scores], np.float64),
    "start_top_index": at,
    "end_top_log_probs": np.zeros([1, len(tokens)]),
    "end_top_index": at,
    "cls_logits": np.zeros(1),
  }
  return serving.decode([one], [text], scores, 3)["q"].n_best


def test_different_texts_in_the_order_of_their_scores():
  # "red" twice, once with white space around it, and white space only.
  text, tokens = "On  red  hill", [(2, 8), (4, 7), (0, 2), (7, 9), (9, 13)]
  best = spans(text, tokens, [1.0, 3.0, 2.0, 9.0, 2.0])
  assert [(c.text, c.start_score) for c in best] == [
    ("red", 3.0),
    ("On", 2.0),  # Of equal scores the first.
    ("hill", 2.0),
  ]
  best = spans(text, tokens[1:3], [2e4, -2e4])
  assert [c.probability for c in best] == [1.0, 0.0]
  assert spans(text, tokens[3:4], [5.0]) == [Candidate("", 1.0)]
  # The pieces of a word are one answer.
  best = spans("Denver is", [(0, 3), (3, 6), (0, 6), (7, 9)], [1, 3, 2, 0])
  assert [(c.text, c.start_score) for c in best] == [("Denver", 3), ("is", 0)]


def test_windows_with_the_most_context_to_the_last_bit():
  # 3 + 0.01 * 119 is less than 4 + 0.01 * 19 in float64, but not in float32.
  places = list(range(130))
  windows = [
    window("q", 3, 0, places, places, 119),
    window("q", 3, 111, places, places),
  ]
  best = serving._best_windows(serving._pack(windows, [2])).numpy()
  assert best[115] == 1
  expected = [best_window(windows, "q", token) for token in range(130)]
  assert [windows[i] for i in best] == expected


@pytest.mark.parametrize(
  "text, token, answer",
  [
    ("by Denver Broncos.", (3, 14), "Denver Broncos"),
    ("by Denver Broncos.", (5, 9), "Denver"),
    ("the Beyonce\u0301's song", (6, 10), "Beyonce\u0301"),
    ("in (1990s)", (5, 8), "1990s"),
    ("a well-known x", (4, 6), "well"),
    ("\u4e2d\u56fd\u5317\u4eac", (2, 3), "\u5317"),
    ("\u4e2d\u56fdABC\u5317", (3, 4), "ABC"),
    ("\uc11c\uc6b8\uc5d0\uc11c", (0, 2), "\uc11c\uc6b8"),
    (f"{'a' * 99} b", (70, 71), "a" * 99),
    ("\ufeffa\x00b", (1, 2), "a"),
    ("\U0001f642sun", (1, 2), "sun"),
    ("x ", (0, 2), "x"),
  ],
)
def test_answers_have_whole_words(text, token, answer):
  (best,) = spans(text, [token], [1.0])
  assert best.text == answer
