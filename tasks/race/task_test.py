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


@pytest.mark.golden
@pytest.mark.parametrize("group", toy_models.GROUPS)
def test_losses_and_scores_equal_the_original(tmp_path, group):
  config = toy_models.golden_config(group)
  words = (f"w{number}" for number in range(5, config.vocab_size))
  dropout = {"albert_dropout": 0.0, "classifier_dropout": 0.0}
  options = common.TaskOptions(
    cache_dir=str(tmp_path),
    tokenizer=toy_models.wordpiece(tmp_path, *words),
    max_seq_length=19,
    recipe={"max_qa_length": 8, **dropout},
    note=lambda text: None,
  )
  task = Exam("race", options).with_records(["dev"], config)
  model = task.build_model()
  path = str(_GOLDEN / group / "multiple_choice.ckpt")
  assert not checkpoints.load_tf1_checkpoint(model, path).missing
  expected = np.load(_GOLDEN / group / "multiple_choice_outputs.npz")
  batch = toy_models.golden_inputs(group)
  # Rows 0 and 1 are the two options of a question. It occurs three times: with
  # the correct answer, and with weight 0 with the other one, and in the other
  # order.
  batch = {
    n: tf.constant(np.stack([x[:2], x[:2], x[1::-1]])) for n, x in batch.items()
  }
  (label,) = expected["labels"]
  batch["label_ids"] = tf.constant([label, 1 - label, label])
  batch["example_weight"] = tf.constant([1.0, 0.0, 0.0])
  batch["example_id"] = tf.constant([0, 1, 2])
  totals, ratios = task.forward(model, batch, True, tf.constant([1, 2]))
  assert float(task.loss_weights(batch)["race"]) == 1
  np.testing.assert_allclose(totals["race"], expected["loss"], atol=1e-5)
  right = float(expected["probabilities"][0, label] > 0.5)
  assert [float(x) for x in ratios["race_accuracy"]] == [right, 1.0]
  assert task.forward(model, batch, False, None)[1] == {}
  for name, found in (
    ("logits", model(batch)["logits"]),
    ("probabilities", task.predict(model, batch)["values"]),
  ):
    (row,) = expected[name]
    assert abs(row[0] - row[1]) > 1e-3
    np.testing.assert_allclose(found, [row, row, row[::-1]], atol=1e-5)
