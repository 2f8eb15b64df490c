"""Tests of tools.run_finetuning: own texts, official tasks, refusals.

tools/testing/kills_test.py has kills.
"""

from __future__ import annotations

import json
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf

import official_albert
from official_albert import AlbertModel, checkpoints, runs
from official_albert.tasks import common
from official_albert.tasks.classification import glue
from official_albert.tools.conversion import conversion
from official_albert.tools.testing import many_commands, toy_data, toy_runs

_TASK = "--task=text_classification"
_SPLITS = {"train": 60, "dev": 21, "test": 11}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """Returns a folder with an encoder and tables, some of them wrong."""
  path = tmp_path_factory.mktemp("finetuning")
  toy_runs.write_pretrained(str(path / "encoder"))
  toy_runs.write_pretrained(str(path / "wider"), hidden_size=26)
  lone = shutil.copytree(path / "encoder", path / "lone")
  for name in ("tokenizer.model", "run.json"):
    (lone / name).unlink()
  (path / "other_pieces").mkdir()
  toy_runs.write_tokenizer(str(path / "other_pieces"), seed=6)
  for split, count in _SPLITS.items():
    label = "" if split == "test" else "mood"
    toy_data.write_table(str(path / f"{split}.tsv"), count, label)
  toy_data.write_table(str(path / "new.tsv"), 5, "")
  (path / "pairs.tsv").write_text(
    "mood\treview\tmood2\nbad\ta day\tthe sea\ngood\ta day\tthe sea\n"
  )
  # Two classes, but with another name.
  text = (path / "train.tsv").read_text()
  (path / "foreign.tsv").write_text(text.replace("bad\t", "schlecht\t"))
  toy_data.write_glue(str(path))
  toy_data.write_race(str(path / "RACE"))
  for name, *given in (
    ("train-v2.0", 40, True, 0),
    ("dev-v2.0", 6, True, 1),
    ("test-v2.0", 3, True, 2),
    ("squad_new", 4, True, 3),
  ):
    (path / f"{name}.json").write_text(json.dumps(toy_data.squad(*given)))
  return path


def official(folder, task, *more):
  """Returns the arguments for a task with data of its own form."""
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
    "--nolength_bucketing",
    *more,
  ]


def arguments(folder, output_dir, *more, splits=tuple(_SPLITS)):
  return [
    _TASK,
    f"--init_checkpoint={folder}/encoder",
    f"--output_dir={output_dir}",
    *[f"--{split}_file={folder}/{split}.tsv" for split in splits],
    "--text_column=review",
    "--label_column=mood",
    "--max_seq_length=24",
    "--train_batch_size=8",
    "--learning_rate=0.003",
    "--num_train_epochs=10",
    "--eval_steps=25",
    *more,
  ]


def run(*lines):
  """Runs commands in one process; returns what they print."""
  results = many_commands.run("run_finetuning", lines)
  assert [result.err for result in results] == [""] * len(lines)
  return [result.out for result in results]


def read(*parts):
  return json.loads(pathlib.Path(*map(str, parts)).read_text())


def table(folder, split):
  path = folder / "predictions" / f"{split}.probabilities.tsv"
  return common.read_probabilities(str(path))


@pytest.fixture(scope="module")
def whole(folder):
  """Trains, evaluates and predicts; returns the folder and the output."""
  (out,) = run(arguments(folder, folder / "whole"))
  return folder / "whole", out


