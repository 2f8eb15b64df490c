"""Tests of training, checkpoints, evaluation and prediction of a run."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
import tensorflow as tf

from official_albert import AlbertConfig, distribution, training
from tasks import common
from tools.finetuning import jobs, text_jobs
from tools.finetuning import run as finetuning_run
from tools.testing import toy_data, toy_encoder

_DEVICES = finetuning_run.Devices(
  distribution.make_strategy("one_device"), "float32"
)


def make_config(folder):
  return training.TrainConfig(
    model_dir=str(folder / "run"),
    num_train_steps=3,
    num_warmup_steps=1,
    train_batch_size=2,
    eval_batch_size=4,
    learning_rate=0.01,
    eval_steps=1,
    best_metric="accuracy",
    best_is="highest",
  )


@pytest.fixture
def folder(tmp_path):
  toy_data.write_table(str(tmp_path / "train.tsv"), 4)
  toy_data.write_table(str(tmp_path / "dev.tsv"), 7)
  toy_data.write_table(str(tmp_path / "test.tsv"), 3, "")
  return tmp_path


def make_task(folder, splits=("dev", "test"), labels=("bad", "good")):
  tokenizer = toy_encoder.write_tokenizer(str(folder))
  job = text_jobs.OwnJob(
    "text_classification",
    jobs.Options(
      data_dir="",
      cache_dir=str(folder / "records"),
      tokenizer=tokenizer,
      max_seq_length=20,
      files={s: str(folder / f"{s}.tsv") for s in ("train", "dev", "test")},
      columns={"text": "review", "text_b": "", "label": "mood", "id": ""},
      labels=labels,
      note=lambda text: None,
    ),
  )
  config = AlbertConfig(
    vocab_size=tokenizer.vocab_size,
    embedding_size=6,
    hidden_size=10,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=14,
    max_position_embeddings=20,
    initializer_range=0.5,
  )
  settings = common.ModelSettings()
  return job.make_task(splits, config, settings, seed=3)


def save(task, model_dir, step, best=False):
  """Saves a checkpoint of random weights; returns the model."""
  model = task.build_model()
  model(next(iter(task.dataset("dev", 2))))
  if best:
    keeper = training.BestCheckpoint(model_dir, model, "accuracy")
    assert keeper.offer(step, 1, {"accuracy": 0.5})
  else:
    training.CheckpointManager(model_dir, 2, model=model).save(step)
  return model


def test_find_weights(folder):
  task, model_dir = make_task(folder), str(folder / "run")
  with pytest.raises(FileNotFoundError, match="has no fine-tuned checkpoint"):
    finetuning_run.find_weights(model_dir)
  save(task, model_dir, 9)
  save(task, model_dir, 10)
  assert finetuning_run.find_weights(model_dir) == f"{model_dir}/model.ckpt-10"
  save(task, model_dir, 3, best=True)
  path = f"{model_dir}/best/model.ckpt-3"
  assert finetuning_run.find_weights(model_dir) == path


def test_evaluation_and_prediction(folder):
  task, model_dir = make_task(folder), str(folder / "run")
  save(task, model_dir, 5)
  model = save(task, model_dir, 3, best=True)
  notes, wanted = [], []

  def make(splits):
    wanted.extend(splits)
    return task

  results = finetuning_run.run(
    make,
    make_config(folder),
    _DEVICES,
    train_splits=(),
    eval_splits=("dev",),
    test_splits=("test",),
    record={},
    note=notes.append,
  )
  assert wanted == ["dev", "test"]
  path = os.path.join(model_dir, "predictions", "test.probabilities.tsv")
  assert notes == [f"wrote {path}"]
  with open(os.path.join(model_dir, "eval_results.json")) as file:
    assert json.load(file) == results
  tables = {
    split: common.read_probabilities(path.replace("test.p", f"{split}.p"))
    for split in ("dev", "test")
  }
  assert [len(table.ids) for table in tables.values()] == [7, 3]
  # Compared with the model on one batch of all examples.
  for split, table in tables.items():
    batch = next(iter(task.dataset(split, len(table.ids))))
    order = np.argsort(batch["example_id"].numpy())
    logits = model(batch)["logits"]
    # The order of sums depends on the batch size.
    np.testing.assert_allclose(
      table.values, tf.nn.softmax(logits).numpy()[order], atol=1e-6
    )
  gold = np.array([0, 1] * 3 + [0])
  accuracy = (tables["dev"].values.argmax(axis=1) == gold).mean()
  assert results["dev"]["accuracy"] == pytest.approx(accuracy)


def test_results_dir(folder):
  """Results of another depth do not replace the run's own."""
  task, model_dir = make_task(folder), folder / "run"
  save(task, str(model_dir), 3)
  results = finetuning_run.run(
    lambda splits: task,
    make_config(folder),
    _DEVICES,
    train_splits=(),
    eval_splits=("dev",),
    test_splits=(),
    record={},
    results_dir=str(model_dir / "depth_2"),
  )
  path = model_dir / "depth_2" / "eval_results.json"
  assert json.loads(path.read_text()) == results
  table = model_dir / "depth_2" / "predictions" / "dev.probabilities.tsv"
  assert table.exists()
  assert not (model_dir / "eval_results.json").exists()
  assert not (model_dir / "predictions").exists()


@pytest.mark.heavy
def test_training(folder):
  """A finished run is recorded, and not trained again."""
  task = make_task(folder, ("train", "dev"))
  config = make_config(folder)
  wanted = []

  def run(**splits):
    def make(names):
      wanted.append(names)
      return task

    return finetuning_run.run(
      make,
      config,
      _DEVICES,
      train_splits=("train", "dev"),
      **splits,
      test_splits=(),
      record={"num_train_steps": 3, "seed": 5},
    )

  assert run(eval_splits=()) == {}
  step = training.read_best(config.model_dir)["step"]
  record = training.read_run(config.model_dir)
  assert record["settings"]["seed"] == 5
  assert record["settings"]["classifier_dropout"] == 0.1
  assert record["data"] == task.describe()
  assert (folder / "run" / "tokenizer.model").exists()
  before = (folder / "run" / "model.ckpt-3.index").stat().st_mtime_ns
  results = run(eval_splits=("dev",))
  assert wanted == [["train", "dev"]] * 2
  values = training.read_best(config.model_dir)["values"]
  assert results["dev"]["accuracy"] == values["accuracy"]
  assert training.read_best(config.model_dir)["step"] == step
  after = (folder / "run" / "model.ckpt-3.index").stat().st_mtime_ns
  assert after == before


def test_without_splits_nothing_is_done(folder):
  task = make_task(folder)
  results = finetuning_run.run(
    lambda splits: task,
    make_config(folder),
    _DEVICES,
    train_splits=(),
    eval_splits=(),
    test_splits=(),
    record={},
  )
  assert results == {} and not (folder / "run").exists()


def test_weights_of_another_model(folder):
  task, model_dir = make_task(folder), str(folder / "run")
  save(task, model_dir, 3)
  three = make_task(folder, labels=("bad", "good", "so so"))
  with pytest.raises(
    ValueError, match="not a checkpoint of .* it lacks classifi"
  ):
    finetuning_run.load_predictor(three, model_dir, _DEVICES, 4)
  # A pretrained encoder has no head.
  encoder = tf.keras.Model()
  encoder.albert = task.build_model().albert
  training.CheckpointManager(str(folder / "encoder"), 1, model=encoder).save(1)
  with pytest.raises(
    ValueError, match="is not a checkpoint of text_classificatio"
  ):
    finetuning_run.load_predictor(task, str(folder / "encoder"), _DEVICES, 4)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
