"""SQuAD as a job: files, windows, scores."""

from __future__ import annotations

import dataclasses
import gzip
import json

import pytest

from official_albert import AlbertConfig
from tasks import common
from tasks.squad import Candidate, QuestionAnswers
from tools.finetuning import jobs as finetuning_jobs
from tools.finetuning import squad_job
from tools.testing import toy_data, toy_encoder


def make(folder, name="squad_v2", **changes):
  options = {
    "data_dir": str(folder),
    "cache_dir": str(folder / "records"),
    "tokenizer": None,
    "note": lambda text: None,
    **changes,
  }
  return squad_job.SquadJob(name, finetuning_jobs.Options(**options))


def answer(text, odds=None):
  return QuestionAnswers([Candidate(text, 1.0)], odds)


def test_official_names_or_ones_own(tmp_path):
  toy_data.write_squad(tmp_path / "train-v1.1.json", 3)
  text = json.dumps(toy_data.squad(4)).encode()
  (tmp_path / "dev-v1.1.json.gz").write_bytes(gzip.compress(text))
  toy_data.write_squad(tmp_path / "mine.json", 5)
  job = make(tmp_path, "squad_v1", files={"test": str(tmp_path / "mine.json")})
  lengths = [len(job.examples(split)) for split in ("train", "dev", "test")]
  assert lengths == [3, 4, 5]
  job = make(tmp_path, "squad_v1")
  assert job.has_split("dev") and not job.has_split("test")
  assert job.recipe.num_train_steps == 3649
  with pytest.raises(
    FileNotFoundError, match="has no test-v1.1.json: give the"
  ):
    job.examples("test")
  with pytest.raises(FileNotFoundError, match="squad_v2 needs --data_dir, the"):
    make(tmp_path, data_dir="").examples("dev")
  # All files are named: no folder is needed.
  files = {"dev": str(tmp_path / "mine.json")}
  assert len(make(tmp_path, data_dir="", files=files).examples("dev")) == 5


def test_an_answer_that_is_not_in_its_context_is_named(tmp_path):
  value = toy_data.squad(3)
  question = value["data"][0]["paragraphs"][1]["qas"][0]
  question["answers"][0]["text"] = "snow"
  (tmp_path / "dev-v2.0.json").write_text(json.dumps(value))
  with pytest.raises(
    ValueError, match="question 0 .id 'q1'.* 'snow' is not in"
  ):
    make(tmp_path).examples("dev")
  (tmp_path / "dev-v2.0.json").write_text("")
  with pytest.raises(ValueError, match="dev-v2.0.json is empty"):
    make(tmp_path).examples("dev")


def test_scores_choose_the_threshold_or_keep_it(tmp_path):
  toy_data.write_squad(tmp_path / "dev-v2.0.json", 6, impossible=True)
  job = make(tmp_path)
  gold = {e.question_id: e.answers for e in job.examples("dev")}
  # Right wherever there is an answer; odds from 0 to 5, questions 2 and 5 have
  # none, so that a threshold of 4 is the best: five are right.
  said = {
    q: answer(answers[0][0] if answers else "wrong", float(number))
    for number, (q, answers) in enumerate(gold.items())
  }
  values = job.score("dev", said)
  assert values["null_score_diff_threshold"] == 4
  assert values["exact"] == pytest.approx(100 * 5 / 6)
  values = make(tmp_path, null_score_diff_threshold=1.5).score("dev", said)
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


def test_scores_and_the_commonest_answer_of_version_1(tmp_path):
  for split in ("train", "dev"):
    value = toy_data.squad(3)
    for paragraph, text in zip(
      value["data"][0]["paragraphs"], ("sun", "rain", "rain")
    ):
      paragraph["context"] = text
      paragraph["qas"][0]["answers"] = [{"text": text, "answer_start": 0}]
    (tmp_path / f"{split}-v1.1.json").write_text(json.dumps(value))
  job = make(tmp_path, "squad_v1")
  assert job.majority("dev")["exact_match"] == pytest.approx(200 / 3)
  values = job.score("dev", {f"q{i}": answer("sun") for i in range(3)})
  assert values == {
    "exact_match": pytest.approx(100 / 3),
    "f1": pytest.approx(100 / 3),
  }


def test_a_task_of_windows(tmp_path):
  for split in ("train", "dev"):
    toy_data.write_squad(tmp_path / f"{split}-v2.0.json", 5, impossible=True)
  tokenizer = toy_encoder.write_tokenizer(str(tmp_path))
  job = make(
    tmp_path,
    tokenizer=tokenizer,
    max_seq_length=16,
    recipe={"doc_stride": 3, "max_query_length": 4, "n_best_size": 2},
  )
  config = dataclasses.replace(
    AlbertConfig.from_preset("albert_tiny"), vocab_size=tokenizer.vocab_size
  )
  task = job.make_task(("train", "dev"), config, common.ModelSettings(), seed=3)
  # Contexts are cut: there are more windows than questions.
  windows = job.num_train_examples()
  assert windows > 5
  weights = [
    weight
    for batch in task.dataset("dev", 4)
    for weight in batch["example_weight"].numpy()
  ]
  assert sum(weights) == windows
  # Answers are looked for in what is trained on; question 2 has none.
  batch = next(iter(task.dataset("train", 16)))
  starts = batch["start_positions"].numpy()
  impossible = batch["is_impossible"].numpy().astype(bool)
  assert not starts[impossible].any()
  assert (starts > 0).sum() >= 4
  # Of the records, and of what is made of the scores.
  expected = {"doc_stride": 3, "max_query_length": 4, "questions": 5}
  expected |= {"n_best_size": 2, "max_answer_length": 30}
  settings = task.describe()["settings"]
  assert settings == {**expected, "start_n_top": 5, "end_n_top": 5}
  assert task.has_impossible


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
