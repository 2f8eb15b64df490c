"""Tests of files of predictions: tables and SQuAD's answers."""

from __future__ import annotations

import os

import numpy as np
import pytest

from tasks import common
from tasks.squad import Candidate, QuestionAnswers
from tools.finetuning import split_predictions


def table(*rows):
  ids = tuple(f"e{i}" for i in range(len(rows)))
  return common.ProbabilityTable(ids, ("no", "yes"), np.array(rows))


def answers(probability, odds=None):
  return {
    "q1": QuestionAnswers([Candidate("sun", probability)], odds),
    "q2": QuestionAnswers([Candidate("rain", 0.5)], odds),
  }


def test_write_and_read(tmp_path):
  folder = str(tmp_path / "new")
  path = os.path.join(folder, "dev.probabilities.tsv")
  assert split_predictions.write(folder, "dev", table([0.25, 0.75])) == [path]
  written = split_predictions.write(folder, "test", answers(0.75, 2.0), 1.0)
  names = ["predictions.json", "nbest_predictions.json", "null_odds.json"]
  assert written == [os.path.join(folder, "test", name) for name in names]
  # Other files are ignored.
  os.mkdir(os.path.join(folder, "empty"))
  open(os.path.join(folder, "notes.tsv"), "w").close()
  assert split_predictions.splits(folder) == ["dev", "test"]
  dev = split_predictions.read(folder, "dev")
  np.testing.assert_array_equal(dev.values, [[0.25, 0.75]])
  test = split_predictions.read(folder, "test")
  assert test == answers(0.75, 2.0)
  assert split_predictions.count(dev) == 1
  assert split_predictions.count(test) == 2
  # The odds are above the threshold.
  with open(written[0], encoding="utf-8") as file:
    assert '"q1": ""' in file.read()


def test_averages(tmp_path):
  a, b = str(tmp_path / "a"), str(tmp_path / "b")
  for folder, share in ((a, 0.25), (b, 0.5)):
    split_predictions.write(folder, "dev", table([share, 1 - share], [1, 0]))
    split_predictions.write(folder, "test", answers(share, share * 8))
  dev = split_predictions.average([a, b], "dev")
  np.testing.assert_array_equal(dev.values, [[0.375, 0.625], [1, 0]])
  test = split_predictions.average([a, b], "test")
  assert test["q1"] == QuestionAnswers([Candidate("sun", 0.375)], 3.0)


def test_average_of_different_predictions(tmp_path):
  a, b, c = (str(tmp_path / name) for name in "abc")
  split_predictions.write(a, "dev", table([1, 0]))
  split_predictions.write(b, "dev", table([1, 0], [0, 1]))
  split_predictions.write(c, "dev", answers(0.5))
  with pytest.raises(ValueError, match="b/dev.probabilities.tsv and .*a/dev"):
    split_predictions.average([a, b], "dev")
  with pytest.raises(ValueError, match="others SQuAD's answers: they are of d"):
    split_predictions.average([a, c], "dev")
  with pytest.raises(FileNotFoundError):
    split_predictions.average([a, b], "test")


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
