"""Tests of predicted answers: thresholds, files and ensembles."""

from __future__ import annotations

import itertools
import json
import os

import pytest

from official_albert.tasks.squad import answers

_BEST = [
  answers.Candidate("Rome", 0.75, -0.5, -0.25),
  answers.Candidate("in Rome", 0.25),
]


@pytest.mark.parametrize(
  "threshold, text",
  [
    (None, "Rome"),
    (1.5, "Rome"),  # equal: the original drops the answer
    (1.4999, ""),
    (-3.0, ""),
    (99.0, "Rome"),
  ],
)
def test_threshold(threshold, text):
  assert answers.QuestionAnswers(_BEST, 1.5).text(threshold) == text
  if threshold is not None:
    with pytest.raises(ValueError, match="is for SQuAD 2.0"):
      answers.QuestionAnswers(_BEST).text(threshold)


_V2 = {
  "b": answers.QuestionAnswers(
    [
      answers.Candidate("naïve “red”", 0.75, -0.5, -0.25),
      answers.Candidate("red", 0.25, -1.0, -2.0),
    ],
    1.5,
  ),
  "a": answers.QuestionAnswers([answers.Candidate("", 1.0, -1e6, -1e6)], -2.0),
}
_V1 = {q: answer._replace(null_odds=None) for q, answer in _V2.items()}


def _load(folder, name):
  return json.loads((folder / name).read_text(encoding="utf-8"))


def test_files_of_both_versions(tmp_path):
  folder = tmp_path / "new" / "folder"
  paths = answers.write_predictions(str(folder), _V2, 1.0)
  names = [os.path.basename(path) for path in paths]
  assert names == [
    *("predictions.json", "nbest_predictions.json", "null_odds.json")
  ]
  assert sorted(os.listdir(folder)) == sorted(names)
  assert [*_load(folder, names[0]).items()] == [("b", ""), ("a", "")]
  fields = ("text", "probability", "start_log_prob", "end_log_prob")
  assert _load(folder, names[1])["b"] == [
    dict(zip(fields, candidate)) for candidate in _V2["b"].n_best
  ]
  assert _load(folder, names[2]) == {"b": 1.5, "a": -2.0}
  # SQuAD 1.1 has logits, and no null odds; those of the first call go.
  answers.write_predictions(str(folder), _V1)
  assert sorted(os.listdir(folder)) == sorted(names[:2])
  fields = ("text", "probability", "start_logit", "end_logit")
  expected = dict(zip(fields, ("red", 0.25, -1.0, -2.0)))
  assert _load(folder, names[1])["b"][1] == expected


_ENSEMBLE = {"q": answers.QuestionAnswers([answers.Candidate("x", 0.5)], 0.25)}


@pytest.mark.parametrize("found", [_V2, _V1, _ENSEMBLE])
def test_read_answers(tmp_path, found):
  answers.write_predictions(str(tmp_path), found)
  assert answers.read_answers(str(tmp_path)) == {
    name: answer._replace(
      n_best=[answers.Candidate(c.text, c.probability) for c in answer.n_best]
    )
    for name, answer in found.items()
  }
  texts = {name: answer.text() for name, answer in found.items()}
  assert _load(tmp_path, "predictions.json") == texts


@pytest.mark.parametrize(
  "name, text, message",
  [
    ("nbest_predictions", '{"q":\n "x', r"FILE is not valid JSON .*line 2"),
    ("nbest_predictions", b'{"q": "\xff"}', r"FILE is not valid JSON"),
    ("nbest_predictions", "[" * 10**5, r"FILE is not valid JSON .*recursion"),
    ("nbest_predictions", "{}", "FILE is {}, but must .* at least 1 item"),
    ("nbest_predictions", '{"q": "x"}', r"FILE: 'q' is 'x', but must be .*arr"),
    ("nbest_predictions", '{"q": []}', r"FILE: 'q' is .*at least 1 item"),
    ("nbest_predictions", '{"q": ["x"]}', r"'q.0' is 'x', .* an object"),
    (
      "nbest_predictions",
      '{"q": [{"text": "x", "probability": 1.5}]}',
      r"'q.0.probability' is 1.5, but must be less than or equal",
    ),
    ("null_odds", '{"b": NaN, "a": 1}', r"FILE: 'b' is nan, but must"),
  ],
)
def test_bad_files(tmp_path, name, text, message):
  found = _V2 if name == "null_odds" else _V1
  answers.write_predictions(str(tmp_path), found)
  path = tmp_path / f"{name}.json"
  path.write_bytes(text if isinstance(text, bytes) else text.encode())
  with pytest.raises(ValueError, match=message.replace("FILE", path.name)):
    answers.read_answers(str(tmp_path))


