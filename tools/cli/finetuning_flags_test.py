"""Settings of a run from flags and recipes; many cases in one process."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

from tools.testing import toy_data

ROOT = pathlib.Path(__file__).parents[2]
_PROGRAM = """
import dataclasses, json, sys
from absl import flags
from absl.testing import flagsaver
flags.DEFINE_string("output_dir", "out", "")
flags.DEFINE_bool("do_train", True, "")
from tools.cli import finetuning_flags, job_flags
said = []
for name, line in json.loads(sys.argv[1]):
  saved = flagsaver.save_flag_values()
  flags.FLAGS(["program", *line])
  try:
    job = job_flags.make_job(name, None)
    config, notes = finetuning_flags.train_config(
      job, HIDDEN_SIZE, "run", flags.FLAGS.do_train
    )
    model = finetuning_flags.model_settings(job.recipe)
    said.append({**dataclasses.asdict(config), **dataclasses.asdict(model)})
    said[-1]["notes"] = notes
  except (ValueError, OSError) as error:
    said.append(str(error))
  flagsaver.restore_flag_values(saved)
print(json.dumps(said))
"""
_GLUE = "--data_dir=glue"


def settings(*cases, hidden_size=768):
  program = _PROGRAM.replace("HIDDEN_SIZE", str(hidden_size))
  done = subprocess.run(
    [sys.executable, "-c", program, json.dumps(cases)],
    cwd=ROOT,
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr
  return json.loads(done.stdout)


def test_defaults_are_the_papers_and_do_not_stay():
  mnli, cola, race, squad = settings(
    ("mnli", [_GLUE]),
    ("cola", [_GLUE]),
    ("race_v2", [_GLUE]),
    ("squad_v2", []),
  )
  expected = {
    "learning_rate": 3e-5,
    "train_batch_size": 128,
    "num_train_steps": 10000,
    "num_warmup_steps": 1000,
    "albert_dropout": 0.0,
    "classifier_dropout": 0.1,
    "optimizer": "adamw",
    "best_metric": "accuracy",
    "best_is": "highest",
    "eval_steps": 1000,
    "save_checkpoints_steps": 1000,
    "keep_checkpoint_max": 1,
    "steps_per_loop": 100,
    "layerwise_lr_decay": 1.0,
    "model_dir": "run",
    "notes": [
      "mnli: 10,000 steps of 128, peak rate 3e-05, the default for "
      "hidden_size 768 and more"
    ],
  }
  assert {name: mnli[name] for name in expected} == expected
  assert cola["num_train_steps"] == 5336 and cola["num_warmup_steps"] == 320
  assert cola["best_metric"] == "matthews" and cola["eval_steps"] == 533
  assert race["learning_rate"] == 1e-5 and race["albert_dropout"] == 0
  assert squad["num_train_steps"] == 8144 and squad["best_metric"] == "f1"


def test_what_is_given_wins():
  (said,) = settings(
    (
      "qqp",
      [
        _GLUE,
        "--num_train_steps=1400",
        "--learning_rate=0.5",
        "--train_batch_size=6",
        "--albert_dropout=0",
        "--classifier_dropout=0.25",
        "--layerwise_lr_decay=0.75",
        "--recompute_activations",
        "--eval_steps=7",
        "--best_metric=loss",
        "--best_is=lowest",
      ],
    )
  )
  expected = {
    "num_train_steps": 1400,
    "num_warmup_steps": 100,  # The recipe's fourteenth.
    "learning_rate": 0.5,
    "train_batch_size": 6,
    "albert_dropout": 0.0,
    "classifier_dropout": 0.25,
    "layerwise_lr_decay": 0.75,
    "recompute_activations": True,
    "eval_steps": 7,
    "save_checkpoints_steps": 140,
    "best_metric": "loss",
    "best_is": "lowest",
  }
  assert {name: said[name] for name in expected} == expected


def test_a_small_model_has_a_higher_rate():
  default, given = settings(
    ("squad_v1", []),
    ("squad_v1", ["--learning_rate=2e-5"]),
    hidden_size=256,
  )
  assert (
    default["learning_rate"] == 1.5e-4 and default["num_train_steps"] == 3649
  )
  assert default["notes"] == [
    "squad_v1: 3,649 steps of 48, peak rate 0.00015, the default for "
    "hidden_size 256; 5e-05 is for 768 and more"
  ]
  assert given["learning_rate"] == 2e-5
  assert given["notes"][0].endswith("peak rate 2e-05, as given")


def test_epochs(tmp_path):
  table = str(tmp_path / "train.tsv")
  toy_data.write_table(table, 50)
  own = [
    f"--train_file={table}",
    "--text_column=review",
    "--label_column=mood",
  ]
  toy_data.write_glue(str(tmp_path), ["cola"], train=50)
  said = settings(
    ("text_classification", own),
    ("text_classification", [*own, "--num_train_epochs=1.5"]),
    ("text_classification", [*own, "--num_train_steps=30"]),
    ("text_classification", [*own, "--nodo_train"]),
    ("cola", [f"--data_dir={tmp_path}", "--num_train_epochs=16"]),
  )
  steps = [(s["num_train_steps"], s["num_warmup_steps"]) for s in said]
  # 3 * 50 / 32 and 1.5 * 50 / 32 rounded up; 16 * 50 / 16 with the recipe's
  # share of 320 / 5336.
  assert steps == [(5, 0), (3, 0), (30, 3), (1, 0), (50, 2)]


def test_refusals():
  said = settings(
    ("cola", [_GLUE, "--num_train_steps=3", "--num_train_epochs=1"]),
    ("cola", [_GLUE, "--num_train_epochs=-1"]),
    ("cola", [_GLUE, "--phase_steps=3"]),
    ("cola", [_GLUE, "--classifier_dropout=1"]),
    ("cola", [_GLUE, "--layerwise_lr_decay=0"]),
    ("cola", [_GLUE, "--num_train_steps=3", "--num_warmup_steps=4"]),
    ("cola", [_GLUE, "--num_train_epochs=1"]),
  )
  for text, message in zip(
    said,
    (
      "--num_train_epochs and --num_train_steps say the same thing: give one",
      "--num_train_epochs must not be negative, got -1.0",
      "--phase_steps is for pretraining",
      "classifier_dropout must be at least 0 and under 1, got 1.0",
      "layerwise_lr_decay",
      "num_warmup_steps",
      "the folder glue does not exist",
    ),
  ):
    assert message in text


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
