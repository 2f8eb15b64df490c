"""Tests of `Job`, the jobs of SQuAD and RACE, and the registry."""

from __future__ import annotations

import dataclasses
import gzip
import json

import numpy as np
import pytest

from official_albert import AlbertConfig
from tasks import classification, common
from tasks.squad import Candidate, QuestionAnswers
from tools.finetuning import jobs, registry
from tools.testing import toy_data, toy_encoder


def options(**changes):
  return jobs.Options(data_dir="", cache_dir="", tokenizer=None, **changes)


class Letters(jobs.Job):
  """Counts its reads."""

  reads = 0

  def sources(self, split):
    if split == "test":
      raise FileNotFoundError("no test.")
    return []

  def _read(self, split):
    self.reads += 1
    return "abcdefg" if split == "train" else "vwxyz"


def test_examples_are_read_once_and_evenly_spaced():
  job = Letters(
    classification.Recipe(), options(max_train_examples=3, max_eval_examples=5)
  )
  assert job.examples("train") == ["a", "c", "e"]
  assert job.num_train_examples() == 3
  assert job.examples("dev") == "vwxyz"  # No more than there are.
  assert job.examples("train") == ["a", "c", "e"] and job.reads == 2
  assert (
    Letters(classification.Recipe(), options()).examples("train") == "abcdefg"
  )


def test_has_split():
  job = Letters(classification.Recipe(), options())
  assert job.has_split("dev") and not job.has_split("test")


def test_recipe_and_changes():
  job = Letters(classification.Recipe(), options())
  assert job.max_seq_length == classification.Recipe().max_seq_length == 128
  assert (
    Letters(classification.Recipe(), options(max_seq_length=7)).max_seq_length
    == 7
  )
  job = Letters(
    classification.Recipe(), options(recipe={"train_batch_size": 3})
  )
  assert job.recipe.train_batch_size == 3
  with pytest.raises(ValueError, match="--doc_stride does not apply to this"):
    Letters(classification.Recipe(), options(recipe={"doc_stride": 3}))


@pytest.mark.parametrize(
  "name", ["max_seq_length", "max_train_examples", "max_eval_examples"]
)
def test_negative_numbers_are_refused(name):
  with pytest.raises(ValueError, match=f"{name} must not be negative, got -1"):
    options(**{name: -1})


def test_check_table():
  ids, labels = ("a", "b"), ("no", "yes")
  table = common.ProbabilityTable(ids, labels, np.eye(2))
  jobs.check_table("dev", table, labels, ids)
  for said, labels_, ids_, message in (
    (
      table,
      ("yes", "no"),
      ids,
      "have the labels no, yes, but the task has yes",
    ),
    (table, (), ids, "have the labels no, yes, but the task has none"),
    (table, labels, ("a", "c"), "row 2 of the predictions of dev is of b, but"),
    (table, labels, ("a",), "row 2 .* is of b, but the data has nothing there"),
    (table, labels, (*ids, "c"), "row 3 .* is of nothing, but the data has c"),
    ({"q": None}, labels, ids, "are answers to SQuAD's questions"),
  ):
    with pytest.raises(ValueError, match=message):
      jobs.check_table("dev", said, labels_, ids_)


def test_roles():
  def roles(name):
    return registry.find(name, "run").roles

  assert roles("cola") == roles("text_regression") == ("text",)
  assert roles("mnli") == roles("text_pair_regression") == ("text_a", "text_b")
  assert roles("squad_v2") == ("question", "context")
  assert roles("race_v2") == ("passage", "question", "options")
  with pytest.raises(ValueError, match="run is of the task 'x'"):
    roles("x")


def make_squad(folder, name="squad_v2", **changes):
  options = {
    "data_dir": str(folder),
    "cache_dir": str(folder / "records"),
    "tokenizer": None,
    "note": lambda text: None,
    **changes,
  }
  return jobs.SquadJob(name, jobs.Options(**options))


def answer(text, odds=None):
  return QuestionAnswers([Candidate(text, 1.0)], odds)


