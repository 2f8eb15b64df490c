"""Tests of the tables, the commands of their rows, and the reports."""

from __future__ import annotations

import json
import os
import pathlib
import shlex
import statistics

import pytest

from official_albert.tools.experiments import runs, tables

# The paper's "Avg" of each table in the order of its rows, as printed.
_AVERAGES = {
  "2": "82.3 85.2 76.6 80.1 82.4 85.5 88.7",
  "3": "81.3 81.7 81.8 82.3 79.0 80.1 79.6 79.8",
  "4": "79.8 81.6 79.5 82.3 80.1 81.7 80.2 81.6",
  "5": "79.0 79.2 80.1",
  "7": "80.1 80.8",
  "8": "90.4 90.7",
  "11": "52.9 71.2 77.2 81.5 82.1 81.8",
  "12": "71.2 74.6 76.3 74.0",
  "13": "88.7 88.7",
}


def test_a_table_is_read():
  table = tables.TABLES["4"]
  assert (table.title, len(table.rows)) == ("Sharing strategies", 10)
  assert table.columns == [tables.SIZE, "MLM loss", "MLM"]
  row = table.rows["E 128, shared-FFN"]
  assert row.flags == {"E": 128, "sharing": "ffn"}
  assert row.paper["SQuAD1.1"] == (88.9 + 81.6) / 2
  assert row.paper["RACE"] == 64.4
  assert row.paper[tables.SIZE] == 38
  assert not table.rows["E 128, 3 groups"].paper
  row = tables.TABLES["8"].rows["with dropout"]
  assert row.paper.keys() == {*tables.TASKS}


@pytest.mark.parametrize("name", _AVERAGES)
def test_numbers_have_the_papers_average(name):
  """Both are rounded to one decimal."""
  rows = tables.TABLES[name].rows.values()
  papers = [[x.paper[task] for task in tables.TASKS] for x in rows if x.paper]
  averages = list(map(statistics.mean, papers))
  expected = [float(x) for x in _AVERAGES[name].split()]
  assert averages == pytest.approx(expected, abs=0.06)


TINY, GPU = tables.SCALES["tiny"], tables.SCALES["gpu"]


@pytest.mark.parametrize("scale", [TINY, GPU])
def test_models_have_the_sizes_of_their_flags(scale):
  for table in tables.TABLES.values():
    counts = {
      label: scale.config(row).parameter_count()
      for label, row in scale.rows(table).items()
    }
    # Labels are as in the paper.
    for label, count in counts.items():
      shared = label.replace("not-shared", "all-shared")
      assert count > counts.get(shared, 0) or shared == label


def test_the_sizes_of_the_scales():
  large = tables.TABLES["2"].rows["BERT-xlarge"]
  config = TINY.config(large)
  assert (config.embedding_size, config.hidden_size) == (192, 192)
  assert (config.num_hidden_layers, config.num_attention_heads) == (8, 12)
  assert config.intermediate_size == 768 and config.sharing == "none"
  dropouts = [TINY.config(x) for x in tables.TABLES["8"].rows.values()]
  assert [x.hidden_dropout_prob for x in dropouts] == [0.1, 0.0]
  for table in tables.TABLES.values():
    assert TINY.rows(table) == table.rows
  assert [*GPU.rows(tables.TABLES["2"])] == [
    *("BERT-base", "BERT-large"),
    *("ALBERT-base", "ALBERT-large", "ALBERT-xxlarge"),
  ]
  config = GPU.config(tables.TABLES["2"].rows["ALBERT-large"])
  assert (config.hidden_size, config.num_hidden_layers) == (768, 24)
  assert config.num_attention_heads == 12 and config.vocab_size == 30_000


def test_flags_are_read_with_their_types():
  text = "--tpu=pod beta_2=0.98 steps=7 xla shares=3:0.5,12:0.5 --noa b=False"
  assert tables.parse_flags(text) == {
    **{"tpu": "pod", "beta_2": 0.98, "steps": 7, "xla": True},
    **{"shares": "3:0.5,12:0.5", "a": False, "b": False},
  }


def _runner(folder="/out", tasks=("MNLI",), dry_run=True, scale=TINY):
  dirs = {task: f"/{tables.TASKS[task][0]}" for task in tasks}
  settings = (scale, 1600, scale.training, {})
  texts = ("/text/*", "/more/*")
  return runs.Runner(*settings, *texts, dirs, folder, dry_run)


def _commands(capsys, runner, name, seeds=(3, 5)):
  """Returns program and flags of each command of a table."""
  for seed in seeds:
    for row in tables.TABLES[name].rows.values():
      runner.run(tables.TABLES[name], row, seed)
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
    made = {"/text"}
    for _, flags in _commands(capsys, _runner(tasks=tables.TASKS), name):
      for flag in ("input_dir", "eval_input_dir", "init_checkpoint"):
        folder, _, last = flags.get(flag, "/text").rpartition("/")
        assert {folder, f"{folder}/{last}"} & made
      made |= {flags.get("model_dir"), flags.get("output_dir")}


def test_pretraining_commands(capsys):
  trained = _of(_commands(capsys, _runner(), "8"), "run_pretraining")
  first, second, *_ = trained
  assert first["model_dir"].startswith("/out/models/H256-L4-")
  assert second["model_dir"] != first["model_dir"]
  # Half of the steps, as the models are large.
  names = "num_train_steps num_warmup_steps eval_steps random_seed"
  assert [second[x] for x in names.split()] == ["800", "80", "100", "3"]
  assert first["init_neighbor_attention"] == "True"
  # All rows of a seed come before the next seed.
  assert [x["random_seed"] for x in trained] == ["3"] * 2 + ["5"] * 2