def test_files_of_different_runs(tmp_path):
  nbest = tmp_path / "nbest_predictions.json"
  candidates = [{"text": "x", "probability": 0.5}]
  nbest.write_text(json.dumps({"q": candidates, "r": candidates}))
  (tmp_path / "null_odds.json").write_text('{"q": 1.0, "s": 2.0}')
  with pytest.raises(ValueError, match="has other questions than null_odds"):
    answers.read_answers(str(tmp_path))
  with pytest.raises(FileNotFoundError):
    answers.read_answers(str(tmp_path / "nowhere"))


def _member(null_odds, **probabilities):
  """Returns answers to one question, "q"."""
  n_best = [
    answers.Candidate(t, p, -1.0, -2.0) for t, p in probabilities.items()
  ]
  return {"q": answers.QuestionAnswers(n_best, null_odds)}


_NOTHING = {"q": answers.QuestionAnswers([answers.Candidate("", 1.0)], 3.0)}


@pytest.mark.parametrize(
  "members, probabilities, null_odds",
  [
    (
      [
        _member(1.0, red=0.5, blue=0.25, green=0.125),
        _member(-4.0, blue=0.75, red=0.25),
      ],
      {"blue": 0.5, "red": 0.375, "green": 0.0625},
      -1.5,
    ),
    # One sure member does not outvote the others.
    (
      [_member(None, odd=0.75, usual=0.25), *[_member(None, usual=0.625)] * 3],
      {"usual": 0.53125, "odd": 0.1875},
      None,
    ),
    # The order of one member stays.
    (
      [_member(2.0, zebra=0.4, ant=0.4, bee=0.2)],
      {"zebra": 0.4, "ant": 0.4, "bee": 0.2},
      2.0,
    ),
    # A member without candidates counts as a member.
    (
      [_NOTHING, _member(1.0, red=0.5, blue=0.25)],
      {"red": 0.25, "blue": 0.125},
      2.0,
    ),
    # At most 20 candidates are left.
    (
      [_member(None, **{f"w{i}": 0.01 * i for i in range(23)})],
      {f"w{i}": 0.01 * i for i in range(22, 2, -1)},
      None,
    ),
  ],
)
def test_means_over_members(members, probabilities, null_odds):
  (result,) = answers.average_answers(members).values()
  assert result == answers.QuestionAnswers(
    [answers.Candidate(*pair) for pair in probabilities.items()], null_odds
  )


def test_the_order_of_members_makes_no_difference():
  members = [
    _member(0.1, red=0.1, blue=0.7),
    _member(0.2, green=0.3, red=0.7),
    _member(0.7, blue=0.2, red=0.3, green=0.1),
    _member(0.3, white=0.4, black=0.4),
  ]
  results = [
    answers.average_answers(m) for m in itertools.permutations(members)
  ]
  assert all(result == results[0] for result in results)
  assert results[0]["q"].null_odds == pytest.approx(1.3 / 4, rel=1e-15)


def test_members_of_different_tasks():
  red = _member(1.0, red=0.5)
  with pytest.raises(ValueError, match="members 1 and 3 .* for example p"):
    answers.average_answers([red, red, {**red, "p": red["q"]}])
  with pytest.raises(ValueError, match="question q has null odds from 1 of 2"):
    answers.average_answers([red, _member(None, red=0.5)])
