"""Compares the official metrics with values computed by hand; tests files."""

from __future__ import annotations

import json
import os

import pytest

from official_albert.tasks.squad import metrics
from official_albert.tasks.squad.metrics import Candidate, QuestionAnswers

_GOLD_V1 = {
  "tower": ["the Eiffel Tower"],
  "year": ["in 1999", "1999"],
  "colours": ["red green blue"],
  "nothing": ["the", "an"],
  "twice": ["New York New York"],
}
_TEXTS_V1 = (
  " Eiffel  tower!",  # exact
  "year 1999",  # 2/3 with the second answer, 1/2 with the first
  "Blue, green",  # precision 1, recall 2/3: 0.8
  "a",  # equal, but no words to share
  "York York York",  # 2 in common: precision 2/3, recall 1/2: 4/7
)
_GOLD = {
  "tower": ["the Eiffel Tower"],
  "year": ["in 1999", "1999"],
  "capital": [],
  "silence": [],
  "article": ["a"],  # normalizes to nothing, and counts as an answer
  "colours": ["red green blue"],
  "city": [],
}
_TEXTS = ("Eiffel tower!", "year 1999", "Paris", "", "", "blue green", "Rome")
_ODDS = (-3.0, -1.0, 5.0, 0.5, 4.0, 1.5, -2.0)


def score(gold, texts, odds=None, threshold=None):
  """Returns the metrics of answers in the order of the questions."""
  found = {
    question: QuestionAnswers([Candidate(text, 1.0)], value)
    for question, text, value in zip(gold, texts, odds or [None] * len(gold))
  }
  return metrics.score_answers(gold, found, threshold)


@pytest.mark.parametrize(
  "text, normal",
  [
    ("The  Cat, an\tanimal: a beast!", "cat animal beast"),
    ("U.S.A.", "usa"),
    # Punctuation is removed first, so that this "a" is not an article.
    ("a-b the-", "ab"),
    ("«The» naïve", "« » naïve"),
    ("Theatre", "theatre"),
    ("a the an", ""),
  ],
)
def test_normalization(text, normal):
  assert metrics.normalize_answer(text) == normal


def test_v1():
  assert score(_GOLD_V1, _TEXTS_V1) == {
    "exact_match": pytest.approx(100 * 2 / 5),
    "f1": pytest.approx(100 * (1 + 2 / 3 + 0.8 + 0 + 4 / 7) / 5, rel=1e-12),
  }


def test_v2():
  # 3 are correct without any answers. Then, in the order of the odds:
  # exact 3, tower 4, city 3, year 3, silence 3, colours 3, article 4, capital 3
  # f1    3, tower 4, city 3, 3 2/3, 3 2/3, 4.4667, article 5.4667, 4.4667
  values = score(_GOLD, _TEXTS, _ODDS, 9.0)
  assert values == pytest.approx(
    {
      "exact": 100 * 3 / 7,
      "f1": 100 * (1 + 2 / 3 + 1 + 1 + 0.8) / 7,
      "total": 7,
      "HasAns_exact": 50.0,
      "HasAns_f1": 100 * (1 + 2 / 3 + 1 + 0.8) / 4,
      "HasAns_total": 4,
      "NoAns_exact": 100 / 3,
      "NoAns_f1": 100 / 3,
      "NoAns_total": 3,
      "best_exact": 100 * 4 / 7,
      "best_exact_thresh": -3.0,
      "best_f1": 100 * (5 + 7 / 15) / 7,
      "best_f1_thresh": 4.0,
      "null_score_diff_threshold": 9.0,
    },
    rel=1e-12,
  )
  for name in ("exact", "f1"):
    applied = score(_GOLD, _TEXTS, _ODDS, values[f"best_{name}_thresh"])
    assert applied[name] == pytest.approx(values[f"best_{name}"], rel=1e-12)


