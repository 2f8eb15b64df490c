"""Tests of a run, its record, its predictions and summaries of runs."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf

from official_albert import AlbertConfig, distribution, runs, training
from official_albert.tasks import common, trained_run
from official_albert.tasks.classification import glue
from official_albert.testing import toy_models
from official_albert.tools.finetuning import finetuning_data_test, results
from official_albert.tools.testing import toy_data, toy_runs

_CONFIG = AlbertConfig.from_preset("albert_tiny")
_DATA = {
  "task": "text_classification",
  "max_seq_length": 17,
  "settings": {"labels": ["no", "yes"], "columns": {"text": "review"}},
}


def save(task, model_dir, step, best=False):
  """Saves a checkpoint of random weights; returns the model."""
  model = task.build_model()
  model(next(iter(task.dataset("dev", 2))))
  if best:
    config = training.TrainConfig(model_dir, best_metric="accuracy")
    keeper = training.BestCheckpoint(config, model)
    assert keeper.offer(step, 1, {"accuracy": 0.5})
  else:
    training.CheckpointManager(model_dir, 2, model=model).save(step)
  return model


def test_the_best_checkpoint_predicts(tmp_path):
  toy_data.write_table(str(tmp_path / "dev.tsv"), 7)
  toy_data.write_table(str(tmp_path / "test.tsv"), 3, "")
  tokenizer = toy_runs.write_tokenizer(str(tmp_path))
  task = finetuning_data_test.make_own(
    tmp_path,
    tokenizer=tokenizer,
    max_seq_length=20,
    labels=("bad", "good"),
    class_weights="balanced",  # Of training data, which is not there.
  )
  config = toy_models.config(tokenizer.vocab_size, 20)
  task, model_dir = task.with_records(("dev", "test"), config), tmp_path / "run"
  save(task, str(model_dir), 5)
  model = save(task, str(model_dir), 3, best=True)
  config = training.TrainConfig(model_dir=str(model_dir), eval_batch_size=4)
  strategy = distribution.make_strategy("one_device")
  scores = results.predict(task, config, strategy, None, ["dev"], ["test"])
  saved = json.loads((model_dir / "eval_results.json").read_text())
  assert saved == scores
  # Compared with the model on one batch of all examples.
  for split, count in (("dev", 7), ("test", 3)):
    path = model_dir / "predictions" / f"{split}.probabilities.tsv"
    batch = next(iter(task.dataset(split, count)))
    order = np.argsort(batch["example_id"].numpy())
    expected = tf.nn.softmax(model(batch)["logits"]).numpy()[order]
    values = common.read_probabilities(str(path)).values
    # The order of sums depends on the batch size.
    np.testing.assert_allclose(values, expected, atol=1e-6)
    if split == "dev":
      right = values.argmax(axis=1) == [0, 1, 0, 1, 0, 1, 0]
      assert scores["dev"]["accuracy"] == pytest.approx(right.mean())

  bad = str(tmp_path / "bad")
  model.classifier.output_bias.assign([np.nan, 0])
  training.CheckpointManager(bad, 1, model=model).save(1)
  config = training.TrainConfig(model_dir=bad, eval_batch_size=4)
  with pytest.raises(ValueError, match="predicts test with numbers that are n"):
    results.predict(task, config, strategy, None, [], ["test"])


def write_run(folder, **changes):
  runs.write_run(str(folder), _CONFIG, {}, {**_DATA, **changes})
  return str(folder)


def test_record_of_a_run(tmp_path):
  folder = write_run(tmp_path, settings={"labels": None})
  # As in the records of a regression.
  assert trained_run.read(folder).labels is None
  assert trained_run.read(folder).columns == {}
  read = trained_run.read(write_run(tmp_path))
  assert (read.model_dir, read.task) == (folder, "text_classification")
  assert read.max_seq_length == 17 and read.null_score_diff_threshold is None
  assert read.labels == ("no", "yes") and read.columns == {"text": "review"}
  # The threshold of the evaluation.
  scores = {"dev": {"f1": 50.0, "null_score_diff_threshold": -1.25}}
  runs.write_results(folder, scores)
  assert trained_run.read(folder).null_score_diff_threshold == -1.25
  scores["dev"]["best_null_score_diff_threshold"] = 2.5
  runs.write_results(folder, scores)
  assert trained_run.read(folder).null_score_diff_threshold == 2.5
  (tmp_path / "eval_results.json").write_text("{")
  with pytest.raises(ValueError, match="not valid JSON .*: remove it, and ev"):
    trained_run.read(folder)


class StandIn:
  """A job without data."""

  name = "mnli"
  best_metric = "accuracy"
  eval_splits = ("dev_matched", "dev_mismatched")
  eval_split = "dev_matched"

  def majority(self, split):
    return {"accuracy": 0.375 if split == "dev_matched" else 0.25}


def results_of(*pairs, **others):
  return {
    split: {"accuracy": value, **others}
    for split, value in zip(StandIn.eval_splits, pairs)
  }


def summarize(folder, runs, metric="accuracy", best_is="highest", **options):
  folders = {seed: str(folder / f"seed_{seed}") for seed in runs}
  return results.summarize(StandIn(), runs, folders, metric, best_is, **options)


def test_summary_of_three_runs(tmp_path):
  scores = {
    7: results_of(0.5, 0.75, mean_squared_error=1.5),
    8: results_of(1.0, 0.25, mean_squared_error=4.0),
    9: results_of(0.625, 0.5, mean_squared_error=2.0),
  }
  made = summarize(tmp_path, scores, with_majority=True)
  assert made["best_seed"] == 8  # By the first split.
  metrics = made["splits"]["dev_matched"]
  assert metrics["accuracy"] == {
    "median": 0.625,
    "best": 1.0,
    "worst": 0.5,
    # With n - 1: the root of (0.2083^2 + 0.2917^2 + 0.0833^2) / 2.
    "spread": pytest.approx(0.2602, abs=1e-4),
  }
  assert metrics["mean_squared_error"]["best"] == 1.5
  assert made["seeds"]["9"]["dev_mismatched"]["accuracy"] == 0.5
  assert made["majority"]["dev_mismatched"] == {"accuracy": 0.25}
  row = results.describe(made).splitlines()[3].replace("|", "").split()
  assert row[1:] == "accuracy 0.625 1 0.5 0.2602 0.375".split()
  (tmp_path / "summary.json").write_text(json.dumps(made))
  assert runs.run_folder(str(tmp_path)) == str(tmp_path / "seed_8")


def test_the_metric_that_chose_checkpoints_chooses_the_seed(tmp_path):
  scores = {7: results_of(0.5, 0.75), 8: results_of(0.75, 0.5)}

  def choose(*flags):
    made = summarize(tmp_path, scores, *flags)
    return tuple(made[f"best_{name}"] for name in ("seed", "metric", "is"))

  assert choose() == (8, "accuracy", "highest")
  assert choose("accuracy", "lowest") == (7, "accuracy", "lowest")
  scores[8]["dev_matched"]["accuracy"] = float("nan")
  assert choose()[0] == choose("accuracy", "lowest")[0] == 7
  model = tf.Module()
  model.weight = tf.Variable(1.0)
  for seed, loss in ((7, 0.5), (8, 0.25)):
    config = training.TrainConfig(str(tmp_path / f"seed_{seed}"))
    keeper = training.BestCheckpoint(config, model)
    keeper.offer(3, 1, {"loss": loss})
  # The records of the runs name metric and direction, and have the losses.
  assert choose() == (8, "loss", "lowest")


@pytest.mark.parametrize(
  "metrics, majority, expected",
  [
    ({"accuracy": 0.375}, {"accuracy": 0.375}, "accuracy 0.375 instead of 0.3"),
    ({"accuracy": 1}, {"accuracy": 1}, ""),
    (
      {"pearson": 0.5, "mean_squared_error": 2048},
      {"pearson": 0, "mean_squared_error": 225},
      "mean_squared_error 2048 instead of 225",
    ),
    (
      {"pearson": 0, "mean_squared_error": 224},
      {"pearson": 0, "mean_squared_error": 225},
      "",
    ),
    ({"exact": 40}, {"exact": 50}, "exact 40 instead of 50"),
    # At 0, a threshold that this file has not chosen.
    ({"exact": 40, "best_exact": 70}, {"exact": 50}, ""),
  ],
)
def test_models_as_bad_as_a_constant_are_named(metrics, majority, expected):
  lines = results.doubts(
    {
      "task": "mnli",
      "seeds": {"3": {"dev": metrics}},
      "majority": {"dev": majority},
    }
  )
  if not expected:
    assert not lines
    return
  line, advice = lines
  assert expected in line and "seed 3" in line
  assert "--learning_rate" in advice


def test_the_table_of_squad_names_its_units():
  statistics = dict.fromkeys(("median", "best", "worst", "spread"), 0.5)
  splits = {"dev": dict.fromkeys(("f1", "start_accuracy"), statistics)}
  table = results.describe({"task": "squad_v1", "seeds": {}, "splits": splits})
  assert "f1 (%)" in table and "start_accuracy (%)" not in table


def test_table_of_all_nine_tasks():
  summaries = {}
  for number, (name, task) in enumerate(glue.GLUE_TASKS.items()):
    metrics = dict.fromkeys(task.metrics, {"median": number / 10})
    summaries[name] = {"splits": dict.fromkeys(task.dev_splits, metrics)}
  head, _, row = results.describe_glue(summaries).splitlines()
  assert head.replace("|", "").split() == [*glue.GLUE_TASKS, "average"]
  assert row.replace("|", "").split() == (
    "0.0 10.0 20.0 30.0 40.0 50.0 60.0 70.0 80.0 40.0".split()
  )
