"""Losses, metrics and predictions on held-out data."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import tensorflow as tf

from official_albert import distribution, run_logs, runs
from official_albert.testing import toy_task
from official_albert.training import evaluation, objective

_CONFIG = dict(num_train_steps=2, num_warmup_steps=0, eval_batch_size=8)


def evaluation_of(task, model=None):
  return evaluation.Evaluation(
    task, model or task.build_model(), distribution.make_strategy("one_device")
  )


def test_every_example_counts_once(tmp_path):
  task = toy_task.ToyTask()
  cfg = toy_task.config(tmp_path, num_train_steps=1, num_warmup_steps=0)
  values, weights, _ = toy_task.run(task, cfg)
  h = np.tanh(task.x @ weights[0] + weights[1])
  errors = task.w * (h @ weights[2] + weights[3] - task.y) ** 2
  first, second = errors.sum(0) / task.w.sum(0)
  expected = {
    "loss": first + second,
    "first_loss": first,
    "second_loss": second,
    "share": (task.x[:, 0] > 0).mean(),
  }
  assert values == pytest.approx(expected, rel=1e-5)


def test_means_of_no_examples_are_not_zero(tmp_path):
  """A loss of 0.0 would be the best of all."""

  class Task(toy_task.ToyTask):
    def eval_dataset(self, batch_size):
      data = super().eval_dataset(batch_size)
      return data.map(lambda row: {**row, "w": row["w"] * [1.0, 0.0]})

    def forward(self, model, batch, training_, dropout_seed):
      totals, _ = super().forward(model, batch, training_, dropout_seed)
      zero = tf.zeros([])
      return totals, {"share": objective.Ratio(zero, zero)}

  task = Task()
  values = evaluation_of(task)(task.eval_dataset(10))
  assert values["first_loss"] > 0
  assert values["second_loss"] is values["loss"] is values["share"] is None
  cfg = toy_task.config(tmp_path, eval_steps=2)
  _, _, log = toy_task.run(Task(), cfg)
  assert "second undefined (0 examples)" in log
  assert runs.read_best(str(tmp_path)) is None
  report = json.loads((tmp_path / "report.json").read_text())
  assert report["best_step"] is None
  cfg = toy_task.config(tmp_path / "b", eval_steps=2, best_metric="first_loss")
  toy_task.run(Task(), cfg)
  best = runs.read_best(str(tmp_path / "b"))
  assert set(best["values"]) == {"first_loss"}


def test_an_empty_evaluation_is_an_error(tmp_path):
  task = toy_task.ToyTask()
  empty = task.eval_dataset(10).take(0)
  task.eval_dataset = lambda size: empty
  with pytest.raises(ValueError, match="no held-out example"):
    toy_task.run(task, toy_task.config(tmp_path))


def test_several_devices_equal_one(tmp_path):
  """Losses and predictions are of the whole batch and the whole data.

  A median of one replica's rows, or of rows in another order, differs.
  multi_worker_test.py compares workers.
  """
  task = toy_task.PredictingToyTask()
  cfg = toy_task.config(tmp_path / "one", **_CONFIG)
  _, weights, _ = toy_task.run(task, cfg)
  hidden = np.tanh(task.x @ weights[0] + weights[1])
  errors = np.abs(hidden @ weights[2] + weights[3] - task.y)
  toy_task.run_job(
    *(1, tmp_path / "many", _CONFIG), distribution="mirrored", num_devices=2
  )
  folders = [str(tmp_path / run) for run in ("one", "many")]
  one, many = (run_logs.read_metrics(f, "train")[-1] for f in folders)
  for value in ("first_loss", "second_loss", "share"):
    assert one[value] == pytest.approx(many[value], rel=1e-5)
  one, many = (run_logs.read_metrics(f, "eval") for f in folders)
  assert [r["step"] for r in many] == [r["step"] for r in one] == [0, 2]
  assert math.isclose(one[1]["median_error"], np.median(errors), rel_tol=1e-5)
  for a, b in zip(one, many):
    for value in ("median_error", "loss", "share"):
      assert a[value] == pytest.approx(b[value], rel=1e-5)
  assert one[0]["median_error"] != pytest.approx(one[1]["median_error"], 1e-3)


@pytest.mark.parametrize(
  "ids, message",
  [
    ([[0, 1], [2, 1]], "example_id 2 was not predicted, or the one before"),
    ([[3, 0], [1]], "example_id 2 was not predicted"),
    ([[1, 2]], "example_id 0 was not predicted"),
    ([[]], "there is no example to predict"),
  ],
)
def test_missing_or_repeated_predictions_are_refused(ids, message):
  with pytest.raises(ValueError, match=message):
    evaluation.collect([{"example_id": np.array(i)} for i in ids])