def test_everything_at_once(whole):
  model_dir, out = whole
  assert "warm start from" in out and "variables matched, 2 missing" in out
  assert "text_classification: 75 steps of 8, peak rate 0.003" in out
  summary = read(model_dir, "summary.json")
  accuracy = summary["splits"]["dev"]["accuracy"]
  # 11 of 21 are bad; the encoder is random, the words are learned.
  assert summary["majority"]["dev"]["accuracy"] == pytest.approx(11 / 21)
  row = next(x for x in out.splitlines() if x.startswith("| dev "))
  assert row.replace("|", "").split()[1] == "accuracy" and "0.5238" in row
  assert accuracy["median"] > 0.9 and accuracy["spread"] == 0
  results = read(model_dir, "eval_results.json")
  assert results["dev"]["accuracy"] == accuracy["median"]
  dev = table(model_dir, "dev")
  assert dev.labels == ("bad", "good") and len(dev.ids) == 21
  right = np.array(dev.predictions) == ["bad", "good"] * 10 + ["bad"]
  assert right.mean() == pytest.approx(accuracy["median"])
  assert f"wrote {model_dir}/predictions/test.probabilities.tsv" in out
  assert len(table(model_dir, "test").ids) == 11
  record = read(model_dir, "run.json")
  assert record["data"]["task"] == "text_classification"
  assert record["data"]["settings"]["labels"] == ["bad", "good"]
  assert record["settings"]["learning_rate"] == 0.003
  names = {path.name for path in model_dir.iterdir()}
  assert {"albert_config.json", "tokenizer.model", "best"} < names
  report = read(model_dir, "classification_report.dev.json")
  assert report["classes"]["bad"]["support"] == 11
  matrix = np.array(report["confusion_matrix"])
  assert matrix.trace() == right.sum() and matrix.sum() == 21
  assert {"classification_report.dev.txt", "confusion_matrix.dev.png"} < names
  assert "classification_report.test.json" not in names  # It has no labels.


def test_a_trained_run_evaluates_and_predicts_other_data(
  folder, whole, tmp_path
):
  """The columns and the length are those of the run."""
  whole, model_dir = whole[0], tmp_path / "run"
  shutil.copytree(whole, model_dir)
  (model_dir / "eval_results.json").unlink()
  # Other labels, which choose nothing.
  rows = (folder / "dev.tsv").read_text().replace("bad\t", "x\t")
  rows = rows.replace("good\t", "bad\t").replace("x\t", "good\t")
  (tmp_path / "swapped.tsv").write_text(rows)
  given = [_TASK, f"--output_dir={model_dir}", "--nodo_train"]
  evaluated, scored, predicted = run(
    [*given, f"--dev_file={folder}/dev.tsv"],
    [*given, f"--test_file={tmp_path}/swapped.tsv"],
    [*given, "--nodo_eval", f"--test_file={folder}/test.tsv"],
  )
  results = read(model_dir, "eval_results.json")
  dev = read(whole, "eval_results.json")["dev"]
  accuracy = {"accuracy": pytest.approx(1 - dev["accuracy"])}
  assert results["dev"] == dev and results["test"].items() >= accuracy.items()
  summary = read(model_dir, "summary.json")
  assert summary["splits"].keys() == {"dev", "test"}
  # The training data, for the most frequent answer, is not read.
  assert "majority" not in summary and "| test " in scored
  assert "step 25" not in evaluated + scored + predicted
  for split in ("dev", "test"):
    path = pathlib.Path("predictions", f"{split}.probabilities.tsv")
    assert (model_dir / path).read_bytes() == (whole / path).read_bytes()


def test_new_adapters_are_trained_and_served(folder, tmp_path):
  given = [
    *official(folder, "sst2", "--adapter_rank=3", "--freeze_encoder"),
    f"--output_dir={tmp_path}/run",
  ]
  (out,) = run(given)
  assert "variables matched, 2 missing" in out  # Of the head.
  assert "new adapters of rank 3 begin without a difference" in out
  assert read(tmp_path, "run", "albert_config.json")["adapter_rank"] == 3
  # The same command resumes; the run's rank needs no flag to predict.
  again, predicted = run(given, [*given, "--adapter_rank=0", "--nodo_train"])
  assert "the run is finished" in again and "wrote " in predicted
  changed = ["--nofreeze_encoder", "--num_train_steps=9"]
  line = [*given, *changed, "--allow_changed_settings"]
  (refused,) = many_commands.run("run_finetuning", [line], codes=(1,))
  assert "or freezes the encoder; choose another model_dir" in refused.err
  kept, merged = tmp_path / "run", tmp_path / "merged"
  conversion.convert("hf", str(kept), str(merged))
  before, after = (
    checkpoints.by_path(AlbertModel.from_checkpoint(str(x)))
    for x in (folder / "encoder", kept)
  )
  for path, variable in after.items():
    if path.startswith("encoder/adapters/"):
      assert variable.numpy().any(), path
    elif not path.startswith("pooler/"):
      np.testing.assert_array_equal(variable, before[path], err_msg=path)
  # The optimizer knows only those, the pooler and the head.
  keys = tf.train.load_checkpoint(runs.list_checkpoints(str(kept))[-1])
  slots = [k for k in keys.get_variable_to_shape_map() if "SLOT" in k]
  assert len(slots) == 2 * (8 + 2 + 2)
  texts = ["a cold day", "the sea was sunny"]
  a, b = (official_albert.load(str(x)).classify(texts) for x in (kept, merged))
  for one, other in zip(a, b):
    assert [*one.probabilities.values()] == pytest.approx(
      [*other.probabilities.values()], abs=1e-6
    )


