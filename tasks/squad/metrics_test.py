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
_PREDICTIONS_V1 = {
  "tower": " Eiffel  tower!",  # exact
  "year": "year 1999",  # 2/3 with the second answer, 1/2 with the first
  "colours": "Blue, green",  # precision 1, recall 2/3: 0.8
  "nothing": "a",  # equal, but no words to share
  "twice": "York York York",  # 2 in common: precision 2/3, recall 1/2: 4/7
}

_GOLD = {
  "tower": ["the Eiffel Tower"],
  "year": ["in 1999", "1999"],
  "capital": [],
  "silence": [],
  "article": ["a"],  # normalizes to nothing, and counts as an answer
  "colours": ["red green blue"],
  "city": [],
}
_PREDICTIONS = {
  "tower": "Eiffel tower!",
  "year": "year 1999",
  "capital": "Paris",
  "silence": "",
  "article": "",
  "colours": "blue green",
  "city": "Rome",
  "not asked": "anything",
}


_ODDS = dict(zip(_PREDICTIONS, (-3.0, -1.0, 5.0, 0.5, 4.0, 1.5, -2.0, -9.0)))


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
  with pytest.raises(ValueError, match="capital has no gold answer.*squad_v2"):
    metrics.evaluate_v1(_GOLD, _PREDICTIONS)
  values = metrics.evaluate_v1(_GOLD_V1, _PREDICTIONS_V1)
  assert list(values) == ["exact_match", "f1"]
  assert values["exact_match"] == pytest.approx(100 * 2 / 5)
  assert values["f1"] == pytest.approx(
    100 * (1 + 2 / 3 + 0.8 + 0 + 4 / 7) / 5, rel=1e-12
  )
  with pytest.raises(ValueError, match="1 of 5 .* prediction .*example year"):
    fewer = {q: x for q, x in _PREDICTIONS_V1.items() if q != "year"}
    metrics.evaluate_v1(_GOLD_V1, fewer)


def test_v2():
  values = metrics.evaluate_v2(_GOLD, _PREDICTIONS)
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
    },
    rel=1e-12,
  )


def test_v2_best_thresholds():
  # 3 are correct without any answers. Then, in the order of the odds:
  # exact 3, tower 4, city 3, year 3, silence 3, colours 3, article 4, capital 3
  # f1    3, tower 4, city 3, 3 2/3, 3 2/3, 4.4667, article 5.4667, 4.4667
  values = metrics.evaluate_v2(_GOLD, _PREDICTIONS, _ODDS)
  assert values["best_exact"] == pytest.approx(100 * 4 / 7)
  assert values["best_exact_thresh"] == -3.0
  assert values["best_f1"] == pytest.approx(100 * (5 + 7 / 15) / 7)
  assert values["best_f1_thresh"] == 4.0
  for name in ("exact", "f1"):
    threshold = values[f"best_{name}_thresh"]
    applied = metrics.evaluate_v2(_GOLD, _PREDICTIONS, _ODDS, threshold)
    assert applied[name] == pytest.approx(values[f"best_{name}"], rel=1e-12)
  # Deviation: odds are logits; without a threshold no answer is taken back.
  assert values["f1"] == metrics.evaluate_v2(_GOLD, _PREDICTIONS)["f1"]


def test_v2_with_one_kind_of_questions():
  values = metrics.evaluate_v2({"q": []}, {"q": "x"}, {"q": 0.25})
  assert "HasAns_total" not in values and values["NoAns_total"] == 1
  # No answer is best, which the script represents by 0.
  assert (values["best_f1"], values["best_f1_thresh"]) == (100.0, 0.0)


def test_equal_odds_keep_the_order_of_the_file():
  gold = {"right": ["x"], "none": []}
  predictions = {"right": "x", "none": "y"}
  first = metrics.evaluate_v2(gold, predictions, {"right": 1.0, "none": 1.0})
  last = metrics.evaluate_v2(gold, predictions, {"none": 1.0, "right": 1.0})
  assert (first["best_exact"], last["best_exact"]) == (100.0, 50.0)
  assert (first["best_exact_thresh"], last["best_exact_thresh"]) == (1.0, 0.0)


