"""Tests of the jobs of GLUE and of the user's own texts."""

from __future__ import annotations

import dataclasses
import os

import numpy as np
import pytest

from official_albert import AlbertConfig, checkpoints
from tasks import common
from tasks.classification import glue
from tools.finetuning import jobs, text_jobs
from tools.testing import toy_data, toy_encoder

_COLUMNS = {"text": "review", "text_b": "text_b", "label": "mood", "id": ""}


@pytest.fixture
def data(tmp_path):
  for split, count in (("train", 9), ("dev", 7), ("test", 3)):
    label = "" if split == "test" else "mood"
    toy_data.write_table(str(tmp_path / f"{split}.tsv"), count, label)
  return tmp_path


def options(data, **changes):
  return jobs.Options(
    **{
      "data_dir": "",
      "cache_dir": str(data / "records"),
      "tokenizer": None,
      "files": {s: str(data / f"{s}.tsv") for s in ("train", "dev", "test")},
      "columns": _COLUMNS,
      "note": lambda text: None,
      **changes,
    }
  )


def own(data, name="text_classification", **changes):
  return text_jobs.OwnJob(name, options(data, **changes))


def table(labels, values):
  ids = tuple(str(i) for i in range(len(values)))
  return common.ProbabilityTable(ids, labels, np.array(values))


def test_labels_are_those_of_the_training_data(data):
  job = own(data)
  assert job.labels == ("bad", "good") and job.best_metric == "accuracy"
  assert [len(job.examples(s)) for s in ("train", "dev", "test")] == [9, 7, 3]
  assert job.examples("test")[0].label is None
  # With the labels of a run, nothing is read.
  files = {"test": str(data / "test.tsv")}
  job = own(data, files=files, labels=("bad", "good", "so so"))
  assert job.labels == ("bad", "good", "so so")
  assert not job.has_split("dev")
  with pytest.raises(FileNotFoundError, match="classification needs --dev_fil"):
    job.examples("dev")


@pytest.mark.parametrize(
  "row, message",
  [
    ("awful\tcold day", r"dev.tsv, line 9: unknown label 'awful'; the known"),
    ("bad", "line 9 has 1 columns, the header has 2"),
    ("bad\t ", "line 9: 'review' is empty"),
  ],
)
def test_invalid_rows(data, row, message):
  with open(data / "dev.tsv", "a", encoding="utf-8") as file:
    file.write(f"{row}\n")
  with pytest.raises(ValueError, match=message):
    own(data).examples("dev")


def test_missing_column(data):
  columns = {**_COLUMNS, "text": "texts"}
  with pytest.raises(ValueError, match="no column 'texts'.*'review'"):
    own(data, columns=columns)


def test_scores(data):
  job = own(data)
  # Labels alternate between bad and good; rows 0 and 1 are wrong.
  said = [[0.25, 0.75], [0.75, 0.25]] + [[0.75, 0.25], [0.25, 0.75]] * 2
  values = job.score("dev", table(("bad", "good"), [*said, [1, 0]]))
  assert values["accuracy"] == pytest.approx(5 / 7)
  with pytest.raises(ValueError, match="row 7 .* of nothing, but the data has"):
    job.score("dev", table(("bad", "good"), said))
  majority = job.majority("dev")
  assert majority["accuracy"] == pytest.approx(4 / 7)
  assert majority["matthews"] == 0


def test_regressions_have_numbers(data):
  rows = ["mood\treview", "1\ta day", "2\tthe sea", "6\told tree"]
  for split in ("train", "dev"):
    (data / f"{split}.tsv").write_text("\n".join(rows) + "\n")
  job = own(data, "text_regression")
  assert job.labels is None and job.best_metric == "pearson"
  # The mean is 3.
  assert job.majority("dev")["mean_squared_error"] == pytest.approx(14 / 3)
  assert job.majority("dev")["pearson"] == 0
  values = job.score("dev", table((), [3.0, 5.0, 13.0]))
  assert values["pearson"] == pytest.approx(1)
  with pytest.raises(
    ValueError, match="labels of a regression, but the task h"
  ):
    own(data, labels=("1", "2", "6")).score("dev", table((), [1.0, 2.0, 6.0]))
  (data / "dev.tsv").write_text("mood\treview\nmuch\ta day\n")
  with pytest.raises(ValueError, match="line 2: 'mood' must be a finite numbe"):
    own(data, "text_regression").examples("dev")


def test_pairs_have_two_texts(data):
  (data / "train.tsv").write_text("mood\treview\ttext_b\n1\tx\ty\n2\tz\tw\n")
  example = own(data, "text_pair_classification").examples("train")[1]
  assert (example.text_a, example.text_b) == ("z", "w")


