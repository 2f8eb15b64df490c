"""Tests of the program: averages on disk, and members that don't fit."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import zipfile

import numpy as np
import pytest

from tasks import common, squad
from tasks.squad import Candidate, QuestionAnswers
from tools import ensemble
from tools.testing import many_commands, toy_data

ROOT = pathlib.Path(__file__).parents[1]
DEV, TEST = (
  f"{split}{common.PROBABILITIES_SUFFIX}" for split in ("dev", "test")
)


def write(folder, values, name=DEV, labels=("no", "yes")):
  folder.mkdir(exist_ok=True)
  ids = tuple(f"e{i}" for i in range(len(values)))
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
  assert second == first  # Over the files of the first.


def test_a_wrong_command_is_one_sentence_and_writes_nothing(tmp_path):
  write(tmp_path / "a", [[1, 0]])
  write(tmp_path / "b", [[1, 0], [0, 1]])
  (tmp_path / "run" / "predictions").mkdir(parents=True)
  write(tmp_path / "run" / "predictions", [[1, 0]])
  (tmp_path / "bare").mkdir()
  toy_data.write_glue(str(tmp_path / "glue"), ["rte"])
  a, b, output = (tmp_path / name for name in ("a", "b", "out"))
  run_ = tmp_path / "run"
  cases = (
    (f"{a},{b}", output, f"{b / DEV} and {a / DEV} cannot be averaged: one ha"),
    (f"{a}", output, "--members names 1 folder(s): an ensemble has two"),
    (f"{a},{tmp_path / 'c'}", output, "--members: there is no folder '"),
    (f"{a},{b}", f"{b}/../a", f"--output_dir {b}/../a is a member, whose pr"),
    (f"{a},{run_}", f"{run_}/predictions", "is a member, whose predictions"),
    (f"{tmp_path}/bare,{tmp_path}/glue", output, "no member has any predict"),
    (f"{a},{tmp_path}/bare", output, "bare has no predictions of dev, but"),
  )
  task = ["--task=rte", f"--data_dir={tmp_path}/glue"]
  results = run(
    *[[f"--members={m}", f"--output_dir={target}"] for m, target, _ in cases],
    [f"--members={a},{run_}", f"--output_dir={output}", *task],
    [f"--members={a},{run_}", f"--output_dir={output}", task[0]],
  )
  messages = [message for *_, message in cases]
  messages += ["have the labels no, yes, but the task has entailment", "needs "]
  for result, message in zip(results, messages):
    assert result.code == 1
    assert result.err.count("\n") == 1 and message in result.err
  assert not output.exists() and os.listdir(a) == [DEV]


def test_members_of_glue_are_measured_and_submitted(tmp_path):
  """Two models of which each is wrong elsewhere are right together."""
  toy_data.write_glue(str(tmp_path), ["rte"])
  labels = ("entailment", "not_entailment")
  # Labels are the two in turn, seven times. Each is sure where it is right,
  # and unsure in one row where it is not.
  right = np.eye(2)[[0, 1] * 3 + [0]]
  for name, row in (("m1", 2), ("m2", 5)):
    said = right.copy()
    said[row] = 0.375 + 0.25 * said[row][::-1]
    for file in (DEV, TEST):
      folder = tmp_path / name / "predictions"
      folder.mkdir(parents=True, exist_ok=True)
      ids = tuple(str(i) for i in range(7))
      common.write_probabilities(
        str(folder / file),
        common.ProbabilityTable(ids, labels, said),
      )
  output = tmp_path / "both"
  (result,) = run(
    [
      f"--members={tmp_path}/m1,{tmp_path}/m2/predictions",
      f"--output_dir={output}",
      "--task=rte",
      f"--data_dir={tmp_path}",
    ]
  )
  assert (result.code, result.err) == (0, "")
  assert f"dev, {tmp_path}/m1: accuracy 0.8571" in result.out
  assert "dev, ensemble: accuracy 1\n" in result.out
  results = json.loads((output / "eval_results.json").read_text())
  assert results == {"dev": {"accuracy": 1.0}}
  with zipfile.ZipFile(output / "submission" / "submission.zip") as packed:
    lines = packed.read("RTE.tsv").decode().splitlines()
  assert lines[:3] == [
    "index\tprediction",
    f"0\t{labels[0]}",
    f"1\t{labels[1]}",
  ]


def test_answers_of_squad(tmp_path):
  """The threshold that is best for dev decides in test, too."""
  for split, seed in (("dev", 1), ("test", 2)):
    toy_data.write_squad(
      str(tmp_path / f"{split}-v2.0.json"), 3, impossible=True, seed=seed
    )
  dev = squad.read_examples(str(tmp_path / "dev-v2.0.json"))
  texts = {e.question_id: e.answers[0][0] for e in dev if e.answers}
  # The last question has no answer; each member alone has one text wrong.
  for name, wrong, odds in (("m1", "q0", 1.0), ("m2", "q1", 3.0)):
    said = {
      e.question_id: QuestionAnswers(
        [
          Candidate(texts.get(e.question_id, "sea"), 0.5),
          Candidate("the", 0.25),
        ],
        odds + (4 if e.question_id == "q2" else 0),
      )
      for e in dev
    }
    n_best = [Candidate("the", 0.375), Candidate(texts[wrong], 0.25)]
    said[wrong] = QuestionAnswers(n_best, odds)
    for split in ("dev", "test"):
      folder = tmp_path / name / "predictions" / split
      squad.write_predictions(str(folder), said)
  output = tmp_path / "both"
  scored = ["--task=squad_v2", f"--data_dir={tmp_path}"]
  members = f"--members={tmp_path}/m?"
  measured, given = run(
    [members, f"--output_dir={output}", *scored],
    [
      members,
      f"--output_dir={tmp_path}/given",
      "--null_score_diff_threshold=1.5",
    ],
  )
  assert (measured.code, measured.err) == (0, "")
  assert f"dev, {tmp_path}/m1: exact 66.67" in measured.out
  results = json.loads((output / "eval_results.json").read_text())["dev"]
  assert results["exact"] == 100 and results["null_score_diff_threshold"] == 2
  for split in ("dev", "test"):
    path = output / split / "predictions.json"
    said = json.loads(path.read_text(encoding="utf-8"))
    assert said == {"q0": texts["q0"], "q1": texts["q1"], "q2": ""}
  odds = squad.read_null_odds(str(output / "dev" / "null_odds.json"))
  assert odds == {"q0": 2, "q1": 2, "q2": 6}
  assert given.code == 0
  path = tmp_path / "given" / "test" / "predictions.json"
  said = json.loads(path.read_text(encoding="utf-8"))
  assert set(said.values()) == {""}


def test_flags_are_required():
  result = subprocess.run(
    [sys.executable, "-m", "tools.ensemble"],
    cwd=ROOT,
    capture_output=True,
    text=True,
  )
  assert result.returncode != 0 and "--members" in result.stderr


def test_members_are_found_in_order_and_counted_once(tmp_path):
  for name in ("m2", "m1", "other"):
    (tmp_path / name).mkdir()
  (tmp_path / "m3.txt").write_text("")
  found = ensemble.find_members(f"{tmp_path}/other, {tmp_path}/m*,")
  assert found == [str(tmp_path / name) for name in ("other", "m1", "m2")]
  with pytest.raises(ValueError, match="is .*m1 again, and would count twice"):
    ensemble.find_members(f"{tmp_path}/m1,{tmp_path}/other/../m1")


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
