"""Tests of `FinetuningTask`, with a model of two numbers."""

from __future__ import annotations

import io
import itertools
import json
import math
import os

import numpy as np
import pytest
import tensorflow as tf

from official_albert import distribution, modeling, tfrecords
from official_albert import training as training_lib
from official_albert.tasks import common
from official_albert.tasks.common import finetuning_task
from official_albert.testing import toy_models, toy_task

_LONGEST = 37
_TRAIN, _DEV = 41, 29
_CONFIG = toy_models.config(8, _LONGEST)


class SumTask(finetuning_task.FinetuningTask):
  """Multiplies the number of tokens 6, "rain", by a trained number."""

  recipe = common.Recipe(0.01, 4, 9, 1, max_seq_length=_LONGEST)
  has_pairs = False
  counts = {"train": 41, "dev": 29, "test": 3}

  def sources(self, split):
    return []

  def read(self, split):
    return [example(number) for number in range(self.counts[split])]

  def schema(self):
    return tfrecords.classification_schema(self.max_seq_length, True)

  def record_settings(self, split):
    return {"labels": None}

  def features(self, split):
    return iter(self.examples(split))

  def build_model(self):
    model = tf.keras.Sequential(
      [tf.keras.layers.Dense(1, kernel_initializer="ones")]
    )
    model.build([None, 1])
    return model

  def outputs(self, model, batch, training=False, dropout_seed=None):
    rain = tf.cast(batch["input_ids"] == 6, tf.float32)
    return model(tf.reduce_sum(rain, axis=1, keepdims=True))[:, 0]

  def losses(self, model, outputs, batch, training):
    errors = tf.square(outputs - batch["label_ids"])
    return {self.name: tf.reduce_sum(errors * batch["example_weight"])}, {}

  def predictions(self, model, outputs, batch):
    return {"example_id": batch["example_id"], "sums": outputs}

  def answers(self, split, predictions):
    return predictions["sums"]

  def score_answers(self, split, answers):
    return {f"{split}_largest": float(answers.max())}

  def write_answers(self, split, answers, folder):
    return []


def example(number):
  """Returns 3 to 32 tokens, of which `number % 3` are "rain"."""
  tokens = 3 + 7 * number % 30
  ids = [2] + [5] * (tokens - 1)
  for i in range(number % 3):
    ids[-1 - i] = 6
  return {
    "input_ids": ids,
    "segment_ids": [0] * tokens,
    "label_ids": number / 4,
  }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  return tmp_path_factory.mktemp("records")


def make(
  folder, splits=("train", "dev"), kind=SumTask, config=_CONFIG, seed=5, **more
):
  options = common.TaskOptions(
    cache_dir=str(folder),
    tokenizer=toy_models.wordpiece(folder, "tea", "rain", "river"),
    note=lambda text: None,
    **more,
  )
  return kind("toy", options).with_records(splits, config, seed)


def test_training_data_resumes(folder):
  task = make(folder, seed=3)

  def ids(start, count):
    batches = itertools.islice(task.train_dataset(4, 4 * start), count)
    return [batch["example_id"].numpy().tolist() for batch in batches]

  stream = ids(0, 25)
  assert ids(13, 12) == stream[13:]
  epoch = sum(stream[:10], [])
  assert len(set(epoch)) == 40 and sorted(epoch) != epoch
  task = make(folder, seed=4)
  assert ids(0, 25) != stream


@pytest.mark.parametrize("length_bucketing", [True, False])
def test_evaluation_and_prediction_count_each_example_once(
  folder, length_bucketing
):
  task = make(folder, length_bucketing=length_bucketing)
  model, strategy = task.build_model(), distribution.make_strategy("one_device")
  model.set_weights([np.full([1, 1], 1.5), np.full([1], 0.25)])
  sums = 1.5 * (np.arange(_DEV) % 3) + 0.25
  loss = np.mean((sums - np.arange(_DEV) / 4) ** 2)
  data = task.eval_dataset(4)
  lengths = {batch["input_ids"].shape[1] for batch in data}
  assert lengths == ({16, 24, 32} if length_bucketing else {_LONGEST})
  values = training_lib.make_evaluation(task, model, strategy)(data)
  assert values.keys() == {"loss", "toy_loss", "dev_largest"}
  assert math.isclose(values["toy_loss"], loss, rel_tol=1e-6)
  assert values["dev_largest"] == 3.25
  predict = training_lib.make_prediction(task, model, strategy)
  np.testing.assert_array_equal(predict(task.dataset("dev", 8))["sums"], sums)
  assert len(predict(task.dataset("train", 8))["sums"]) == _TRAIN


def test_tokens_per_example(folder):
  mean = round(np.mean([3 + 7 * n % 30 for n in range(_TRAIN)]))
  for bucketing, sequences, tokens in (
    (True, 1, mean),
    (False, 3, 3 * _LONGEST),
  ):
    kind = type("_", (SumTask,), {"sequences_per_example": sequences})
    task = make(folder, kind=kind, length_bucketing=bucketing)
    assert task.tokens_per_example == tokens
    flops = sequences * _CONFIG.forward_flops(tokens // sequences)
    assert task.flops_per_example == 3 * flops


def test_describe_does_not_depend_on_the_location(folder, tmp_path):
  task = make(folder, ["train", "dev", "test"])
  description = task.describe()
  assert description == json.loads(json.dumps(description))
  assert description["records"] == {
    split: os.path.basename(task.records[split]) for split in ("train", "dev")
  }
  assert description["max_seq_length"] == _LONGEST
  assert description["settings"] == {"labels": None}
  assert make(tmp_path).describe() == description


class _Classification(SumTask):
  def build_model(self):
    return modeling.AlbertForSequenceClassification(
      self.config, 3, self.recipe.classifier_dropout, **self.model_options()
    )


def test_a_trainer_is_for_one_model(folder, tmp_path):
  """It would compute with the first one's dropout."""
  first, same = (make(folder, kind=_Classification) for _ in range(2))
  recipe = {"classifier_dropout": 0.2}
  other = make(folder, kind=_Classification, recipe=recipe)
  settings = toy_task.config(tmp_path)
  with training_lib.Reporter(str(tmp_path), io.StringIO()) as report:
    strategy = distribution.make_strategy("one_device")
    trainer = training_lib.Trainer([first], settings, strategy, report)
    trainer.reset([same], settings, report)
    with pytest.raises(ValueError, match="another task, model or data"):
      trainer.reset([other], settings, report)
