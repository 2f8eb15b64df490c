"""Tests of runs.py: the commands of rows, and what is read of their results."""

from __future__ import annotations

import json
import os
import shlex
import types

import pytest

from official_albert.tools.experiments import runs, tables


def _runner(folder="/out", tasks=("MNLI",), dry_run=True):
  dirs = {task: f"/{tables.TASKS[task]}" for task in tasks}
  settings = (1600, tables.TRAINING, tables.FINETUNING, "/text/*", "/more/*")
  return runs.Runner(*settings, dirs, folder, dry_run)


def _commands(capsys, runner, name, seeds=(3, 5)):
  """Returns program and flags of each command of a table."""
  for seed in seeds:
    model = ""
    for row in tables.TABLES[name].rows.values():
      model, _ = runner.run(tables.TABLES[name], row, seed, model)
  lines = capsys.readouterr().out.splitlines()
  assert len(lines) == len({*lines})
  found = [shlex.split(line)[2:] for line in lines]
  return [
    (module.rpartition(".")[2], dict(flag[2:].split("=", 1) for flag in given))
    for module, *given in found
  ]


def _of(found, program):
  return [flags for name, flags in found if name == program]


def test_each_command_follows_those_that_it_needs(capsys):
  for name in tables.TABLES:
    made = {"/text", "/more", *(f"/{task}" for task in tables.TASKS.values())}
    for _, flags in _commands(capsys, _runner(tasks=tables.TASKS), name):
      for flag in ("input_dir", "eval_input_dir", "init_checkpoint"):
        folder, _, last = flags.get(flag, "/text").rpartition("/")
        assert {folder, f"{folder}/{last}"} & made
      made |= {flags.get("model_dir"), flags.get("output_dir")}


def test_pretraining_commands(capsys):
  trained = _of(_commands(capsys, _runner(), "11"), "run_pretraining")
  first, second, *_ = trained
  assert first["model_dir"].startswith("/out/models/H128-L1-")
  assert second["init_checkpoint"] == first["model_dir"]
  # A quarter of the steps, as the models are deep.
  assert [second[x] for x in ("num_train_steps", "num_warmup_steps")] == [
    "400",
    "40",
  ]
  assert second["eval_steps"] == "50" and second["random_seed"] == "3"
  # It has the weights of the other model.
  assert first["init_neighbor_attention"] == "True"
  assert "init_neighbor_attention" not in second
  # All rows of a seed come before the next seed.
  assert [x["random_seed"] for x in trained] == ["3"] * 6 + ["5"] * 6


def test_tables_share_models_and_other_settings_do_not(capsys):
  runner = _runner()
  first = _of(_commands(capsys, runner, "4", [3]), "run_pretraining")
  # The model without additional data is there already.
  found = _commands(capsys, runner, "7", [3])
  (more,) = _of(found, "run_pretraining")
  assert more["eval_input_dir"] == first[0]["input_dir"] != more["input_dir"]
  (texts,) = _of(found, "create_pretraining_data")
  assert texts["input_files"] == "/text/*,/more/*"
  folders = {x["model_dir"] for x in first}
  assert len(folders) == 10 and more["model_dir"] not in folders
  # A folder that was moved is that of the same settings.
  moved = _of(_commands(capsys, _runner("/new"), "4", [3]), "run_pretraining")
  names = {x.replace("/out/", "/new/") for x in folders}
  assert {x["model_dir"] for x in moved} == names


def test_finetuning_and_evaluation_commands(capsys):
  found = _commands(capsys, _runner(tasks=["SST-2", "RACE"]), "5", [3])
  trained = [x for x in _of(found, "run_pretraining") if "mode" not in x]
  evaluated = [x for x in _of(found, "run_pretraining") if "mode" in x]
  assert [
    x["sentence_pair"] for x in _of(found, "create_pretraining_data")
  ] == [*("none", "nsp", "sop")]
  assert len(trained) == 3 and len(evaluated) == 6
  tasks = _of(found, "run_finetuning")
  assert [x["task"] for x in tasks] == ["sst2", "race"] * 3
  last = trained[0]["model_dir"] + "/model.ckpt-1600"
  assert tasks[0]["init_checkpoint"] == last
  assert tasks[1]["max_qa_length"] == "48" and tasks[1]["random_seed"] == "3"


_EVALUATION = {"masked_lm_loss": 4.5, "masked_lm_accuracy": 0.25}
_RESULTS = {
  "train_vocabulary": ("tokenizer.model", ""),
  "create_pretraining_data": ("dataset.json", {}),
  "run_pretraining": (
    "metrics.jsonl",
    {"kind": "eval", "step": 8, "unix_time_seconds": 1}
    | {"masked_lm_loss": 5.0, "masked_lm_accuracy": 0.125},
  ),
  "run_finetuning": (
    "eval_results.json",
    {"dev": {"best_f1": 60, "best_exact": 50, "f1": 1}},
  ),
}


def test_numbers_are_read_and_finished_commands_are_not_given(
  tmp_path, monkeypatch
):
  given = []

  def run(line, **unused):
    program = line[2].rpartition(".")[2]
    given.append(program)
    flags = dict(flag[2:].split("=", 1) for flag in line[3:])
    name, value = _RESULTS[program]
    if flags.get("mode") == "evaluate":
      share = 0.75 if "nsp" in flags["input_dir"] else 0.5
      value = {**_EVALUATION, "sentence_order_accuracy": share}
      name = flags["metrics_file"]
    folder = flags.get("output_dir") or flags["model_dir"]
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "w") as file:
      file.write(json.dumps(value) + "\n")
    return types.SimpleNamespace(returncode=0)

  monkeypatch.setattr(runs.subprocess, "run", run)
  table = tables.TABLES["5"]
  for _ in range(2):
    runner = _runner(str(tmp_path), ["SQuAD2.0"], dry_run=False)
    _, values = runner.run(table, table.rows["SOP"], 3, "")
    assert values.pop("parameters") > 1000
    assert values == {
      **{"MLM loss": 4.5, "MLM": 25.0, "NSP": 75.0, "SOP": 50.0},
      **{"SQuAD2.0": 55.0, "curve": [(8, 5.0)]},
    }
  assert given[:3] == list(_RESULTS)[:3] and len(given) == 8
  # The training alone is asked again.
  assert given[7:] == ["run_pretraining"]


def test_a_failure_names_its_command(tmp_path, monkeypatch):
  failed = types.SimpleNamespace(returncode=7)
  monkeypatch.setattr(runs.subprocess, "run", lambda *unused, **more: failed)
  table = tables.TABLES["3"]
  runner = _runner(str(tmp_path), dry_run=False)
  with pytest.raises(ValueError, match="ends with 7: .*train_vocabulary"):
    runner.run(table, table.rows["all-shared, E 64"], 3, "")
