"""Tests of the decision between an answer and none."""

from __future__ import annotations

import pytest

from tasks.squad import answers

_BEST = [
  answers.Candidate("Rome", 0.75, -0.5, -0.25, 3, 7),
  answers.Candidate("in Rome", 0.25),
]


def test_score_is_the_sum_or_unknown():
  assert _BEST[0].score == -0.75
  assert _BEST[1].score is None


@pytest.mark.parametrize(
  "threshold, text",
  [
    (None, "Rome"),
    (1.5, "Rome"),  # the boundary, which the original takes back
    (1.4999, ""),
    (-3.0, ""),
    (99.0, "Rome"),
  ],
)
def test_threshold(threshold, text):
  assert answers.QuestionAnswers(_BEST, 1.5).text(threshold) == text


def test_a_threshold_needs_null_odds():
  assert answers.QuestionAnswers(_BEST).text() == "Rome"
  with pytest.raises(ValueError, match="is for SQuAD 2.0"):
    answers.QuestionAnswers(_BEST).text(0.0)


def test_final_texts_keep_the_order():
  found = {
    "b": answers.QuestionAnswers(_BEST, 0.25),
    "a": answers.QuestionAnswers(_BEST[1:], -0.25),
  }
  assert list(answers.final_texts(found, 0.0).items()) == [
    ("b", ""),
    ("a", "in Rome"),
  ]


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