def test_make_task(data):
  tokenizer = toy_encoder.write_tokenizer(str(data))
  job = own(data, tokenizer=tokenizer, max_seq_length=19)
  config = dataclasses.replace(
    AlbertConfig.from_preset("albert_tiny"), vocab_size=tokenizer.vocab_size
  )
  settings = common.ModelSettings(albert_dropout=0.25)
  task = job.make_task(("train", "dev"), config, settings, seed=3)
  assert sorted(task.records) == ["dev", "train"]
  assert task.labels == ("bad", "good")
  assert task.config.hidden_dropout_prob == 0.25
  assert task.max_seq_length == 19
  described = task.describe()
  assert described["task"] == "text_classification"
  assert described["settings"] == {
    "labels": ["bad", "good"],
    "number": 9,
    "columns": _COLUMNS,
  }
  assert task.records["dev"].endswith(described["records"]["dev"])
  # Splits that are only predicted do not change it.
  task = job.make_task(("train", "dev", "test"), config, settings, seed=3)
  assert task.describe() == described
  batch = next(iter(task.dataset("test", 4)))
  assert sum(batch["example_weight"].numpy()) == 3


def test_no_records_that_the_model_cannot_read(data):
  tokenizer = toy_encoder.write_tokenizer(str(data))
  job = own(data, tokenizer=tokenizer, max_seq_length=513)
  config = dataclasses.replace(
    AlbertConfig.from_preset("albert_tiny"), vocab_size=tokenizer.vocab_size
  )
  settings = common.ModelSettings()
  with pytest.raises(ValueError, match="513 is more than the model's 512"):
    job.make_task(("dev",), config, settings, seed=3)
  config = dataclasses.replace(config, vocab_size=8000)
  with pytest.raises(ValueError, match="but the model has vocab_size 8000"):
    job.make_task(("dev",), config, settings, seed=3)
  assert not os.path.exists(job.options.cache_dir)


def test_glue(tmp_path):
  toy_data.write_glue(str(tmp_path), ["mnli", "stsb"], train=10)
  (tmp_path / "MNLI" / "test_mismatched.tsv").unlink()
  job = text_jobs.GlueJob("mnli", options(tmp_path, data_dir=str(tmp_path)))
  assert job.eval_splits == ("dev_matched", "dev_mismatched")
  there = [split for split in job.test_splits if job.has_split(split)]
  assert there == ["test_matched", "ax"]
  assert job.recipe.num_train_steps == 10000
  # The first class has four of ten training rows, and three of seven in dev.
  assert job.majority("dev_matched") == {"accuracy": pytest.approx(3 / 7)}
  with pytest.raises(FileNotFoundError, match="mnli needs MNLI/test_mismatch"):
    job.sources("test_mismatched")
  job = text_jobs.GlueJob("stsb", options(tmp_path, data_dir=str(tmp_path)))
  assert job.labels is None and job.best_metric == "pearson"
  assert job.majority("dev") == {"pearson": 0, "spearman": 0}


def test_malformed_rows_of_qqp_are_reported(tmp_path):
  toy_data.write_glue(str(tmp_path), ["qqp"])
  with open(tmp_path / "QQP" / "dev.tsv", "a", encoding="utf-8") as file:
    file.write("cut\n")
  notes = []
  changes = {"data_dir": str(tmp_path), "note": notes.append}
  job = text_jobs.GlueJob("qqp", options(tmp_path, **changes))
  assert len(job.examples("dev")) == 7
  assert notes == ["dev of qqp: skipped 1 malformed rows, the first in line 9"]


def classifier(labels=(), classes=3, head="classification", **values):
  weights = {"output_weights": np.zeros([classes, 5], np.float32)}
  return checkpoints.PortableCheckpoint(
    "x", AlbertConfig.from_preset("albert_tiny"), weights, head,
    labels=tuple(labels), **values,
  )  # fmt: skip


@pytest.mark.parametrize(
  "task, arguments, labels",
  [
    ("text_classification", {"labels": "cab"}, ("c", "a", "b")),
    ("text_pair_classification", {}, ("LABEL_0", "LABEL_1", "LABEL_2")),
    ("text_regression", {"classes": 1, "head": "regression"}, ()),
    ("stsb", {"classes": 1, "head": "regression", "labels": "a"}, ()),
    ("qqp", {"classes": 2}, ("0", "1")),
    ("rte", {"labels": glue.GLUE_TASKS["rte"].labels}, None),
  ],
)
def test_name_task(task, arguments, labels):
  checkpoint = classifier(**arguments)
  text_jobs.name_task(checkpoint, task)
  assert checkpoint.task == task
  expected = glue.GLUE_TASKS["rte"].labels
  assert checkpoint.labels == (expected if labels is None else labels)


@pytest.mark.parametrize(
  "task, arguments, message",
  [
    ("stsb", {}, "the head classification, but --task=stsb needs regression"),
    (
      "sst2",
      {"head": "none"},
      "the head none, but --task=sst2 needs classific",
    ),
    # In another order, and unnamed.
    (
      "mnli",
      {"labels": ("entailment", "neutral", "contradiction")},
      "has the classes entailment, neutral, contradiction, but --task=mnli",
    ),
    ("rte", {"classes": 2}, "LABEL_0..., but --task=rte has entailment, not_"),
    ("cola", {"multi_label": True}, "several classes or numbers to one text"),
    ("text_classification", {"task": "sst2"}, "x is of --task=sst2, not of te"),
  ],
)
def test_name_task_of_another_classifier(task, arguments, message):
  with pytest.raises(ValueError, match=message):
    text_jobs.name_task(classifier(**arguments), task)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