# Changes of a command (the last value of a flag counts), and what is named.
_REFUSALS = [
  (["--init_checkpoint=F/"], "holds no checkpoint"),
  (
    ["--init_checkpoint=F/lone"],
    "lone: give --spm_model_file, or --vocab_file",
  ),
  (["--init_checkpoint="], "--init_checkpoint=: the path is empty", 2),
  (["--label_column=stars"], "train.tsv, line 1: there is no column"),
  (["--output_dir=F/dev.tsv"], "dev.tsv is a file: name a folder."),
  (["--dev_file="], "needs --dev_file, or --dev_share"),
  (["--dev_share=0.2"], "--dev_share and --dev_file exclude each other"),
  (["--albert_config_file=F/wider/albert_config.json"], "different models"),
  (["--spm_model_file=F/other_pieces/tokenizer.model"], "is not the tokenizer"),
  (["--phase_steps=3,1"], "--phase_steps is for pretraining"),
  (["--max_seq_length=65"], "65 exceeds the model's 64 position"),
  (["--num_train_steps=3"], "exclude each other: give one"),
  (["--nodo_train", "--nodo_eval", "--nodo_predict"], "nothing to do: set"),
  (["--nodo_train"], "is not the folder of a run"),
  (["--adapter_rank=1025"], "adapter_rank is 1025, but must be from 0 to"),
]
_REFUSALS_WITHOUT_WEIGHTS = [
  ([], "no albert_config.json without --init_checkpoint"),
  (
    [
      "--freeze_encoder",
      "--albert_config_file=F/encoder/albert_config.json",
      "--spm_model_file=F/encoder/tokenizer.model",
    ],
    "freeze_encoder would keep random weights",
  ),
]
_PAIRS = [f"--{split}_file=F/pairs.tsv" for split in _SPLITS]
_FOREIGN = ["--train_file=F/foreign.tsv", "--dev_file=F/foreign.tsv"]
_SHARE = ["--dev_file=", "--dev_share=0.2"]
# The same in the folder of a run.
_REFUSALS_OF_A_RUN = [
  (["--class_weights=bad=2"], "class_weights was None at the last start"),
  (
    ["--task=text_pair_classification", "--text_b_column=mood2", *_PAIRS],
    "data.task was 'text_classification' at the last start",
  ),
  (_FOREIGN, "data.settings.labels was ['bad', 'good'] at the last start"),
  (["--learning_rate=0.01"], "learning_rate was 0.003 at the last start and"),
  (["--num_train_epochs=11"], "--allow_changed_settings to continue"),
  (["--adapter_rank=2"], "holds a run with adapter_rank 0, but"),
  (["--albert_dropout=0.5"], "holds a run with hidden_dropout_prob 0.0, but"),
  (["--nodo_train", *_SHARE], "was not trained with --dev_share=0.2"),
  (["--nodo_train", "--task=text_regression"], "--task=text_classification"),
]


def snapshot(folder):
  """Returns the size and time of each file but records."""
  return {
    str(path): (path.stat().st_size, path.stat().st_mtime_ns)
    for path in folder.rglob("*")
    if path.is_file() and "records" not in path.parts
  }


