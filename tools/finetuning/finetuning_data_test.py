"""Tests of the data of all tasks, and of naming the task of a classifier."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import shutil
import types

import numpy as np
import pytest

from official_albert import AlbertConfig, checkpoints
from official_albert.files import write_json
from official_albert.tasks import common, registry
from official_albert.tasks.common import own_files
from official_albert.tools.testing import toy_data, toy_runs

_COLUMNS = {"text": "review", "text_b": "text_b", "label": "mood", "id": ""}
_NONE = types.MappingProxyType({})


def make_task(name, folder, files=_NONE, columns=_NONE, **changes):
  options = {
    **{f"{split}_file": path for split, path in files.items()},
    **{f"{role}_column": name for role, name in columns.items()},
    "data_dir": str(folder),
    "cache_dir": str(folder / "records"),
    "tokenizer": None,
    "note": lambda text: None,
    **changes,
  }
  return registry.make_task(name, common.TaskOptions(**options))


def make_own(data, name="text_classification", **changes):
  files = {s: str(data / f"{s}.tsv") for s in ("train", "dev", "test")}
  settings = {"files": files, "columns": _COLUMNS, **changes}
  return make_task(name, data, **settings)


def on_records(task, splits=("train", "dev")):
  config = AlbertConfig.from_preset("albert_tiny")
  size = task.options.tokenizer.vocab_size
  config = dataclasses.replace(config, vocab_size=size)
  return task.with_records(splits, config, seed=3)


def table(labels, values, ids=()):
  ids = ids or tuple(str(i) for i in range(len(values)))
  return common.ProbabilityTable(ids, labels, np.array(values))


@pytest.fixture
def data(tmp_path):
  """Nine, seven and three texts."""
  for split, count in (("train", 9), ("dev", 7), ("test", 3)):
    label = "" if split == "test" else "mood"
    toy_data.write_table(str(tmp_path / f"{split}.tsv"), count, label)
  return tmp_path


def test_labels_are_those_of_the_training_data(data):
  task = make_own(data)
  assert task.labels == ("bad", "good") and task.best_metric == "accuracy"
  assert [len(task.examples(s)) for s in ("train", "dev", "test")] == [9, 7, 3]
  assert task.examples("test")[0].label is None
  # With the labels of a run, nothing is read.
  files = {"test": str(data / "test.tsv")}
  task = make_own(data, files=files, labels=("bad", "good", "so so"))
  assert task.labels == ("bad", "good", "so so")
  assert task.has_split("test") and not task.has_split("dev")
  with pytest.raises(FileNotFoundError, match="classification needs --dev_fil"):
    task.examples("dev")


def test_dev_data_from_the_training_file(data):
  path, notes = data / "train.tsv", []
  toy_data.write_table(str(path), 40)
  files = {"train": str(path), "test": str(data / "test.tsv")}

  def make(**changes):
    options = {"files": files, "dev_share": 0.25, "note": notes.append}
    return make_own(data, **options, **changes)

  task = make(tokenizer=toy_runs.write_tokenizer(str(data)))
  train, dev = task.examples("train"), task.examples("dev")
  assert notes == [
    f"--dev_share=0.25: {len(dev)} of the 40 rows of {path} are held out"
  ]
  # The ids are the numbers of the rows in the file.
  assert {int(row.guid) for row in (*train, *dev)} == set(range(40))
  text = path.read_text().splitlines()[int(dev[1].guid) + 1]
  assert text == f"{dev[1].label}\t{dev[1].text_a}"
  records = on_records(task, ("train", "dev", "test"))
  assert records.describe()["settings"]["dev_share"] == 0.25
  # With the labels of a run, only the held-out rows are used.
  again = make(labels=("bad", "good"), max_eval_examples=2)
  assert again.examples("dev") == [dev[0], dev[len(dev) // 2]]
  # Regressions have no classes.
  path.write_text("mood\treview\n" + "".join(f"{i}\tt{i}\n" for i in range(9)))
  task = make_own(data, "text_regression", files=files, dev_share=0.5)
  assert len(task.examples("train")) + len(task.examples("dev")) == 9


@pytest.mark.parametrize(
  "share, message",
  [
    (1e-9, "--dev_share=1e-09 holds out 0 of the 8 rows of .*train.tsv, but"),
    (0.5, "=0.5 holds out .*train.tsv, but both sides need rows, and the tr"),
  ],
)
def test_shares_that_leave_nothing(data, share, message):
  rows = [common.TextExample("", f"t{i}", None, "c") for i in range(8)]
  _, held_out = own_files.hold_out(rows, 0.5)
  lines = [f"{'ab'[i % 2]}\tother {i}\n" for i in range(7)]
  lines.append(f"c\t{held_out[0].text_a}\n")
  (data / "train.tsv").write_text("mood\treview\n" + "".join(lines))
  with pytest.raises(ValueError, match=message):
    make_own(data, files={"train": str(data / "train.tsv")}, dev_share=share)


def test_predictions_of_other_data_are_not_scored(data):
  task = make_own(data)
  majority = {"accuracy": pytest.approx(4 / 7), "matthews": 0}
  assert task.majority("dev").items() >= majority.items()
  for labels, count in ((("bad", "good"), 6), (("good", "bad"), 7)):
    with pytest.raises(ValueError, match="predictions of dev do not belong to"):
      task.score_answers("dev", table(labels, [[0, 1]] * count))


def test_files_are_checked_before_records_are_built(data):
  tokenizer = toy_runs.write_tokenizer(str(data))
  columns = {**_COLUMNS, "id": "id"}

  def problem(name="text_classification", columns=columns):
    task = make_own(data, name, tokenizer=tokenizer, columns=columns)
    with pytest.raises(ValueError) as error:
      on_records(task, ("train", "dev", "test"))
    assert not os.path.exists(task.options.cache_dir)
    return str(error.value)

  assert "--id_column=id: none of the files has" in problem()
  (data / "test.tsv").write_text("review\tid\na sea\tx\na sea\tx\n")
  assert "the test id 'x' is empty, occurs twice" in problem()
  (data / "test.tsv").write_text("review\ta day\n")
  assert "test.tsv has no rows" in problem(columns=_COLUMNS)
  (data / "train.tsv").write_text("mood\treview\n7\ta\n7\tb\n")
  (data / "dev.tsv").write_text("mood\treview\n5\ta\n")
  (data / "test.tsv").write_text("review\na\n")
  message = problem("text_regression", _COLUMNS)
  assert "train.tsv: all 2 training labels are 7" in message


def test_columns_of_one_file_only(data):
  tokenizer = toy_runs.write_tokenizer(str(data))
  (data / "test.tsv").write_text("id\tmood\treview\nx\tbad\ta sea\n")
  columns, notes = {**_COLUMNS, "id": "id"}, []
  task = make_own(data, tokenizer=tokenizer, columns=columns, note=notes.append)
  on_records(task, ("train", "dev", "test"))
  assert task.ids("test") == ["x"] and task.ids("dev") == list("0123456")
  assert task.is_labeled("test") and task.is_labeled("dev")
  answers = table(task.labels, [[1.0, 0.0]], ("x",))
  assert task.score_answers("test", answers)["accuracy"] == 1
  # As in files whose labels are kept secret.
  (data / "test.tsv").write_text("mood\treview\n-1\ta sea\n-1\tday\n")
  task = make_own(data, note=notes.append)
  assert not task.is_labeled("test")
  assert "test.tsv: no mood is one of the training data" in notes[-1]
  (data / "test.tsv").write_text("mood\treview\nbad\ta sea\nfine\tday\n")
  with pytest.raises(
    ValueError, match="line 3: unknown label 'fine'.* Correct"
  ):
    make_own(data).examples("test")


@pytest.mark.parametrize(
  "name", ["text_pair_classification", "mrpc", "squad_v1", "race"]
)
def test_no_pairs_for_a_model_without_a_second_segment(data, name):
  tokenizer = toy_runs.write_tokenizer(str(data))
  config = AlbertConfig.from_preset("albert_tiny")
  config = dataclasses.replace(
    config, vocab_size=tokenizer.vocab_size, type_vocab_size=1
  )
  options = {"tokenizer": tokenizer, "labels": ("bad", "good")}
  task = make_own(data, name, **options)
  with pytest.raises(ValueError, match="type_vocab_size 1, so no embedding"):
    task.with_records(("dev",), config, seed=3)
  make_own(data, **options).with_records(("dev",), config, seed=3)


def test_glue(tmp_path):
  toy_data.write_glue(str(tmp_path), ["mnli", "mrpc", "stsb"], train=10)
  (tmp_path / "MNLI" / "test_mismatched.tsv").unlink()
  task = make_task("mnli", tmp_path)
  splits = [split for split in task.test_splits if task.has_split(split)]
  assert splits == ["test_matched", "ax"]
  # The first class has four of ten training rows, and three of seven in dev.
  assert task.majority("dev_matched") == {"accuracy": pytest.approx(3 / 7)}
  # Labels alternate; the last three are wrong.
  values = np.eye(2)[[0, 1, 0, 1, 1, 0, 1]]
  task = make_task("mrpc", tmp_path)
  values = task.score_answers("dev", table(("0", "1"), values))
  assert list(values) == ["accuracy", "f1"]  # In the official order.
  assert values == pytest.approx({"accuracy": 4 / 7, "f1": 4 / 7})
  task = make_task("stsb", tmp_path)
  assert task.labels is None and task.best_metric == "pearson"
  assert task.majority("dev") == {"pearson": 0, "spearman": 0}


def test_squad_files(tmp_path):
  write_json(tmp_path / "train-v1.1.json", toy_data.squad(3))
  text = json.dumps(toy_data.squad(4)).encode()
  (tmp_path / "dev-v1.1.json.gz").write_bytes(gzip.compress(text))
  write_json(tmp_path / "mine.json", toy_data.squad(5))
  files = {"test": str(tmp_path / "mine.json")}
  task = make_task("squad_v1", tmp_path, files=files)
  lengths = [len(task.examples(split)) for split in ("train", "dev", "test")]
  assert lengths == [3, 4, 5]
  task = make_task("squad_v1", tmp_path)
  assert task.has_split("dev") and not task.has_split("test")
  with pytest.raises(FileNotFoundError, match="has no test-v1.1.json: give th"):
    task.examples("test")
  # With all files given, no folder is needed.
  task = make_task("squad_v1", tmp_path, data_dir="", files=files)
  assert len(task.examples("test")) == 5 and task.is_labeled("test")
  some = toy_data.squad(3)
  del some["data"][0]["paragraphs"][1]["qas"][0]["answers"]
  write_json(tmp_path / "mine.json", some)
  notes = []
  task = make_task("squad_v1", tmp_path, files=files, note=notes.append)
  assert not task.is_labeled("test") and "only 2 of its 3 exam" in notes[-1]


def test_race(tmp_path):
  toy_data.write_race(str(tmp_path / "RACE"), train=3)
  task, v2 = make_task("race", tmp_path), make_task("race_v2", tmp_path)
  assert task.name == v2.name == "race" and task.recipe != v2.recipe
  assert task.has_split("test") and len(task.examples("train")) == 12
  right = np.eye(4)[[0, 0, 0, 1]]  # Except the last.
  answers = table(tuple("ABCD"), right, tuple(task.ids("dev")))
  assert task.score_answers("dev", answers) == {
    "accuracy": 0.75,
    "accuracy_middle": 1.0,
    "accuracy_high": 0.5,
  }
  shutil.rmtree(tmp_path / "RACE" / "test")
  assert not make_task("race", tmp_path).has_split("test")


def classifier(labels=(), classes=3, head="classification", **values):
  weights = {"output_weights": np.zeros([classes, 5], np.float32)}
  return checkpoints.PortableCheckpoint(
    "x", AlbertConfig.from_preset("albert_tiny"), weights, head,
    labels=tuple(labels), **values,
  )  # fmt: skip


@pytest.mark.parametrize(
  "task, arguments, message",
  [
    ("stsb", {}, "the head classification, but the task needs regression"),
    # In another order, and unnamed.
    (
      "mnli",
      {"labels": ("entailment", "neutral", "contradiction")},
      "classes entailment, neutral, contradiction, but the task has contr",
    ),
    ("rte", {"classes": 2}, "LABEL_0, LABEL_1, but the task has"),
    ("cola", {"head_problem": "x gives several"}, "because x gives several"),
    ("text_classification", {"task": "sst2"}, "it is of --task=sst2"),
  ],
)
def test_name_task_of_another_classifier(task, arguments, message):
  with pytest.raises(ValueError, match=message):
    registry.name_task(classifier(**arguments), task)