def test_equal_odds_keep_the_order_of_the_answers():
  for gold, texts, exact, threshold in (
    ({"right": ["x"], "none": []}, "xy", 100, 1),
    ({"none": [], "right": ["x"]}, "yx", 50, 0),
  ):
    values = score(gold, texts, [1.0, 1.0])
    found = values["best_exact"], values["best_exact_thresh"]
    assert found == (exact, threshold)


def test_the_threshold_for_other_data():
  def chosen(gold, *odds):
    """Returns it for answers "x" with these odds, and applies it."""
    gold = {str(i): texts for i, texts in enumerate(gold)}
    values = score(gold, "xx", odds)
    threshold = values["best_null_score_diff_threshold"]
    applied = score(gold, "xx", odds, threshold)
    assert "best_null_score_diff_threshold" not in applied
    assert applied["f1"] == values["best_f1"]
    return threshold

  assert chosen([["x"], []], -3.0, 1.5) == -3
  assert chosen([["x"], []], 0.0, 1.5) == 0
  # No answer is best, which the official program writes as 0.
  assert chosen([[]], -2.0) < -2 and chosen([[]], 0.0) < 0
  assert chosen([[], []], 3.0, 2.0) == 0


def test_scripts_without_spaces_are_compared_by_characters():
  gold = {"a": ["1990年的北京大学。"], "b": ["東京タワー"], "c": ["New York"]}
  texts = "北京大学", "「東京タワー」", "new york!"
  # "1990" is one of seven segments, of which four are in the longest run.
  values = score(gold, texts)
  assert values == {
    "exact_match": pytest.approx(200 / 3),
    "f1": pytest.approx(100 * (2 * 4 / (4 + 7) + 2) / 3),
    "by_characters": 1.0,
  }
  second = score(gold, texts, [0.0] * 3)
  assert second["f1"] == pytest.approx(values["f1"])
  # Not a bag of characters: only a run counts.
  swapped = score({"a": ["北京大"]}, ["大京北"])
  assert swapped["f1"] == pytest.approx(100 / 3)
  # If most answers are of scripts with spaces, words are compared.
  golds = (["中国"], ["the 1"], ["of"], ["한국"], ["。"])
  values = score(dict(zip("abcde", golds)), ["中", *[""] * 4])
  assert values == {"exact_match": 0, "f1": 0}


_BEST = [
  Candidate("naïve “red”", 0.75, -0.5, -0.25),
  Candidate("red", 0.25, -1.0, -2.0),
]


def test_files_of_both_versions(tmp_path):
  def load(name):
    return json.loads((tmp_path / "new" / name).read_text(encoding="utf-8"))

  nothing = QuestionAnswers([Candidate("", 1.0)], -2.0)
  answers = {"b": QuestionAnswers(_BEST, 1.5), "a": nothing}
  # Of an equal threshold, the original drops the answer.
  for threshold, text in ((1.4999, ""), (1.5, _BEST[0].text)):
    paths = metrics.write_predictions(str(tmp_path / "new"), answers, threshold)
    names = [os.path.basename(path) for path in paths]
    assert names == [
      *("predictions.json", "nbest_predictions.json", "null_odds.json")
    ]
    assert [*load(names[0]).items()] == [("b", text), ("a", "")]
  fields = ("text", "probability", "start_log_prob", "end_log_prob")
  assert load(names[1])["b"] == [dict(zip(fields, x)) for x in _BEST]
  assert load(names[2]) == {"b": 1.5, "a": -2.0}
  # SQuAD 1.1 has logits, and no null odds.
  answers = {"b": QuestionAnswers(_BEST)}
  paths = metrics.write_predictions(str(tmp_path / "new"), answers)
  assert [os.path.basename(path) for path in paths] == names[:2]
  assert load(names[0]) == {"b": _BEST[0].text}
  fields = ("text", "probability", "start_logit", "end_logit")
  assert load(names[1])["b"][1] == dict(zip(fields, _BEST[1]))
