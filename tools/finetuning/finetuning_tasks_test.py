"""Tests of tools.run_finetuning on the official tasks."""

from __future__ import annotations

import zipfile

import numpy as np
import pytest

from official_albert.tasks.classification import glue
from official_albert.tools.run_finetuning_test import read, run, table
from official_albert.tools.testing import many_commands, toy_data, toy_runs


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """Returns a folder with an encoder and the data of all tasks."""
  path = tmp_path_factory.mktemp("tasks")
  toy_runs.write_pretrained(str(path / "encoder"))
  toy_data.write_glue(str(path))
  toy_data.write_race(str(path / "RACE"))
  for name, count, impossible, seed in (
    ("train-v1.1", 40, False, 0),
    ("dev-v1.1", 6, False, 1),
    ("train-v2.0", 40, True, 0),
    ("dev-v2.0", 6, True, 1),
    ("test-v2.0", 3, True, 2),
    ("new", 4, True, 3),
  ):
    toy_data.write_squad(str(path / f"{name}.json"), count, impossible, seed)
  return path


def arguments(folder, task, *more):
  return [
    f"--task={task}",
    f"--data_dir={folder}",
    f"--init_checkpoint={folder}/encoder",
    f"--output_dir={folder}/out/{task}",
    "--max_seq_length=40",
    "--train_batch_size=8",
    "--learning_rate=0.003",
    "--num_train_steps=6",
    "--eval_steps=3",
    "--steps_per_loop=2",
    *more,
  ]


def test_mnli_has_two_dev_sets_and_three_to_submit(folder):
  (out,) = run(arguments(folder, "mnli"))
  output = folder / "out" / "mnli"
  results = read(output / "eval_results.json")
  assert list(results) == ["dev_matched", "dev_mismatched"]
  gold = ["contradiction", "entailment", "neutral"] * 2 + ["contradiction"]
  for split, values in results.items():
    right = np.array(table(output, split).predictions) == gold
    assert values["accuracy"] == pytest.approx(right.mean())
  with zipfile.ZipFile(output / "submission" / "submission.zip") as packed:
    names = packed.namelist()
    lines = packed.read("AX.tsv").decode().splitlines()
  assert sorted(names) == ["AX.tsv", "MNLI-m.tsv", "MNLI-mm.tsv"]
  labels = table(output, "ax").predictions
  rows = [f"{i}\t{label}" for i, label in enumerate(labels)]
  assert lines == ["index\tprediction", *rows]
  assert "3 of 11 files; the site also needs CoLA.tsv" in out


_WINDOWS = ("--doc_stride=8", "--max_query_length=8")


@pytest.mark.heavy
def test_squad_2(folder):
  output = folder / "out" / "squad_v2"
  trained = [
    *("--task=squad_v2", f"--output_dir={output}", "--nodo_train"),
    *("--nodo_eval", f"--test_file={folder}/new.json"),
  ]
  v2, new, _ = run(
    arguments(folder, "squad_v2", *_WINDOWS),
    trained,
    [*trained, "--null_score_diff_threshold=-1000"],
  )
  results = read(output / "eval_results.json")["dev"]
  threshold = results["best_null_score_diff_threshold"]
  assert results["total"] == 6 and results["HasAns_total"] == 4
  assert results["null_score_diff_threshold"] == 0
  assert "squad_v2 dev: exact" in v2
  # New data is decoded with the threshold and the strides of the run.
  test = output / "predictions" / "test"
  odds = read(test / "null_odds.json")
  assert list(odds) == ["q0", "q1", "q2", "q3"]
  assert f"wrote {test}/predictions.json" in new
  # The threshold of the last command rejects every answer.
  assert set(read(test / "predictions.json").values()) == {""}
  run(trained)
  for question, text in read(test / "predictions.json").items():
    assert (text == "") == (odds[question] > threshold)


@pytest.mark.heavy
def test_race(folder):
  (out,) = run(arguments(folder, "race", "--max_qa_length=12"))
  output = folder / "out" / "race"
  results = read(output / "eval_results.json")["dev"]
  assert set(results) == {"accuracy", "accuracy_middle", "accuracy_high"}
  dev = table(output, "dev")
  levels = ("middle", "high")
  assert dev.ids == tuple(f"{x}0.txt#{i}" for x in levels for i in range(2))
  right = (dev.values.argmax(axis=1) == 0).mean()
  assert results["accuracy"] == pytest.approx(right)
  assert len(table(output, "test").ids) == 4
  assert "race dev: accuracy" in out


@pytest.mark.heavy
def test_all_of_glue(folder):
  (out,) = run(arguments(folder, "glue"))
  output = folder / "out" / "glue"
  # Warnings name the seed, too.
  sections = out.split(f", seed 12345: {output}/")
  assert len(sections) == 10
  for section in sections[1:]:
    assert "warm start from" in section and "step 6/6" in section
  assert "| cola " in out and "| average " in out
  assert "11 of 11 files, ready for gluebenchmark.com." in out
  with zipfile.ZipFile(output / "submission" / "submission.zip") as packed:
    assert len(packed.namelist()) == 11
  for name in glue.GLUE_TASKS:
    summary = read(output / name / "summary.json")
    assert summary["task"] == name and summary["majority"]


def test_missing_glue_data_is_reported_before_training(folder, tmp_path):
  toy_data.write_glue(str(tmp_path), [n for n in glue.GLUE_TASKS if n != "rte"])
  more = (f"--data_dir={tmp_path}", f"--output_dir={tmp_path}/out")
  line = arguments(folder, "glue", *more)
  (result,) = many_commands.run("run_finetuning", [line])
  assert result.code == 1 and "rte needs RTE/train.tsv" in result.err
  assert not (tmp_path / "out").exists()
