"""Tests of summaries, GLUE's table and the submission."""

from __future__ import annotations

import json
import os
import zipfile

import numpy as np
import pytest

from official_albert import checkpoints
from tasks import common
from tasks.classification import glue
from tools.finetuning import summary as finetuning_summary


class StandIn:
  """A job without data."""

  name = "mnli"
  best_metric = "accuracy"
  eval_splits = ("dev_matched", "dev_mismatched")

  def majority(self, split):
    return {"accuracy": 0.375 if split == "dev_matched" else 0.25}


def results(*pairs, **others):
  return {
    split: {"accuracy": value, **others}
    for split, value in zip(StandIn.eval_splits, pairs)
  }


def test_median_best_and_spread_of_three_runs():
  summary = finetuning_summary.summarize(
    StandIn(),
    {7: results(0.5, 0.75), 8: results(1.0, 0.25), 9: results(0.625, 0.5)},
    with_majority=True,
  )
  assert summary["best_seed"] == 8  # By the first split.
  assert summary["splits"]["dev_matched"]["accuracy"] == {
    "median": 0.625,
    "best": 1.0,
    "worst": 0.5,
    # With n - 1: the root of (0.2083^2 + 0.2917^2 + 0.0833^2) / 2.
    "spread": pytest.approx(0.2602, abs=1e-4),
  }
  assert summary["seeds"]["9"]["dev_mismatched"] == {"accuracy": 0.5}
  assert summary["majority"]["dev_mismatched"] == {"accuracy": 0.25}
  assert finetuning_summary.describe(summary).splitlines() == [
    "mnli: 3 runs",
    "  dev_matched accuracy: median 0.625, best 1, worst 0.5, standard "
    "deviation 0.26 (most frequent answer 0.375)",
    "  dev_mismatched accuracy: median 0.5, best 0.75, worst 0.25, standard "
    "deviation 0.25 (most frequent answer 0.25)",
  ]


def test_one_run_has_no_spread():
  run = results(0.5, 0.75, best_f1_thresh=1.0, total=3)
  summary = finetuning_summary.summarize(StandIn(), {7: run}, False)
  assert "majority" not in summary
  values = summary["splits"]["dev_mismatched"]["accuracy"]
  assert values == {"median": 0.75, "best": 0.75, "worst": 0.75, "spread": 0}
  assert finetuning_summary.describe(summary).splitlines() == [
    "mnli: 1 run",
    "  dev_matched accuracy: 0.5",
    "  dev_mismatched accuracy: 0.75",
  ]


def test_the_lowest_error_is_best():
  runs = {s: results(0.5, 0.5, mean_squared_error=s) for s in (1.5, 4.0)}
  summary = finetuning_summary.summarize(StandIn(), runs, False)
  values = summary["splits"]["dev_matched"]["mean_squared_error"]
  assert (values["best"], values["worst"]) == (1.5, 4.0)


def test_run_folder_of_several_seeds(tmp_path):
  folder = str(tmp_path / "new")
  assert checkpoints.run_folder(folder) == folder
  run = results(0.5, 0.5)
  finetuning_summary.write(
    folder, finetuning_summary.summarize(StandIn(), {7: run}, False)
  )
  assert checkpoints.run_folder(folder) == folder
  runs = {7: run, 8: results(0.75, 0.5)}
  summary = finetuning_summary.summarize(StandIn(), runs, False)
  finetuning_summary.write(folder, summary)
  assert finetuning_summary.read(folder) == summary
  assert checkpoints.run_folder(folder) == os.path.join(folder, "seed_8")


def write_table(folder, split, labels, values):
  os.makedirs(folder, exist_ok=True)
  ids = tuple(str(i) for i in range(len(values)))
  common.write_probabilities(
    os.path.join(folder, f"{split}{common.PROBABILITIES_SUFFIX}"),
    common.ProbabilityTable(ids, labels, np.array(values)),
  )


def test_submission_of_the_best_run(tmp_path, capsys):
  folder = str(tmp_path)
  runs = {7: results(0.5, 0.5), 8: results(0.75, 0.5)}
  finetuning_summary.write(
    folder, finetuning_summary.summarize(StandIn(), runs, False)
  )
  finetuning_summary.finish_glue(folder, ["mnli"])
  assert not (tmp_path / "submission").exists()  # Nothing is predicted yet.
  labels = glue.get_glue_task("mnli").labels
  for seed, row in ((7, [1, 0, 0]), (8, [0, 0, 1])):
    for split in ("test_matched", "ax"):
      write_table(
        tmp_path / f"seed_{seed}" / "predictions", split, labels, [row]
      )
  finetuning_summary.finish_glue(folder, ["mnli"], all_rows=False)
  assert "no submission: --max_eval_examples" in capsys.readouterr().out
  assert not (tmp_path / "submission").exists()
  finetuning_summary.finish_glue(folder, ["mnli"])
  with zipfile.ZipFile(tmp_path / "submission" / "submission.zip") as packed:
    assert sorted(packed.namelist()) == ["AX.tsv", "MNLI-m.tsv"]
    assert packed.read("AX.tsv") == b"index\tprediction\n0\tneutral\n"
  assert "of 11 files; the site also needs CoLA.tsv" in capsys.readouterr().out


def test_table_and_submission_of_all_nine_tasks(tmp_path, capsys):
  names = list(glue.GLUE_TASKS)
  for number, name in enumerate(names):
    task = glue.get_glue_task(name)
    value = {"median": number / 10, "best": 1.0, "worst": 0.0, "spread": 0.0}
    finetuning_summary.write(
      str(tmp_path / name),
      {
        "task": name,
        "seeds": {"7": {}},
        "splits": {
          split: dict.fromkeys(task.metrics, value) for split in task.dev_splits
        },
      },
    )
    for split in task.test_splits:
      values = [2.5] if task.labels is None else [np.eye(len(task.labels))[0]]
      folder = tmp_path / name / "predictions"
      write_table(folder, split, task.labels or (), values)
  finetuning_summary.finish_glue(str(tmp_path), names)
  out = capsys.readouterr().out.splitlines()
  assert out[0] == f"| {' | '.join(names)} | average |"
  assert out[1].count("---") == 10
  assert out[2] == (
    "| 0.0 | 10.0 | 20.0 | 30.0 | 40.0 | 50.0 | 60.0 | 70.0 | 80.0 | 40.0 |"
  )
  assert out[3].endswith("11 of 11 files, ready for gluebenchmark.com.")
  with zipfile.ZipFile(tmp_path / "submission" / "submission.zip") as packed:
    assert set(packed.namelist()) == set(glue.SUBMISSION_FILES.values())
  # Without one of the tasks there is no average.
  (tmp_path / "rte" / "summary.json").unlink()
  finetuning_summary.finish_glue(str(tmp_path), names)
  assert "average" not in capsys.readouterr().out


def test_summary_is_json(tmp_path):
  summary = finetuning_summary.summarize(
    StandIn(), {7: results(0.5, 0.5)}, True
  )
  finetuning_summary.write(str(tmp_path), summary)
  assert json.loads((tmp_path / "summary.json").read_text()) == summary


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
