"""Tests of the flags of fine-tuning, its tasks and its encoders."""

from __future__ import annotations

import json
import pathlib
import shutil

import pytest

from official_albert.tools.testing import toy_data, toy_runs
from official_albert.tools.testing.many_commands import (
  check_flags,
  evaluate_flags,
)

_FINETUNING = """
from official_albert.tools import run_finetuning
from official_albert.tools.finetuning import task_flags
flags.FLAGS.set_default("output_dir", "out")
def answer(x):
  name, hidden_size = x
  task = task_flags.make_task(name, None)
  config, note = run_finetuning.train_config(task, hidden_size, "run")
  return {
    **dataclasses.asdict(config), **task.model_settings(), "note": note}
"""
_GLUE = "--data_dir=glue"


def test_finetuning_settings(tmp_path):
  table = str(tmp_path / "train.tsv")
  toy_data.write_table(table, 50)
  own = [f"--train_file={table}", "--text_column=review", "--label_column=mood"]
  toy_data.write_glue(str(tmp_path), ["cola"], train=50)
  case = ("text_classification", 768)
  mnli, race, squad, qqp, small, rate, biased, *by_epochs = evaluate_flags(
    _FINETUNING,
    (("mnli", 768), [_GLUE]),
    (("race_v2", 768), [_GLUE]),
    (("squad_v2", 768), []),
    (
      ("qqp", 768),
      [
        *(_GLUE, "--num_train_steps=1400", "--learning_rate=0.5"),
        *("--train_batch_size=6", "--albert_dropout=0", "--eval_steps=7"),
        *("--classifier_dropout=0.25", "--recompute_activations"),
        *("--best_metric=loss", "--best_is=lowest"),
      ],
    ),
    (("squad_v1", 256), []),
    (("squad_v1", 256), ["--learning_rate=2e-5"]),
    (("squad_v1", 256), ["--nobias_correction"]),
    (case, own),
    (case, [*own, "--num_train_epochs=1.5"]),
    (case, [*own, "--num_train_steps=30"]),
    (case, [*own, "--nodo_train"]),
    (("cola", 768), [f"--data_dir={tmp_path}", "--num_train_epochs=16"]),
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
    "bias_correction": False,
  }
  assert mnli.items() >= expected.items()
  assert race["learning_rate"] == 1e-5 and race["albert_dropout"] == 0
  assert squad["num_train_steps"] == 8144 and squad["best_metric"] == "best_f1"
  # Given flags win.
  expected = {
    "num_train_steps": 1400,
    "num_warmup_steps": 100,  # A fourteenth, as in the recipe.
    "learning_rate": 0.5,
    "train_batch_size": 6,
    "classifier_dropout": 0.25,
    "recompute_activations": True,
    "eval_steps": 7,
    "save_checkpoints_steps": 140,
    "best_metric": "loss",
    "best_is": "lowest",
  }
  assert qqp.items() >= expected.items()
  # A small model has a higher rate, and corrected moments.
  assert small["learning_rate"] == 2.5e-4 and small["num_train_steps"] == 3649
  found = [(s["learning_rate"], s["bias_correction"]) for s in (rate, biased)]
  assert small["bias_correction"] and found == [(2e-5, True), (2.5e-4, False)]
  assert "hidden_size 256; 5e-05 is for 768 and more" in small["note"]
  steps = [(s["num_train_steps"], s["num_warmup_steps"]) for s in by_epochs]
  # 3 * 50 / 32 and 1.5 * 50 / 32 rounded up; 16 * 50 / 16 with the recipe's
  # share of 320 / 5336.
  assert steps == [(5, 0), (3, 0), (30, 3), (1, 0), (50, 2)]


_TASKS = """
flags.DEFINE_string("output_dir", "out", "")
from official_albert.tools.finetuning import task_flags
from official_albert.tasks import trained_run
def answer(x):
  name, settings, threshold, one_length = x
  recorded = "run", name, 19, settings, threshold
  run = settings and trained_run.TrainedRun(*recorded)
  task = task_flags.make_task(name, None, run, one_length)
  return {
    **dataclasses.asdict(task.options),
    "note": "",
    "columns": task.options.columns,
    "kind": type(task).__name__,
    "name": task.name,
    "S": task.max_seq_length,
    "doc_stride": getattr(task.recipe, "doc_stride", None),
  }
"""
_DATA = "--data_dir=data"
_COLUMNS = {"text": "text", "text_b": "text_b", "label": "label", "id": ""}


