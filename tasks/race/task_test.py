"""Compares RACE's losses and predictions with the original's."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest
import tensorflow as tf

from official_albert import checkpoints
from official_albert.tasks import common
from official_albert.tasks.race import examples as examples_lib
from official_albert.tasks.race import task as task_lib
from official_albert.testing import toy_models

_GOLDEN = pathlib.Path(__file__).parent / "testdata"


class Exam(task_lib.RaceTask):
  """One question."""

  def read(self, split):
    options = ("w6", "w7 w8", "w9 w10 w11", "w12")
    return [
      examples_lib.RaceExample("x#0", "w5 w6", "w5 _", options, "B", "high")
    ]


def golden(folder, group):
  config = toy_models.golden_config(group)
  words = (f"w{number}" for number in range(5, config.vocab_size))
  dropout = {"albert_dropout": 0.0, "classifier_dropout": 0.0}
  options = common.TaskOptions(
    cache_dir=str(folder),
    tokenizer=toy_models.wordpiece(folder, *words),
    max_seq_length=19,
    recipe={"max_qa_length": 8, **dropout},
    note=lambda text: None,
  )
  task = Exam("race", options).with_records(["dev"], config)
  model = task.build_model()
  path = str(_GOLDEN / group / "multiple_choice.ckpt")
  assert not checkpoints.load_tf1_checkpoint(model, path).missing
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
  ids = np.arange(2 * 3 * 5, dtype=np.int32).reshape(2, 3, 5)
  logits = model({"input_ids": tf.constant(ids)})["logits"]
  alone = model({"input_ids": tf.constant(ids.reshape(6, 1, 5))})["logits"]
  np.testing.assert_allclose(logits, np.reshape(alone, [2, 3]), atol=1e-5)
  assert np.min(np.diff(np.sort(logits, axis=None))) > 1e-3