def test_the_threshold_for_other_data():
  def chosen(gold, *odds):
    """Returns it for answers "x" with these odds, and the F1 with it."""
    names = [f"q{i}" for i in range(len(odds))]
    gold = dict(zip(names, gold))
    found = {
      name: QuestionAnswers([Candidate("x", 1.0)], value)
      for name, value in zip(names, odds)
    }
    values = metrics.score_answers(gold, found)
    threshold = values["best_null_score_diff_threshold"]
    applied = metrics.score_answers(gold, found, threshold)
    assert "best_null_score_diff_threshold" not in applied
    assert applied["f1"] == values["best_f1"]
    return threshold

  assert chosen([["x"], []], -3.0, 1.5) == -3
  assert chosen([["x"], []], 0.0, 1.5) == 0
  # No answer is best, which the official program writes as 0.
  assert chosen([[]], -2.0) < -2
  assert chosen([[], []], 3.0, 2.0) == 0


def test_v2_missing_predictions_and_odds():
  with pytest.raises(
    ValueError, match=r"5 of 7 .* prediction .*example year\)"
  ):
    metrics.evaluate_v2(_GOLD, {"tower": "x", "city": ""})
  with pytest.raises(ValueError, match="6 of 7 questions have no null odds"):
    metrics.evaluate_v2(_GOLD, _PREDICTIONS, {"tower": 1.0})


def test_scripts_without_spaces_are_compared_by_characters():
  gold = {"a": ["1990年的北京大学。"], "b": ["東京タワー"], "c": ["New York"]}
  predictions = {"a": "北京大学", "b": "「東京タワー」", "c": "new york!"}
  # "1990" is one of seven segments, of which four are in the longest run.
  values = metrics.evaluate_v1(gold, predictions)
  assert values == {
    "exact_match": pytest.approx(200 / 3),
    "f1": pytest.approx(100 * (2 * 4 / (4 + 7) + 2) / 3),
    "by_characters": 1.0,
  }
  second = metrics.evaluate_v2(gold, predictions)
  assert second["f1"] == pytest.approx(values["f1"])
  # Not a bag of characters: only a run counts.
  swapped = metrics.evaluate_v1({"a": ["北京大"]}, {"a": "大京北"})
  assert swapped["f1"] == pytest.approx(100 / 3)
  # If most answers are of scripts with spaces, words are compared.
  gold = {
    "a": ["中国"],
    "b": ["the 1"],
    "c": ["of"],
    "d": ["한국"],
    "e": ["。"],
  }
  values = metrics.evaluate_v1(gold, {**dict.fromkeys(gold, ""), "a": "中"})
  assert values == {"exact_match": 0, "f1": 0}


def test_no_questions_have_no_metric():
  for compute in (metrics.evaluate_v1, metrics.evaluate_v2):
    with pytest.raises(ValueError, match="there are no questions"):
      compute({}, {})


_BEST = [
  Candidate("naïve “red”", 0.75, -0.5, -0.25),
  Candidate("red", 0.25, -1.0, -2.0),
]


@pytest.mark.parametrize(
  "threshold, text",
  [
    (None, "red"),
    (1.5, "red"),  # equal: the original drops the answer
    (1.4999, ""),
    (99.0, "red"),
  ],
)
def test_threshold(threshold, text):
  assert QuestionAnswers(_BEST[1:], 1.5).text(threshold) == text


def test_files_of_both_versions(tmp_path):
  def load(name):
    return json.loads((tmp_path / "new" / name).read_text(encoding="utf-8"))

  nothing = QuestionAnswers([Candidate("", 1.0)], -2.0)
  answers = {"b": QuestionAnswers(_BEST, 1.5), "a": nothing}
  paths = metrics.write_predictions(str(tmp_path / "new"), answers, 1.0)
  names = [os.path.basename(path) for path in paths]
  assert names == [
    *("predictions.json", "nbest_predictions.json", "null_odds.json")
  ]
  assert [*load(names[0]).items()] == [("b", ""), ("a", "")]
  fields = ("text", "probability", "start_log_prob", "end_log_prob")
  assert load(names[1])["b"] == [dict(zip(fields, x)) for x in _BEST]
  assert load(names[2]) == {"b": 1.5, "a": -2.0}
  # SQuAD 1.1 has logits, and no null odds.
  answers = {"b": QuestionAnswers(_BEST)}
  paths = metrics.write_predictions(str(tmp_path / "new"), answers)
  assert [os.path.basename(path) for path in paths] == names[:2]
  fields = ("text", "probability", "start_logit", "end_logit")
  assert load(names[1])["b"][1] == dict(zip(fields, _BEST[1]))