def test_flags_of_the_data():
  run = {
    "labels": ["no", "yes"],
    "columns": {"text": "review", "id": "number"},
    "dev_share": 0.25,
  }
  own = ("text_classification", run, None, False)
  found = evaluate_flags(
    _TASKS,
    (
      ("squad_v2", {"doc_stride": 5, "n_best_size": 3}, 0.5, False),
      [
        *("--dev_file=mine.json", "--doc_stride=7", "--cache_dir=there"),
        *("--null_score_diff_threshold=-1.5", "--max_seq_length=33"),
        *("--max_train_examples=3", "--nolength_bucketing"),
      ],
    ),
    (("rte", None, None, True), [_DATA, "--length_bucketing"]),
    (("squad_v2", {"doc_stride": 5}, None, False), [_DATA]),
    # A trained run gives the defaults, also where a flag has its own.
    (own, []),
    (own, ["--text_column=text", "--max_seq_length=5", "--dev_share=.25"]),
    (own, ["--dev_file=x.tsv"]),
    (("text_multi_label", {**run, "label_separator": "|"}, None, False), []),
  )
  squad = {"doc_stride": 7, "S": 33, "null_score_diff_threshold": -1.5}
  squad |= {"train_file": "", "dev_file": "mine.json", "cache_dir": "there"}
  squad |= {"length_bucketing": False, "max_train_examples": 3}
  columns = {**_COLUMNS, **run["columns"]}
  expected = (
    {**squad, "kind": "SquadTask", "chosen_threshold": 0.5},
    {"cache_dir": "out/records", "length_bucketing": False, "S": 512},
    {"doc_stride": 5, "length_bucketing": True},
    {"labels": ["no", "yes"], "S": 19, "columns": columns, "dev_share": 0.25},
    {"columns": {**columns, "text": "text"}, "S": 5, "dev_share": 0.25},
    {"columns": columns, "dev_share": 0.0, "label_separator": ","},
    {"labels": ["no", "yes"], "label_separator": "|"},
  )
  for task, values in zip(found, expected):
    assert task.items() >= values.items()


def test_flags_of_other_tasks_are_refused():
  cases = (
    ("cola", [], "--task=cola needs --data_dir, the folder of its data"),
    ("squad_v1", ["--null_score_diff_threshold=0"], "null_score_diff_threshol"),
    ("squad_v2", ["--label_column=x"], "--label_column does not apply to --ta"),
    ("text_regression", [_DATA], "--data_dir does not apply to --task=text_re"),
    ("text_classification", ["--text_b_column=x"], "--text_b_column does not "),
    ("cola", [_DATA, "--doc_stride=3"], "--doc_stride does not apply to this"),
    ("squad_v1", [_DATA, "--dev_share=0.1"], "--dev_share does not apply to"),
    ("cola", [_DATA, "--classifier_dropout=1"], "less than 1"),
    (
      "text_regression",
      ["--dev_share=-1"],
      "dev_share is -1.0, but must be from 0 to 1",
    ),
  )
  check_flags(
    _TASKS, *[((x, None, None, False), line, text) for x, line, text in cases]
  )


_ENCODER = """
from official_albert.tools.cli import training_flags
from official_albert.tools.finetuning import task_flags
def answer(_):
  config, tokenizer = task_flags.find_encoder(
    training_flags.INIT_CHECKPOINT.value)
  lower_case = tokenizer.rules.lower_case
  return [config.num_hidden_layers, tokenizer.model_file, lower_case]
"""


def find(*cases):
  return evaluate_flags(
    _ENCODER,
    *[("", [f"--init_checkpoint={path}", *more]) for path, *more in cases],
  )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  return pathlib.Path(
    toy_runs.write_pretrained(str(tmp_path_factory.mktemp("encoder") / "run"))
  )


def test_files_beside_the_checkpoint(folder, tmp_path):
  config = json.loads((folder / "albert_config.json").read_text())
  config["num_hidden_layers"] += 2
  (tmp_path / "other.json").write_text(json.dumps(config))
  shutil.copy(folder / "tokenizer.model", tmp_path / "mine.model")
  cased = shutil.copytree(folder, tmp_path / "cased")
  record = json.loads((cased / "run.json").read_text())
  record["data"]["tokenizer"]["lower_case"] = False
  (cased / "run.json").write_text(json.dumps(record))
  changes = (
    f"--albert_config_file={tmp_path}/other.json",
    f"--spm_model_file={tmp_path}/mine.model",
    "--nodo_lower_case",
  )
  assert find(
    (folder / "model.ckpt-1",),
    (folder, *changes),
    (cased,),
    (cased, "--do_lower_case"),
  ) == [
    [1, str(folder / "tokenizer.model"), True],
    [3, str(tmp_path / "mine.model"), False],
    [1, str(cased / "tokenizer.model"), False],
    [1, str(cased / "tokenizer.model"), True],
  ]
