"""Tests of tools.ensemble: averages on disk, and members that do not fit."""

from __future__ import annotations

import json
import os
import zipfile

import numpy as np
import pytest

from official_albert.tasks import common, squad
from official_albert.tasks.squad import Candidate, QuestionAnswers
from official_albert.tools.testing import many_commands, toy_data

DEV, TEST = (
  f"{split}{common.PROBABILITIES_SUFFIX}" for split in ("dev", "test")
)


def write(folder, values, name=DEV, labels=("no", "yes"), id_prefix="e"):
  folder.mkdir(exist_ok=True, parents=True)
  ids = tuple(f"{id_prefix}{i}" for i in range(len(values)))
  table = common.ProbabilityTable(ids, labels, np.array(values))
  common.write_probabilities(str(folder / name), table)


def run(*lines):
  return many_commands.run("ensemble", lines)


def test_each_split_is_averaged(tmp_path):
  for name, share in (("s1", 0.25), ("s2", 0.5), ("s3", 0.0)):
    write(tmp_path / name, [[share, 1 - share], [0.75, 0.25]])
    write(tmp_path / name, [share * 8, -1.5], TEST, labels=())
  output = tmp_path / "new" / "all"
  arguments = (f"--members={tmp_path}/s?", f"--output_dir={output}")
  first, second = run(arguments, arguments)
  assert (first.code, first.err) == (0, "")
  assert f"wrote {output / DEV} (2 examples)\n" in first.out
  assert sorted(os.listdir(output)) == [DEV, TEST]
  assert (output / DEV).read_text() == (
    "id\tprediction\tno\tyes\ne0\tyes\t0.25\t0.75\ne1\tno\t0.75\t0.25\n"
  )
  assert (output / TEST).read_text() == "id\tprediction\ne0\t2\ne1\t-1.5\n"
  assert second == first  # Replaces the files of the first.


def test_a_wrong_command_is_one_sentence_and_writes_nothing(tmp_path):
  a, b, output, bare = (tmp_path / name for name in ("a", "b", "out", "bare"))
  write(a, [[1, 0]])
  write(b, [[1, 0], [0, 1]])
  member = tmp_path / "run"
  write(member / "predictions", [[1, 0]])
  bare.mkdir()
  answers = {"q": QuestionAnswers([Candidate("sea", 1.0)], None)}
  squad.write_predictions(str(tmp_path / "squad" / "dev"), answers)
  toy_data.write_glue(str(tmp_path / "glue"), ["rte"])
  task, data_dir = "--task=rte", f"--data_dir={tmp_path}/glue"
  cases = (
    (f"{a},{b}", output, f"dev of {b} and dev of {a} cannot be averaged"),
    (
      f"{a},{tmp_path}/squad",
      output,
      f"dev of {tmp_path}/squad are probabilities, others",
    ),
    # Refused before the predictions are read.
    (f"{a},{b}", f"{a / DEV}/out", "is a file, and so"),
    (f"{a}", output, f"--members are {a}: give two or more"),
    (f"{a},{b}/../a", output, "predictions, each of them once"),
    (f"{a},{member},{member}/predictions", output, "each of them once"),
    (f"{a},{tmp_path / 'c'}", output, "--members: there is no folder '"),
    (f"{a},{b}", f"{b}/../a", f"--output_dir {b}/../a is a member"),
    (f"{a},{member}", f"{member}/predictions", "a member, whose predictions"),
    (f"{bare},{tmp_path}/glue", output, "bare has predictions of no split"),
    (f"{a},{bare}", output, "bare has predictions of no split"),
    (f"{a},{member}", output, "data of --task=rte", task, data_dir),
    (f"{a},{member}", output, "--task=rte needs --data_dir", task),
  )
  many_commands.check_refusals(
    "ensemble",
    [
      ([f"--members={members}", f"--output_dir={target}", *more], named)
      for members, target, named, *more in cases
    ],
  )
  assert not output.exists() and os.listdir(a) == [DEV]