def test_wrong_commands_are_one_sentence_and_leave_runs_alone(folder, whole):
  whole = whole[0]
  cases = [
    *((folder / "bad" / str(i), *x) for i, x in enumerate(_REFUSALS)),
    *((whole, *x) for x in _REFUSALS_OF_A_RUN),
  ]
  before = snapshot(whole)
  commands = [(arguments(folder, x, *more), *y) for x, more, *y in cases]
  for more, named in _REFUSALS_WITHOUT_WEIGHTS:
    line = arguments(folder, folder / "bad" / "scratch", *more)
    commands.append(([x for x in line if not x.endswith("/encoder")], named))
  many_commands.check_refusals(
    "run_finetuning",
    [
      ([x.replace("=F/", f"={folder}/") for x in line], *named)
      for line, *named in commands
    ],
  )
  assert snapshot(whole) == before
  left = {path.name for path in (folder / "bad").rglob("*")}
  assert not any(
    name.startswith(("model.ckpt", ".")) or name.endswith(".tmp")
    for name in left
  )


def test_mnli_has_two_dev_sets_and_three_to_submit(folder):
  (out,) = run(official(folder, "mnli"))
  output = folder / "out" / "mnli"
  results = read(output / "eval_results.json")
  assert list(results) == ["dev_matched", "dev_mismatched"]
  gold = ["contradiction", "entailment", "neutral"] * 2 + ["contradiction"]
  for split, values in results.items():
    right = np.array(table(output, split).predictions) == gold
    assert values["accuracy"] == pytest.approx(right.mean())
  for name, split in (
    ("AX", "ax"),
    ("MNLI-m", "test_matched"),
    ("MNLI-mm", "test_mismatched"),
  ):
    path = output / "predictions" / f"{name}.tsv"
    labels = table(output, split).predictions
    rows = [f"{i}\t{label}" for i, label in enumerate(labels)]
    assert path.read_text().splitlines() == ["index\tprediction", *rows]
    assert f"wrote {path}" in out


@pytest.mark.heavy
def test_squad_2(folder):
  output = folder / "out" / "squad_v2"
  trained = [
    *("--task=squad_v2", f"--output_dir={output}", "--nodo_train"),
    *("--nodo_eval", f"--test_file={folder}/squad_new.json"),
  ]
  windows = ("--doc_stride=8", "--max_query_length=8")
  run(official(folder, "squad_v2", *windows), trained)
  results = read(output / "eval_results.json")["dev"]
  threshold = results["best_null_score_diff_threshold"]
  assert results["total"] == 6 and results["HasAns_total"] == 4
  assert results["null_score_diff_threshold"] == 0
  # New data is decoded with the threshold and the strides of the run.
  test = output / "predictions" / "test"
  odds, texts = read(test / "null_odds.json"), read(test / "predictions.json")
  assert list(odds) == ["q0", "q1", "q2", "q3"]
  for question, text in texts.items():
    assert (text == "") == (odds[question] > threshold)


@pytest.mark.heavy
def test_race(folder):
  run(official(folder, "race", "--max_qa_length=12"))
  output = folder / "out" / "race"
  results = read(output / "eval_results.json")["dev"]
  assert set(results) == {"accuracy", "accuracy_middle", "accuracy_high"}
  right = (table(output, "dev").values.argmax(axis=1) == 0).mean()
  assert results["accuracy"] == pytest.approx(right)
  assert len(table(output, "test").ids) == 4


@pytest.mark.heavy
def test_all_of_glue(folder):
  (out,) = run(official(folder, "glue"))
  output = folder / "out" / "glue"
  # Warnings name the seed, too.
  sections = out.split(f", seed 12345: {output}/")
  assert len(sections) == 10
  for section in sections[1:]:
    assert "warm start from" in section and "step 6/6" in section
  assert "| cola " in out and "| average " in out
  official_files = output.glob("*/predictions/[A-Z]*.tsv")
  assert len(list(official_files)) == 11
  for name in glue.GLUE_TASKS:
    summary = read(output / name / "summary.json")
    assert summary["task"] == name and summary["majority"]


def test_missing_glue_data_is_reported_before_training(folder, tmp_path):
  toy_data.write_glue(str(tmp_path), [n for n in glue.GLUE_TASKS if n != "rte"])
  more = (f"--data_dir={tmp_path}", f"--output_dir={tmp_path}/out")
  case = (official(folder, "glue", *more), "rte needs RTE/train.tsv")
  many_commands.check_refusals("run_finetuning", [case])
  assert not (tmp_path / "out").exists()