def test_squad_files(tmp_path):
  toy_data.write_squad(tmp_path / "train-v1.1.json", 3)
  text = json.dumps(toy_data.squad(4)).encode()
  (tmp_path / "dev-v1.1.json.gz").write_bytes(gzip.compress(text))
  toy_data.write_squad(tmp_path / "mine.json", 5)
  job = make_squad(
    tmp_path, "squad_v1", files={"test": str(tmp_path / "mine.json")}
  )
  lengths = [len(job.examples(split)) for split in ("train", "dev", "test")]
  assert lengths == [3, 4, 5]
  job = make_squad(tmp_path, "squad_v1")
  assert job.has_split("dev") and not job.has_split("test")
  assert job.recipe.num_train_steps == 3649
  with pytest.raises(
    FileNotFoundError, match="has no test-v1.1.json: give the"
  ):
    job.examples("test")
  with pytest.raises(FileNotFoundError, match="squad_v2 needs --data_dir, the"):
    make_squad(tmp_path, data_dir="").examples("dev")
  # With all files given, no folder is needed.
  files = {"dev": str(tmp_path / "mine.json")}
  assert (
    len(make_squad(tmp_path, data_dir="", files=files).examples("dev")) == 5
  )


def test_invalid_squad_files(tmp_path):
  value = toy_data.squad(3)
  question = value["data"][0]["paragraphs"][1]["qas"][0]
  question["answers"][0]["text"] = "snow"
  (tmp_path / "dev-v2.0.json").write_text(json.dumps(value))
  with pytest.raises(
    ValueError, match="question 0 .id 'q1'.* 'snow' is not in"
  ):
    make_squad(tmp_path).examples("dev")
  (tmp_path / "dev-v2.0.json").write_text("")
  with pytest.raises(ValueError, match="dev-v2.0.json is empty"):
    make_squad(tmp_path).examples("dev")


def test_squad_2_scores(tmp_path):
  toy_data.write_squad(tmp_path / "dev-v2.0.json", 6, impossible=True)
  job = make_squad(tmp_path)
  gold = {e.question_id: e.answers for e in job.examples("dev")}
  # Correct except for questions 2 and 5, which have no answer. Odds are 0 to 5,
  # so that the best threshold is 4, with five correct.
  said = {
    q: answer(answers[0][0] if answers else "wrong", float(number))
    for number, (q, answers) in enumerate(gold.items())
  }
  values = job.score("dev", said)
  assert values["null_score_diff_threshold"] == 4
  assert values["exact"] == pytest.approx(100 * 5 / 6)
  values = make_squad(tmp_path, null_score_diff_threshold=1.5).score(
    "dev", said
  )
  assert values["null_score_diff_threshold"] == 1.5
  assert values["exact"] == pytest.approx(100 * 4 / 6)
  assert job.majority("dev")["exact"] == pytest.approx(100 / 3)
  with pytest.raises(ValueError, match="q0.*no null odds|no null odds .*q0"):
    job.score("dev", {q: answer("wrong") for q in gold})
  table = common.ProbabilityTable(("q0",), ("a", "b"), [[1, 0]])
  with pytest.raises(
    ValueError, match="are a table of probabilities, not answ"
  ):
    job.score("dev", table)


def test_squad_1_scores(tmp_path):
  for split in ("train", "dev"):
    value = toy_data.squad(3)
    for paragraph, text in zip(
      value["data"][0]["paragraphs"], ("sun", "rain", "rain")
    ):
      paragraph["context"] = text
      paragraph["qas"][0]["answers"] = [{"text": text, "answer_start": 0}]
    (tmp_path / f"{split}-v1.1.json").write_text(json.dumps(value))
  job = make_squad(tmp_path, "squad_v1")
  assert job.majority("dev")["exact_match"] == pytest.approx(200 / 3)
  values = job.score("dev", {f"q{i}": answer("sun") for i in range(3)})
  assert values == {
    "exact_match": pytest.approx(100 / 3),
    "f1": pytest.approx(100 / 3),
  }


