"""The program on one's own texts: all at once, each part alone, refusals.

What the official tasks give, and what a kill leaves, is in
finetuning_tasks_test.py.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil

import numpy as np
import pytest

from tasks import common
from tools.testing import many_commands, toy_data, toy_encoder, toy_finetuned

_TASK = "--task=text_classification"
_SPLITS = {"train": 60, "dev": 21, "test": 11}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """An encoder, a table for each split, and some that are wrong."""
  path = tmp_path_factory.mktemp("finetuning")
  toy_encoder.write(str(path / "encoder"))
  toy_encoder.write(str(path / "wider"), hidden_size=26)
  (path / "other_pieces").mkdir()
  toy_encoder.write_tokenizer(str(path / "other_pieces"), seed=6)
  for split, count in _SPLITS.items():
    toy_data.write_table(
      str(path / f"{split}.tsv"), count, "" if split == "test" else "mood"
    )
  toy_data.write_table(str(path / "new.tsv"), 5, "")
  toy_data.write_table(str(path / "renamed.tsv"), 5, "stars")
  (path / "empty.tsv").write_text("")
  (path / "unknown.tsv").write_text("mood\treview\nbad\ta day\nfine\tsea\n")
  (path / "pairs.tsv").write_text(
    "mood\treview\tmood2\nbad\ta day\tthe sea\ngood\ta day\tthe sea\n"
  )
  (path / "many.tsv").write_text("mood\treview\na\tday\nb\tsea\nc\ttree\n")
  # Their classes and columns, but with two other names.
  text = (path / "train.tsv").read_text()
  (path / "foreign.tsv").write_text(text.replace("bad\t", "schlecht\t"))
  return path


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
  """Runs command after command in one process; none may fail."""
  results = many_commands.run("run_finetuning", lines)
  for line, result in zip(lines, results):
    assert (result.code, result.err) == (0, ""), (line, result)
  return [result.out for result in results]


def read(*parts):
  return json.loads(pathlib.Path(*map(str, parts)).read_text())


def table(*parts):
  path = os.path.join(*map(str, parts))
  return common.read_probabilities(path + common.PROBABILITIES_SUFFIX)


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
  # 11 of 21 are bad; the encoder is random, the words are learnt.
  assert summary["majority"]["dev"]["accuracy"] == pytest.approx(11 / 21)
  assert accuracy["median"] > 0.9 and accuracy["spread"] == 0
  assert "(most frequent answer 0.5238)" in out
  results = read(model_dir, "eval_results.json")
  assert results["dev"]["accuracy"] == accuracy["median"]
  dev = table(model_dir, "predictions", "dev")
  assert dev.labels == ("bad", "good") and len(dev.ids) == 21
  right = np.array(dev.predictions) == ["bad", "good"] * 10 + ["bad"]
  assert right.mean() == pytest.approx(accuracy["median"])
  assert f"wrote {model_dir}/predictions/test.probabilities.tsv" in out
  assert len(table(model_dir, "predictions", "test").ids) == 11
  record = read(model_dir, "run.json")
  assert record["data"]["task"] == "text_classification"
  assert record["data"]["settings"]["labels"] == ["bad", "good"]
  assert record["settings"]["learning_rate"] == 0.003
  names = {path.name for path in model_dir.iterdir()}
  assert {"albert_config.json", "tokenizer.model", "best"} < names


@pytest.mark.heavy
def test_each_part_alone_gives_the_same(folder, whole):
  """As all of them at once; and what the run knows needs no flags."""
  whole, alone = whole[0], folder / "alone"
  trained = [_TASK, f"--output_dir={alone}", "--nodo_train"]
  outs = run(
    arguments(
      folder,
      alone,
      "--nodo_eval",
      "--nodo_predict",
      splits=("train", "dev"),
    ),
    [*trained, f"--dev_file={folder}/dev.tsv"],
    [*trained, "--nodo_eval", f"--test_file={folder}/test.tsv"],
  )
  assert "wrote" not in outs[0]
  assert "step 25" not in outs[1] + outs[2]
  assert read(alone, "eval_results.json") == read(whole, "eval_results.json")
  for split in ("dev", "test"):
    path = pathlib.Path("predictions", f"{split}.probabilities.tsv")
    assert (alone / path).read_bytes() == (whole / path).read_bytes()
  # The training data, for the most frequent answer, is not read.
  assert "majority" not in read(alone, "summary.json")


@pytest.mark.heavy
def test_several_seeds(folder):
  output_dir = folder / "seeds"
  first, again, other = run(
    arguments(folder, output_dir, "--seeds=2", "--random_seed=5"),
    arguments(folder, output_dir, "--seeds=2", "--random_seed=5"),
    [
      _TASK,
      f"--output_dir={output_dir}",
      "--nodo_train",
      "--nodo_eval",
      "--seeds=2",
      "--random_seed=5",
      f"--test_file={folder}/new.tsv",
    ],
  )
  assert f"text_classification, seed 6: {output_dir}/seed_6" in first
  # The second use of the records.
  assert first.count("train records of text_classification are there") == 1
  summary = read(output_dir, "summary.json")
  assert list(summary["seeds"]) == ["5", "6"]
  accuracy = summary["splits"]["dev"]["accuracy"]
  values = [run["dev"]["accuracy"] for run in summary["seeds"].values()]
  assert accuracy["median"] == pytest.approx(sum(values) / 2)
  assert (accuracy["worst"], accuracy["best"]) == tuple(sorted(values))
  for seed, results in summary["seeds"].items():
    model_dir = output_dir / f"seed_{seed}"
    assert read(model_dir, "eval_results.json") == results
    assert read(model_dir, "run.json")["settings"]["seed"] == int(seed)
  tables = [
    table(output_dir, f"seed_{seed}", "predictions", "dev") for seed in (5, 6)
  ]
  assert not np.allclose(tables[0].values, tables[1].values)
  # What is over is not trained again.
  assert again.count("resumed from") == 2 and "warning" not in again
  assert "step 75/75" in first and "step 75/75" not in again
  line = next(
    line for line in first.splitlines() if "dev accuracy: median" in line
  )
  assert line in again
  # Of other data each predicts.
  for seed in (5, 6):
    said = table(output_dir, f"seed_{seed}", "predictions", "test")
    assert said.ids == tuple("01234")
  assert "step" not in other


def test_a_warm_start_keeps_the_meaning_of_each_class(tmp_path):
  """The head's rows are put in the order of the data's labels."""
  stored = ("good", "so so", "bad")
  toy_finetuned.write(str(tmp_path / "old"), _TASK[7:], labels=stored)
  rows = [f"{name}\tthe sea was {name}" for name in sorted(stored)]
  train_file = tmp_path / "train.tsv"
  train_file.write_text("\n".join(["mood\treview", *rows]))
  toy_data.write_table(str(tmp_path / "test.tsv"), 13, "")

  def line(folder, *more):
    return [
      _TASK,
      f"--output_dir={tmp_path}/{folder}",
      f"--test_file={tmp_path}/test.tsv",
      "--text_column=review",
      *more,
    ]

  _, out = run(
    line("old", "--nodo_train", "--nodo_eval"),
    line(
      "new",
      f"--init_checkpoint={tmp_path}/old",
      f"--train_file={train_file}",
      f"--dev_file={train_file}",
      "--label_column=mood",
      "--max_seq_length=24",
      "--nolength_bucketing",
      "--num_train_steps=1",
      "--learning_rate=1e-12",
    ),
  )
  old, new = (
    table(tmp_path, folder, "predictions", "test") for folder in ("old", "new")
  )
  assert old.labels == stored and new.labels == ("bad", "good", "so so")
  assert old.predictions == new.predictions
  np.testing.assert_allclose(new.values, old.values[:, [2, 0, 1]], atol=1e-5)
  assert " variables matched, 0 missing" in out
  assert (
    "  the head is kept, for the classes bad, good, so so, whose rows are put "
    "in this order; the checkpoint's is for the classes good, so so, bad\n"
  ) in out


# Each: what changes in the command, and the sentence. Written in full, what is
# given last counts.
_REFUSALS = [
  ("column", ["--label_column=stars"], "train.tsv, line 1: there is no column"),
  ("dev_column", ["--dev_file=F/renamed.tsv"], "renamed.tsv, line 1: there is"),
  ("unknown", ["--dev_file=F/unknown.tsv"], "line 3: unknown label 'fine'"),
  ("empty", ["--train_file=F/empty.tsv"], "empty.tsv is empty"),
  ("output", ["--output_dir=F/dev.tsv"], "dev.tsv is a file: name a folder."),
  ("no_file", ["--dev_file=F/none.tsv"], "none.tsv: No such file or directory"),
  ("no_dev", ["--dev_file="], "--task=text_classification needs --dev_file."),
  ("data_dir", ["--task=cola"], "--train_file does not apply to --task=cola"),
  (
    "size",
    ["--albert_config_file=F/wider/albert_config.json"],
    "the checkpoint is of another size or vocabulary",
  ),
  (
    "tokenizer",
    ["--spm_model_file=F/other_pieces/tokenizer.model"],
    "other_pieces/tokenizer.model is not the tokenizer that the model in",
  ),
  (
    "encoder",
    ["--init_checkpoint=F/none/x"],
    "none/x does not exist.",
  ),
  ("long", ["--max_seq_length=65"], "65 is more than the model's 64 position"),
  ("steps", ["--num_train_steps=3"], "exclude each other: give one"),
  ("nothing", ["--nodo_train", "--nodo_eval", "--nodo_predict"], "nothing to"),
  ("no_run", ["--nodo_train"], "is not the folder of a run"),
  ("batch", ["--gradient_accumulation_steps=3"], "cannot be cut into 3 equal"),
]


@pytest.fixture(scope="module")
def refused(folder, whole):
  """The commands that end with one sentence; by name how."""
  whole = whole[0]
  lines = {
    name: arguments(
      folder,
      folder / "bad" / name,
      *[argument.replace("F/", f"{folder}/") for argument in more],
    )
    for name, more, _ in _REFUSALS
  }
  lines["other_task"] = arguments(
    folder, whole, "--task=text_pair_classification", "--text_b_column=mood2"
  ) + [f"--{split}_file={folder}/pairs.tsv" for split in _SPLITS]
  for name in ("foreign", "many"):
    lines[name] = arguments(
      folder,
      whole,
      *[f"--{split}_file={folder}/{name}.tsv" for split in ("train", "dev")],
    )
  lines["other_rate"] = arguments(folder, whole, "--learning_rate=0.01")
  lines["more_epochs"] = arguments(folder, whole, "--num_train_epochs=11")
  # Of two seeds, the second one's folder is that of a run of another seed.
  shutil.copytree(whole, folder / "pair" / "seed_12346")
  lines["second_seed"] = arguments(folder, folder / "pair", "--seeds=2")
  lines["other_dropout"] = arguments(folder, whole, "--albert_dropout=0.5")
  trained = [f"--output_dir={whole}", "--nodo_train"]
  lines["regression"] = [
    "--task=text_regression",
    *trained,
    f"--dev_file={folder}/dev.tsv",
  ]
  lines["no_test"] = [_TASK, *trained, "--nodo_eval"]
  before = snapshot(whole)
  results = many_commands.run("run_finetuning", list(lines.values()))
  assert snapshot(whole) == before
  return dict(zip(lines, results))


def snapshot(folder):
  """Of each file but records its size and time."""
  return {
    str(path): (path.stat().st_size, path.stat().st_mtime_ns)
    for path in folder.rglob("*")
    if path.is_file() and "records" not in path.parts
  }


@pytest.mark.parametrize(
  "name, message", [(name, message) for name, _, message in _REFUSALS]
)
def test_a_wrong_command_is_one_sentence(folder, refused, name, message):
  code, _, err = refused[name]
  assert code == 1
  assert err.count("\n") == 1 and message in err
  output_dir = folder / "bad" / name
  assert not list(output_dir.rglob("model.ckpt*"))
  assert not list(output_dir.rglob(".*")) + list(output_dir.rglob("*.tmp"))


@pytest.mark.parametrize(
  "name, message",
  [
    ("other_task", "run of text_classification, not of text_pair_classificati"),
    ("foreign", "of the classes bad, good, but the training data has goo"),
    ("many", "of the classes bad, good, but the training data has a, b"),
    ("other_rate", "learning_rate was 0.003 at the last start and is now 0.01"),
    ("other_rate", "is finished at step 75, with nothing left to train"),
    ("more_epochs", "num_train_steps was 75 at the last start and is now 83"),
    ("more_epochs", "another folder, or --allow_changed_settings to go on"),
    ("second_seed", "seed_12346 is finished at step 75, with nothing left to"),
    ("other_dropout", "holds a run with hidden_dropout_prob 0.0, but the flag"),
    ("regression", "give --task=text_classification, or another --output"),
    ("no_test", "--task=text_classification needs --test_file."),
  ],
)
def test_a_folder_of_another_run_stays_as_it_is(refused, name, message):
  code, _, err = refused[name]
  assert code == 1
  assert err.count("\n") == 1 and message in err


def test_the_folders_of_all_seeds_are_looked_at_before_any_work(
  folder, refused
):
  assert refused["second_seed"].code == 1
  assert not (folder / "pair" / "seed_12345").exists()


def test_values_that_flags_refuse():
  lines = [["--task=mrcp"], ["--task=mrpc", "--seeds=0"]]
  results = many_commands.run("run_finetuning", lines)
  for result, message in zip(results, ("mrcp", "--seeds=0")):
    assert result.code == 2 and message in result.err


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
