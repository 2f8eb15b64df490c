"""Tests of ensembles by hand."""

from __future__ import annotations

import itertools

import pytest

from tasks.squad import answers, ensemble, prediction_files


def _member(null_odds, **probabilities):
  """One question `q` with texts and their probabilities."""
  n_best = [
    answers.Candidate(t, p, -1.0, -2.0) for t, p in probabilities.items()
  ]
  return {"q": answers.QuestionAnswers(n_best, null_odds)}


def _pairs(result):
  return [(c.text, c.probability) for c in result["q"].n_best]


def test_means_of_probabilities_and_odds():
  result = ensemble.average_answers(
    [
      _member(1.0, red=0.5, blue=0.25, green=0.125),
      _member(-4.0, blue=0.75, red=0.25),
    ]
  )
  assert _pairs(result) == [("blue", 0.5), ("red", 0.375), ("green", 0.0625)]
  assert result["q"].null_odds == -1.5
  assert result["q"].n_best[0] == answers.Candidate("blue", 0.5)


def test_one_sure_member_does_not_outvote_the_others():
  result = ensemble.average_answers(
    [
      _member(None, odd=0.9, usual=0.1),
      _member(None, usual=0.6),
      _member(None, usual=0.6),
    ]
  )
  assert result["q"].text() == "usual"
  assert dict(_pairs(result)) == pytest.approx({"usual": 1.3 / 3, "odd": 0.3})
  assert result["q"].null_odds is None


def test_the_order_of_members_makes_no_difference():
  members = [
    _member(0.1, red=0.1, blue=0.7),
    _member(0.2, green=0.3, red=0.7),
    _member(0.7, blue=0.2, red=0.3, green=0.1),
    _member(0.3, white=0.4, black=0.4),
  ]
  results = [
    ensemble.average_answers(m) for m in itertools.permutations(members)
  ]
  assert all(result == results[0] for result in results)
  assert results[0]["q"].null_odds == pytest.approx(1.3 / 4, rel=1e-15)


def test_one_member_is_itself_without_scores():
  member = _member(2.0, zebra=0.4, ant=0.4, bee=0.2)
  assert _pairs(ensemble.average_answers([member])) == [
    ("zebra", 0.4),
    ("ant", 0.4),
    ("bee", 0.2),
  ]
  assert _pairs(ensemble.average_answers([member], 1)) == [("zebra", 0.4)]


def test_a_member_without_candidates_counts_as_a_member():
  nothing = {"q": answers.QuestionAnswers([answers.Candidate("", 1.0)], 3.0)}
  result = ensemble.average_answers([nothing, _member(1.0, red=0.5, blue=0.25)])
  assert _pairs(result) == [("red", 0.25), ("blue", 0.125)]
  assert result["q"].null_odds == 2.0
  assert _pairs(ensemble.average_answers([nothing, nothing])) == [("", 1.0)]


def test_a_text_that_stands_twice_counts_once():
  n_best = [answers.Candidate("red", p) for p in (0.5, 0.25)]
  twice = {"q": answers.QuestionAnswers(n_best)}
  assert _pairs(ensemble.average_answers([twice, twice])) == [("red", 0.5)]


def test_folders(tmp_path):
  members = [_member(0.5, red=0.5), _member(1.0, blue=0.75, red=0.125)]
  folders = [str(tmp_path / name) for name in ("first", "second")]
  for folder, member in zip(folders, members):
    prediction_files.write_predictions(folder, member)
  result = ensemble.average_folders(folders)
  assert result == ensemble.average_answers(members)
  out = str(tmp_path / "together")
  prediction_files.write_predictions(out, result, 0.75)
  assert prediction_files.read_answers(out) == result
  # The odds are at the threshold, 0.75.
  assert prediction_files.read_predictions(f"{out}/predictions.json") == {
    "q": "blue"
  }


def test_members_that_do_not_fit():
  with pytest.raises(ValueError, match="at least one model"):
    ensemble.average_answers([])
  red = _member(1.0, red=0.5)
  with pytest.raises(ValueError, match="members 1 and 3 .* p for one"):
    ensemble.average_answers([red, red, {**red, "p": red["q"]}])
  with pytest.raises(ValueError, match="question q has null odds from 1 of 2"):
    ensemble.average_answers([red, _member(None, red=0.5)])


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