def test_depths_continue_each_other(capsys):
  trained = _of(_commands(capsys, _runner(), "11", [3]), "run_pretraining")
  models = [x["model_dir"] for x in trained]
  assert [x.get("init_checkpoint") for x in trained] == [None, *models[:-1]]


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


def test_each_model_has_the_best_of_three_rates(monkeypatch):
  runner, table = _runner(scale=GPU), tables.TABLES["4"]
  trained = []

  def run_at(unused_table, row, seed, given):
    rate = given["learning_rate"]
    trained.append((seed, rate))
    best = 0.001 if row.flags["sharing"] == "all" else 0.002
    # Masked LM has another order.
    return {"MNLI": 50 - 1000 * abs(rate - best), "MLM": -rate}

  monkeypatch.setattr(runner, "_run_at", run_at)
  for label, best in (
    ("E 128, all-shared", 0.001),
    ("E 768, not-shared", 0.002),
  ):
    trained.clear()
    values = [runner.run(table, table.rows[label], seed) for seed in (3, 5)]
    assert [x["learning rate"] for x in values] == [best] * 2
    assert trained == [(3, x) for x in (0.0005, 0.001, 0.002, best)] + [
      (5, best)
    ]
  runner.task_dirs = {}
  assert runner.run(tables.TABLES["3"], table.rows[label], 3)["MLM"] == -0.002
  runner._rates.clear()
  assert runner.run(table, table.rows[label], 3)["learning rate"] == 0.0005


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

  def run(program, *line):
    given.append(program)
    flags = dict(flag[2:].split("=", 1) for flag in line)
    name, value = _RESULTS[program]
    if flags.get("mode") == "evaluate":
      share = 0.75 if "nsp" in flags["input_dir"] else 0.5
      value = {**_EVALUATION, "sentence_order_accuracy": share}
      name = flags["metrics_file"]
    folder = flags.get("output_dir") or flags["model_dir"]
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "w") as file:
      file.write(json.dumps(value) + "\n")

  monkeypatch.setattr(runs.command_line, "run_program", run)
  table = tables.TABLES["5"]
  for _ in range(2):
    runner = _runner(str(tmp_path), ["SQuAD2.0"], dry_run=False)
    values = runner.run(table, table.rows["SOP"], 3)
    assert 0.1 < values.pop(tables.SIZE) < 10
    assert values == {
      **{"MLM loss": 4.5, "MLM": 25.0, "NSP": 75.0, "SOP": 50.0},
      "SQuAD2.0": 55.0,
    }
  assert given[:3] == list(_RESULTS)[:3] and len(given) == 8
  # The training alone is asked again.
  assert given[7:] == ["run_pretraining"]


_ROWS = {
  "no additional data": {
    tables.SIZE: [1.234567] * 2,
    "MLM loss": [4.5, 4.25],
    "MLM": [25.0, 26.5],
    "SST-2": [80.0, 81.0],
    "SQuAD1.1": [60.0, 50.0],
  },
  # It has run once.
  "with additional data": {"MLM loss": [4.125], "SST-2": [82.0]},
}


def test_numbers_are_beside_the_papers(tmp_path):
  table, tasks = tables.TABLES["7"], ["SQuAD1.1", "SST-2"]
  text = runs.write_report(table, tasks, _ROWS, "1,600 steps", str(tmp_path))
  assert text == (tmp_path / "table_7.md").read_text()
  lines = [[x.strip() for x in line.split("|")] for line in text.splitlines()]
  assert lines[0] == ["## 7: More data"] and lines[-1] == ["(1,600 steps)"]
  header, _, first, second = (line[1:-1] for line in lines[2:6])
  # The paper has no numbers on held-out text.
  assert header == [
    *("", "million parameters", "million parameters, paper"),
    *("MLM loss", "MLM", "SQuAD1.1", "SQuAD1.1, paper"),
    *("SST-2", "SST-2, paper", "Avg", "Avg, paper"),
  ]
  assert first == [
    *("no additional data", "1.235", "12.0", "4.375 (4.250 to 4.500)"),
    *("25.8 (25.0 to 26.5)", "55.0 (50.0 to 60.0)", "85.8"),
    *("80.5 (80.0 to 81.0)", "90.3", "67.8 (65.5 to 70.0)", "88.0"),
  ]
  assert second[1:5] == ["", "12.0", "4.125", ""] and second[7] == "82.0"
  assert second[5:7] == ["", "85.2"] and second[9:] == ["", "89.0"]
  record = json.loads((tmp_path / "table_7.json").read_text())
  assert record["rows"]["with additional data"] == {
    "MLM loss": [4.125],
    "SST-2": [82.0],
  }


_PAGES = pathlib.Path(__file__).resolve().parents[2] / "docs/results"


def test_the_page_has_the_published_counts():
  """The numbers are those of runs that were published, and do not change."""
  content = (_PAGES / "data/experiments_tiny.json").read_text("utf-8")
  table = json.loads(content)["tables"][0]
  title, *counts = table["rows"][-1]
  assert (table["name"], title) == ("experiments_directions", "all")
  tasks, training = ([*map(int, x.split(" / "))] for x in counts)
  page = " ".join((_PAGES / "experiments.md").read_text("utf-8").split())
  assert (
    f"By tasks, {tasks[0]} of {sum(tasks)} directions of the paper is shown, "
    f"{tasks[1]} is contradicted and {tasks[2]} are not resolved. By "
    f"pretraining, {training[0]} of {sum(training)} are shown, {training[1]} "
    f"are contradicted and {training[2]} are not resolved."
  ) in page