def test_squad_task(tmp_path):
  for split in ("train", "dev"):
    toy_data.write_squad(tmp_path / f"{split}-v2.0.json", 5, impossible=True)
  tokenizer = toy_encoder.write_tokenizer(str(tmp_path))
  job = make_squad(
    tmp_path,
    tokenizer=tokenizer,
    max_seq_length=16,
    recipe={"doc_stride": 3, "max_query_length": 4, "n_best_size": 2},
  )
  config = dataclasses.replace(
    AlbertConfig.from_preset("albert_tiny"), vocab_size=tokenizer.vocab_size
  )
  task = job.make_task(("train", "dev"), config, common.ModelSettings(), seed=3)
  # Contexts are split: there are more windows than questions.
  windows = job.num_train_examples()
  assert windows > 5
  weights = [
    weight
    for batch in task.dataset("dev", 4)
    for weight in batch["example_weight"].numpy()
  ]
  assert sum(weights) == windows
  # Training windows have positions of answers; question 2 has none.
  batch = next(iter(task.dataset("train", 16)))
  starts = batch["start_positions"].numpy()
  impossible = batch["is_impossible"].numpy().astype(bool)
  assert not starts[impossible].any()
  assert (starts > 0).sum() >= 4
  # Settings of the records, and of decoding.
  expected = {"doc_stride": 3, "max_query_length": 4, "questions": 5}
  expected |= {"n_best_size": 2, "max_answer_length": 30}
  settings = task.describe()["settings"]
  assert settings == {**expected, "start_n_top": 5, "end_n_top": 5}
  assert task.has_impossible


@pytest.fixture
def race_data(tmp_path):
  toy_data.write_race(str(tmp_path / "RACE"), train=3)
  return tmp_path


def make_race(data, name="race", **changes):
  options = {
    "data_dir": str(data),
    "cache_dir": str(data / "records"),
    "tokenizer": None,
    "note": lambda text: None,
    **changes,
  }
  return jobs.RaceJob(name, jobs.Options(**options))


def test_both_recipes_of_race_have_one_task(race_data):
  v1, v2 = make_race(race_data), make_race(race_data, "race_v2")
  assert v1.name == v2.name == "race"
  rates = [job.recipe.learning_rate for job in (v1, v2)]
  assert rates == [2e-5, 1e-5]
  assert v1.has_split("test") and len(v1.examples("train")) == 12
  for path in (race_data / "RACE" / "test").glob("*/*"):
    path.unlink()
  assert not make_race(race_data).has_split("test")


def test_only_races_test_split_may_lack_answers(race_data):
  for split in ("dev", "test"):
    path = race_data / "RACE" / split / "high" / "0.txt"
    passage = json.loads(path.read_text())
    del passage["answers"]
    path.write_text(json.dumps(passage))
  job = make_race(race_data)
  assert [e.label for e in job.examples("test")] == [0, 0, None, None]
  with pytest.raises(
    ValueError, match=r"dev/high/0.txt: the passage has no an"
  ):
    job.examples("dev")


def test_race_question_without_options(race_data):
  path = race_data / "RACE" / "train" / "middle" / "1.txt"
  passage = json.loads(path.read_text())
  passage["options"][1] = []
  path.write_text(json.dumps(passage))
  with pytest.raises(
    ValueError, match="middle/1.txt, question 2 of 2: it has 0"
  ):
    make_race(race_data).examples("train")


def test_race_scores(race_data):
  job = make_race(race_data)
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
  # In dev, A is correct everywhere.
  assert job.majority("dev")["accuracy"] == 1.0
  with pytest.raises(
    ValueError, match="row 2 .* is of nothing, but the data has h"
  ):
    make_race(race_data, max_eval_examples=2).score(
      "dev",
      dataclasses.replace(table, ids=table.ids[:1], values=table.values[:1]),
    )


def test_races_records_depend_on_the_questions(race_data):
  tokenizer = toy_encoder.write_tokenizer(str(race_data))
  config = dataclasses.replace(
    AlbertConfig.from_preset("albert_tiny"), vocab_size=tokenizer.vocab_size
  )

  def task():
    job = make_race(
      race_data,
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
  path = race_data / "RACE" / "dev" / "high" / "0.txt"
  path.write_text(path.read_text().replace("warm", "snow"))
  again = task().records
  assert again["train"] == first.records["train"]
  assert again["dev"] != first.records["dev"]


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