def test_members_and_their_average_are_measured(tmp_path):
  """RTE's dev labels alternate; each member is wrong in other rows."""
  toy_data.write_glue(str(tmp_path), ["rte"])
  right = np.eye(2)[[0, 1] * 3 + [0]]
  for name, wrong in (("m1", (0, 1, 2)), ("m2", (2, 3))):
    values = right.copy()
    values[[*wrong]] = 0.625 - 0.25 * right[[*wrong]]
    for file in (DEV, TEST):
      write(tmp_path / name, values, file, ("entailment", "not_entailment"), "")
  (done,) = run(
    [
      *(f"--members={tmp_path}/m?", "--task=rte", f"--data_dir={tmp_path}"),
      f"--output_dir={tmp_path}/all",
    ]
  )
  assert (done.code, done.err) == (0, "")
  assert f"dev, {tmp_path}/m1: accuracy 0.5714\n" in done.out
  results = json.loads((tmp_path / "all" / "eval_results.json").read_text())
  assert results == {"dev": {"accuracy": pytest.approx(6 / 7)}}
  with zipfile.ZipFile(tmp_path / "all/submission/submission.zip") as packed:
    assert packed.read("RTE.tsv").startswith(b"index\tprediction\n0\tent")


def test_answers_of_squad(tmp_path):
  """The threshold that is best for dev is used for test, too."""
  for split, seed in (("dev", 1), ("test", 2)):
    path = str(tmp_path / f"{split}-v2.0.json")
    toy_data.write_squad(path, 3, impossible=True, seed=seed)
  dev = squad.read_examples(str(tmp_path / "dev-v2.0.json"))
  texts = {e.question_id: e.answers[0][0] for e in dev if e.answers}
  # The last question has no answer; each member alone has one text wrong.
  for name, wrong, odds in (("m1", "q0", 1.0), ("m2", "q1", 3.0)):
    answers = {}
    for question in ("q0", "q1", "q2"):
      best = Candidate(texts.get(question, "sea"), 0.5)
      n_best = [best, Candidate("the", 0.25)]
      if question == wrong:
        n_best = [Candidate("the", 0.375), Candidate(texts[wrong], 0.25)]
      total = odds + (4 if question == "q2" else 0)
      answers[question] = QuestionAnswers(n_best, total)
    for split in ("dev", "test"):
      folder = tmp_path / name / "predictions" / split
      squad.write_predictions(str(folder), answers)
  measured, given = run(
    [
      *(f"--members={tmp_path}/m?", f"--output_dir={tmp_path}/both"),
      *("--task=squad_v2", f"--data_dir={tmp_path}"),
    ],
    [
      *(f"--members={tmp_path}/m?", f"--output_dir={tmp_path}/given"),
      "--null_score_diff_threshold=1.5",
    ],
  )
  assert (measured.code, measured.err, given.code) == (0, "", 0)
  assert f"dev, {tmp_path}/m1: exact 33.33" in measured.out
  results = json.loads((tmp_path / "both" / "eval_results.json").read_text())
  # The odds of all questions are above 0.
  assert results["dev"]["null_score_diff_threshold"] == 0
  assert results["dev"]["exact"] == pytest.approx(100 / 3)
  assert results["dev"]["best_exact"] == 100
  assert results["dev"]["best_null_score_diff_threshold"] == 2
  assert results["test"]["null_score_diff_threshold"] == 2
  assert results["test"]["exact"] < 100
  none = dict.fromkeys(answers, "")
  best = {**texts, "q2": ""}
  expected = {
    "both": {"dev": none, "test": best},
    "given": {"dev": none, "test": none},
  }
  for name, splits in expected.items():
    for split, predictions in splits.items():
      path = tmp_path / name / split / "predictions.json"
      assert json.loads(path.read_text(encoding="utf-8")) == predictions
  odds = json.loads((tmp_path / "both/dev/null_odds.json").read_text())
  assert odds == {"q0": 2, "q1": 2, "q2": 6}
