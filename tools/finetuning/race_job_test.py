"""RACE as a job."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from official_albert import AlbertConfig
from tasks import common
from tools.finetuning import jobs as finetuning_jobs
from tools.finetuning import race_job
from tools.testing import toy_data, toy_encoder


@pytest.fixture
def data(tmp_path):
  toy_data.write_race(str(tmp_path / "RACE"), train=3)
  return tmp_path


def make(data, name="race", **changes):
  options = {
    "data_dir": str(data),
    "cache_dir": str(data / "records"),
    "tokenizer": None,
    "note": lambda text: None,
    **changes,
  }
  return race_job.RaceJob(name, finetuning_jobs.Options(**options))


def test_both_recipes_are_of_one_task(data):
  v1, v2 = make(data), make(data, "race_v2")
  assert v1.name == v2.name == "race"
  rates = [job.recipe.learning_rate for job in (v1, v2)]
  assert rates == [2e-5, 1e-5]
  assert v1.has_split("test") and len(v1.examples("train")) == 12
  for path in (data / "RACE" / "test").glob("*/*"):
    path.unlink()
  assert not make(data).has_split("test")


def test_only_the_test_may_lack_answers(data):
  for split in ("dev", "test"):
    path = data / "RACE" / split / "high" / "0.txt"
    passage = json.loads(path.read_text())
    del passage["answers"]
    path.write_text(json.dumps(passage))
  job = make(data)
  assert [e.label for e in job.examples("test")] == [0, 0, None, None]
  with pytest.raises(
    ValueError, match=r"dev/high/0.txt: the passage has no an"
  ):
    job.examples("dev")


def test_a_question_without_options_is_named(data):
  path = data / "RACE" / "train" / "middle" / "1.txt"
  passage = json.loads(path.read_text())
  passage["options"][1] = []
  path.write_text(json.dumps(passage))
  with pytest.raises(
    ValueError, match="middle/1.txt, question 2 of 2: it has 0"
  ):
    make(data).examples("train")


def test_scores(data):
  job = make(data)
  examples = job.examples("dev")
  table = common.ProbabilityTable(
    tuple(e.example_id for e in examples),
    tuple("ABCD"),
    np.eye(4)[[0, 0, 0, 1]],  # The last is wrong.
  )
  assert job.score("dev", table) == {
    "accuracy": 0.75,
    "accuracy_middle": 1.0,
    "accuracy_high": 0.5,
  }
  # A, of the first questions, is also the second ones' answer in dev.
  assert job.majority("dev")["accuracy"] == 1.0
  with pytest.raises(
    ValueError, match="row 2 .* is of nothing, but the data has h"
  ):
    make(data, max_eval_examples=2).score(
      "dev",
      dataclasses.replace(table, ids=table.ids[:1], values=table.values[:1]),
    )


def test_a_task_whose_records_know_their_questions(data):
  tokenizer = toy_encoder.write_tokenizer(str(data))
  config = dataclasses.replace(
    AlbertConfig.from_preset("albert_tiny"), vocab_size=tokenizer.vocab_size
  )

  def task():
    job = make(
      data,
      tokenizer=tokenizer,
      max_seq_length=23,
      recipe={"max_qa_length": 9},
    )
    return job.make_task(
      ("train", "dev"), config, common.ModelSettings(), seed=3
    )

  first = task()
  batch = next(iter(first.dataset("dev", 3)))
  assert batch["input_ids"].shape[:2] == (3, 4)
  assert batch["label_ids"].numpy().tolist() == [0, 0, 0]
  assert task().records == first.records
  path = data / "RACE" / "dev" / "high" / "0.txt"
  path.write_text(path.read_text().replace("warm", "snow"))
  again = task().records
  assert again["train"] == first.records["train"]
  assert again["dev"] != first.records["dev"]


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
