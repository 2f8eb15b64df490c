"""Tests of the three files, as they are written and as others write them."""

from __future__ import annotations

import json
import os

import pytest

from tasks.squad import answers, prediction_files

_V2 = {
  "b": answers.QuestionAnswers(
    [
      answers.Candidate("naïve “red”", 0.75, -0.5, -0.25, 3, 14),
      answers.Candidate("red", 0.25, -1.0, -2.0, 10, 13),
    ],
    1.5,
  ),
  "a": answers.QuestionAnswers([answers.Candidate("", 1.0, -1e6, -1e6)], -2.0),
}


def _without_odds(found):
  return {q: answer._replace(null_odds=None) for q, answer in found.items()}


def _load(folder, name):
  return json.loads((folder / name).read_text(encoding="utf-8"))


def test_v2_files(tmp_path):
  folder = tmp_path / "new" / "folder"
  paths = prediction_files.write_predictions(str(folder), _V2, 1.0)
  assert [os.path.basename(path) for path in paths] == [
    "predictions.json",
    "nbest_predictions.json",
    "null_odds.json",
  ]
  assert sorted(os.listdir(folder)) == sorted(map(os.path.basename, paths))
  assert list(_load(folder, "predictions.json").items()) == [
    ("b", ""),
    ("a", ""),
  ]
  assert _load(folder, "nbest_predictions.json")["b"] == [
    {
      "text": "naïve “red”",
      "probability": 0.75,
      "start_log_prob": -0.5,
      "end_log_prob": -0.25,
    },
    {
      "text": "red",
      "probability": 0.25,
      "start_log_prob": -1.0,
      "end_log_prob": -2.0,
    },
  ]
  assert _load(folder, "null_odds.json") == {"b": 1.5, "a": -2.0}
  # No threshold: always an answer, where there is one.
  prediction_files.write_predictions(str(folder), _V2)
  assert _load(folder, "predictions.json") == {"b": "naïve “red”", "a": ""}


def test_v1_files(tmp_path):
  prediction_files.write_predictions(str(tmp_path), _V2)
  prediction_files.write_predictions(str(tmp_path), _without_odds(_V2))
  # The odds of the other run would be taken for this one's.
  assert sorted(os.listdir(tmp_path)) == [
    "nbest_predictions.json",
    "predictions.json",
  ]
  entry = _load(tmp_path, "nbest_predictions.json")["b"][1]
  assert entry == {
    "text": "red",
    "probability": 0.25,
    "start_logit": -1.0,
    "end_logit": -2.0,
  }


@pytest.mark.parametrize("found", [_V2, _without_odds(_V2)])
def test_read_back_without_places(tmp_path, found):
  prediction_files.write_predictions(str(tmp_path), found)
  back = prediction_files.read_answers(str(tmp_path))
  assert list(back) == ["b", "a"]
  for question_id, answer in found.items():
    assert back[question_id] == answer._replace(
      n_best=[c._replace(start_char=None, end_char=None) for c in answer.n_best]
    )
  assert prediction_files.read_predictions(
    str(tmp_path / "predictions.json")
  ) == answers.final_texts(found)


def test_an_ensemble_has_no_scores(tmp_path):
  found = {"q": answers.QuestionAnswers([answers.Candidate("x", 0.5)], 0.25)}
  prediction_files.write_predictions(str(tmp_path), found)
  assert _load(tmp_path, "nbest_predictions.json") == {
    "q": [{"text": "x", "probability": 0.5}]
  }
  assert prediction_files.read_answers(str(tmp_path)) == found


def test_whole_numbers_are_odds_too(tmp_path):
  path = tmp_path / "null_odds.json"
  path.write_text('{"q": 3, "r": -0.5}')
  assert prediction_files.read_null_odds(str(path)) == {"q": 3.0, "r": -0.5}


def test_a_failure_leaves_the_old_files(tmp_path, monkeypatch):
  prediction_files.write_predictions(str(tmp_path), _V2)
  before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
  other = {"b": _V2["b"]}
  nan = {"b": _V2["b"]._replace(null_odds=float("nan"))}
  with pytest.raises(ValueError):
    prediction_files.write_predictions(str(tmp_path), nan)
  with pytest.raises(ValueError, match="1 of 2 questions have null odds"):
    prediction_files.write_predictions(
      str(tmp_path), {"b": _V2["b"], "a": _V2["a"]._replace(null_odds=None)}
    )
  with pytest.raises(ValueError, match="is for SQuAD 2.0"):
    prediction_files.write_predictions(str(tmp_path), _without_odds(other), 0.0)

  def full_disk(*_):
    raise OSError(28, "No space left on device")

  monkeypatch.setattr(prediction_files.os, "replace", full_disk)
  with pytest.raises(OSError, match="No space"):
    prediction_files.write_predictions(str(tmp_path), other)
  assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


_CANDIDATE = {"text": "x", "probability": 0.5}


@pytest.mark.parametrize(
  "reader, text, message",
  [
    ("read_predictions", '{"q":\n "x', r"FILE, line 2: not JSON"),
    ("read_predictions", "", r"FILE, line 1: not JSON"),
    ("read_predictions", "[1, 2]", r"FILE must be a JSON object.*not \[1\.0"),
    ("read_predictions", "{}", r"FILE must be a JSON object"),
    ("read_predictions", '{"q": ["x"]}', r"FILE: question q: .*not \[\"x\"\]"),
    ("read_predictions", '{"q": "x", "q": "y"}', r"FILE: 'q' stands there twi"),
    ("read_predictions", b'{"q": "\xff"}', r"FILE is not UTF-8 text"),
    ("read_null_odds", '{"q": "x"}', r"question q: null odds must be a finite"),
    ("read_null_odds", '{"q": NaN}', r"question q: null odds .*not NaN"),
    ("read_null_odds", '{"q": true}', r"question q: null odds .*not true"),
    ("read_null_odds", '{"q": 1' + 400 * "0" + "}", r"q: .*not Infinity"),
    ("read_nbest", '{"q": []}', r"FILE: question q: .*at least one, not \[\]"),
    ("read_nbest", '{"q": "x"}', r"FILE: question q: .*must be a list"),
    ("read_nbest", '{"q": ["x"]}', r"question q: .*an object with a text"),
    ("read_nbest", '{"q": [{"text": 3}]}', r"question q: .*with a text"),
    ("read_nbest", '{"q": [{"text": "x"}]}', r"from 0 to 1, not null"),
    (
      "read_nbest",
      '{"q": [{"text": "x", "probability": 1.5}]}',
      r"from 0 to 1, not 1.5",
    ),
  ],
)
def test_bad_files(tmp_path, reader, text, message):
  path = tmp_path / "some.json"
  path.write_bytes(text if isinstance(text, bytes) else text.encode())
  with pytest.raises(ValueError, match=message.replace("FILE", "some.json")):
    getattr(prediction_files, reader)(str(path))


def test_files_of_different_runs(tmp_path):
  nbest = tmp_path / "nbest_predictions.json"
  nbest.write_text(json.dumps({"q": [_CANDIDATE], "r": [_CANDIDATE]}))
  (tmp_path / "null_odds.json").write_text('{"q": 1.0, "s": 2.0}')
  with pytest.raises(ValueError, match="different questions, r for one"):
    prediction_files.read_answers(str(tmp_path))
  with pytest.raises(FileNotFoundError):
    prediction_files.read_answers(str(tmp_path / "nowhere"))


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
