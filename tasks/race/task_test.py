"""Compares RACE's loss with the original's; tests its predictions."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest
import tensorflow as tf

from official_albert import distribution, training
from official_albert.tasks import common
from official_albert.tasks.race import examples as examples_lib
from official_albert.tasks.race import task as task_lib
from official_albert.testing import golden_weights, toy_models

_GOLDEN = pathlib.Path(__file__).parent / "testdata"
_LENGTH = 31
_CONFIG = toy_models.config(23, _LENGTH)
_NO_DROPOUT = {"albert_dropout": 0.0, "classifier_dropout": 0.0}


def example(number):
  """Returns a question with options of 7 to 30 tokens."""
  return examples_lib.RaceExample(
    guid=f"high{number}.txt#0",
    article=" ".join(f"w{5 + i % 9}" for i in range(5 * number % 21)),
    question="w5 _",
    options=("w6", "w7 w8", "w9 w10 w11", f"w{12 + number % 9}"),
    label="ABCD"[number % 4],
    level="high" if number % 3 else "middle",
  )


class Exam(task_lib.RaceTask):
  """The questions above."""

  def __init__(self, counts, options):
    super().__init__("race", options)
    self._counts = counts

  def read(self, split):
    return [example(number) for number in range(self._counts[split])]


def make(folder, config=_CONFIG, counts=None, length=_LENGTH, **changes):
  words = (f"w{number}" for number in range(5, config.vocab_size))
  options = common.TaskOptions(
    cache_dir=str(folder),
    tokenizer=toy_models.wordpiece(folder, *words),
    max_seq_length=length,
    recipe={"max_qa_length": 8, **_NO_DROPOUT},
    note=lambda text: None,
    **changes,
  )
  counts = counts or {"dev": 13}
  return Exam(counts, options).with_records(counts, config)


def golden(folder, group):
  config = toy_models.golden_config(group)
  task = make(folder, config, counts={"dev": 1}, length=19)
  model = task.build_model()
  golden_weights.load_golden(model, _GOLDEN / group / "multiple_choice.ckpt")
  return task, model


@pytest.mark.golden
@pytest.mark.parametrize("group", toy_models.GROUPS)
def test_losses_and_scores_equal_the_original(tmp_path, group):
  task, model = golden(tmp_path, group)
  expected = np.load(_GOLDEN / group / "multiple_choice_outputs.npz")
  batch = toy_models.golden_inputs(group)
  # Rows 0 and 1 are the two options of one question, which occurs twice: with
  # the correct answer, and with the other one and weight 0.
  batch = {n: tf.constant(np.stack([x[:2]] * 2)) for n, x in batch.items()}
  (label,) = expected["labels"]
  batch["label_ids"] = tf.constant([label, 1 - label])
  batch["example_weight"] = tf.constant([1.0, 0.0])
  batch["example_id"] = tf.constant([0, 1])
  totals, ratios = task.forward(model, batch, True, tf.constant([1, 2]))
  assert float(task.loss_weights(batch)["race"]) == 1
  np.testing.assert_allclose(totals["race"], expected["loss"], atol=1e-5)
  right = float(expected["probabilities"][0, label] > 0.5)
  assert [float(x) for x in ratios["race_accuracy"]] == [right, 1.0]
  assert task.forward(model, batch, False, None)[1] == {}
  logits = model(batch)["logits"][:1]
  np.testing.assert_allclose(logits, expected["logits"], atol=1e-5)
  rows = task.predict(model, batch)
  np.testing.assert_allclose(
    rows["values"][:1], expected["probabilities"], atol=1e-5
  )


def test_options_are_scored_independently(tmp_path):
  _, model = golden(tmp_path, "one_group")
  # The golden weights are large, so that wrong scores differ clearly.
  ids = tf.reshape(tf.range(2 * 3 * 5), [2, 3, 5])
  logits = model({"input_ids": ids})["logits"]
  alone = [
    model({"input_ids": ids[b : b + 1, o : o + 1]})["logits"]
    for b in range(2)
    for o in range(3)
  ]
  np.testing.assert_allclose(logits, np.reshape(alone, [2, 3]), atol=1e-5)
  assert np.min(np.diff(np.sort(logits, axis=None))) > 1e-3


def test_buckets_change_neither_losses_nor_predictions(tmp_path):
  tf.keras.utils.set_random_seed(3)
  strategy = distribution.make_strategy("one_device")
  model, values, rows = None, [], []
  for length_bucketing in (True, False):
    task = make(tmp_path, length_bucketing=length_bucketing)
    data = task.eval_dataset(3)
    lengths = {batch["input_ids"].shape[2] for batch in data}
    assert lengths == ({16, 24, 31} if length_bucketing else {31})
    model = model or task.build_model()
    evaluate = training.make_evaluation(task, model, strategy)
    score = task.score
    task.score = lambda given, score=score: rows.append(given) or score(given)
    values.append(evaluate(data))
  # Padding is masked; only the order of float32 sums differs.
  assert values[0] == pytest.approx(values[1], rel=1e-5)
  assert rows[0]["values"].shape == (13, 4)
  np.testing.assert_allclose(
    rows[0]["values"], rows[1]["values"], rtol=1e-5, atol=1e-6
  )
  labels = np.arange(13) % 4
  losses = -np.log(rows[0]["values"][np.arange(13), labels])
  assert values[0]["race_loss"] == pytest.approx(losses.mean(), rel=1e-5)
