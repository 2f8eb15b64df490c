"""The job that flags ask for; many cases in one process."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
_PROGRAM = """
import json, sys
from absl import flags
from absl.testing import flagsaver
flags.DEFINE_string("output_dir", "out", "")
from tools.cli import job_flags
from tools.finetuning import trained_run
said = []
for name, learnt, threshold, line in json.loads(sys.argv[1]):
  saved = flagsaver.save_flag_values()
  flags.FLAGS(["program", *line])
  try:
    run = learnt and trained_run.TrainedRun("run", name, 19, learnt, None)
    job = job_flags.make_job(name, None, run, threshold)
    said.append({
      "kind": type(job).__name__,
      "name": job.name,
      "cache_dir": job.options.cache_dir,
      "max_seq_length": job.max_seq_length,
      "columns": dict(job.options.columns),
      "files": dict(job.options.files),
      "labels": job.options.labels,
      "doc_stride": getattr(job.recipe, "doc_stride", None),
      "threshold": job.options.null_score_diff_threshold,
      "most": [job.options.max_train_examples, job.options.max_eval_examples],
      "buckets": job.options.length_bucketing,
    })
  except (ValueError, OSError) as error:
    said.append(str(error))
  flagsaver.restore_flag_values(saved)
print(json.dumps(said))
"""
_DATA = "--data_dir=data"


def jobs(*cases):
  """Each case: the name, a run's settings, a threshold, the flags."""
  done = subprocess.run(
    [sys.executable, "-c", _PROGRAM, json.dumps(cases)],
    cwd=ROOT,
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr
  return json.loads(done.stdout)


def test_each_task_is_its_kind_of_job():
  cases = (
    ("mrpc", "GlueJob", "mrpc", 512),
    ("squad_v1", "SquadJob", "squad_v1", 384),
    ("squad_v2", "SquadJob", "squad_v2", 512),
    ("race", "RaceJob", "race", 512),
    ("race_v2", "RaceJob", "race", 512),
  )
  said = jobs(*[(name, None, None, [_DATA]) for name, *_ in cases])
  assert [(s["kind"], s["name"], s["max_seq_length"]) for s in said] == [
    tuple(expected) for _, *expected in cases
  ]
  assert said[0]["cache_dir"] == "out/records"
  assert said[0]["buckets"] and said[0]["most"] == [0, 0]


def test_a_tpu_has_batches_of_one_length():
  program = (
    "import sys; from absl import flags; from tools.cli import job_flags;"
    "flags.DEFINE_string('output_dir', 'out', ''); flags.FLAGS(sys.argv);"
    "job = job_flags.make_job('rte', None, one_length=True);"
    "print(job.options.length_bucketing)"
  )
  command = [sys.executable, "-c", program, _DATA, "--length_bucketing"]
  said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
  assert said.stdout == "False\n", said.stderr


def test_flags_reach_the_job():
  squad, own = jobs(
    (
      "squad_v2",
      None,
      2.5,
      [
        "--dev_file=mine.json",
        "--doc_stride=7",
        "--null_score_diff_threshold=-1.5",
        "--cache_dir=there",
        "--max_seq_length=33",
        "--max_train_examples=3",
        "--max_eval_examples=4",
        "--nolength_bucketing",
      ],
    ),
    ("text_regression", None, None, ["--text_column=x", "--id_column=n"]),
  )
  assert squad["doc_stride"] == 7 and squad["threshold"] == -1.5
  assert squad["files"] == {"train": "", "dev": "mine.json", "test": ""}
  assert squad["cache_dir"] == "there" and squad["max_seq_length"] == 33
  assert squad["most"] == [3, 4] and not squad["buckets"]
  assert own["columns"] == {
    "text": "x",
    "text_b": "text_b",
    "label": "label",
    "id": "n",
  }


def test_a_run_counts_where_no_flag_says_anything_else():
  learnt = {
    "labels": ["no", "yes"],
    "columns": {"text": "review", "id": "number"},
  }
  own, changed, squad = jobs(
    ("text_classification", learnt, None, []),
    (
      "text_classification",
      learnt,
      None,
      ["--text_column=text", "--max_seq_length=5"],
    ),
    ("squad_v2", {"doc_stride": 5, "questions": 3}, 0.5, [_DATA]),
  )
  assert own["labels"] == ["no", "yes"] and own["max_seq_length"] == 19
  assert own["columns"] == {
    "text": "review",
    "text_b": "text_b",
    "label": "label",
    "id": "number",
  }
  # Also where the flag's value is its default.
  assert changed["columns"]["text"] == "text"
  assert changed["columns"]["id"] == "number"
  assert changed["max_seq_length"] == 5
  assert squad["doc_stride"] == 5 and squad["threshold"] == 0.5


def test_flags_of_other_tasks_are_refused():
  cases = (
    ("cola", [], "--task=cola needs --data_dir, the folder of its data"),
    ("race", [], "--task=race needs --data_dir"),
    ("cola", [_DATA, "--dev_file=x"], "--dev_file says nothing to --task=cola"),
    ("race", ["--train_file=x"], "its data is named by --data_dir."),
    ("squad_v1", ["--null_score_diff_threshold=0"], "--null_score_diff_thresh"),
    ("squad_v2", ["--label_column=x"], "--label_column says nothing to --task"),
    ("text_regression", [_DATA], "--data_dir says nothing to --task=text_regr"),
    ("text_classification", ["--text_b_column=x"], "--text_b_column says noth"),
    ("cola", [_DATA, "--doc_stride=3"], "--doc_stride does not apply to this"),
    ("cola", [_DATA, "--max_seq_length=-3"], "max_seq_length must not be nega"),
    ("text_classification", [], "--task=text_classification needs --train_fil"),
  )
  said = jobs(*[(name, None, None, line) for name, line, _ in cases])
  for text, (_, _, message) in zip(said, cases):
    assert message in text


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
