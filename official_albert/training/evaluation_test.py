"""Held-out numbers and predictions: every example once, on any devices."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf

from official_albert import distribution
from official_albert.testing import toy_job, toy_task
from official_albert.training import evaluation, reporting

_CONFIG = dict(num_train_steps=2, num_warmup_steps=0, eval_batch_size=8)


def evaluation_of(task, model=None):
  return evaluation.make_evaluation(
    task,
    model or task.build_model(),
    distribution.make_strategy("one_device"),
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


def test_an_empty_evaluation_is_an_error(tmp_path):
  task = toy_task.ToyTask()
  empty = task.eval_dataset(10).take(0)
  task.eval_dataset = lambda size: empty
  with pytest.raises(ValueError, match="no held-out example"):
    toy_task.run(task, toy_task.config(tmp_path))


def test_the_model_is_called_once_for_equal_inputs():
  task, calls = toy_task.PredictingToyTask(), []

  class Counted(type(task.build_model())):
    def call(self, x):
      calls.append(None)
      return super().call(x)

  model = Counted()
  model.build([None, toy_task.FEATURES])
  for predict, count in (
    (lambda m, b: m(b["x"]), 1),
    (lambda m, b: m(b["x"] + 0), 2),
  ):
    calls.clear()
    task.predict = lambda m, b, predict=predict: {
      "example_id": b["example_id"],
      "outputs": predict(m, b),
    }
    values = evaluation_of(task, model)(task.eval_dataset(10))
    assert len(calls) == count and values["median_error"] > 0


def test_batches_of_several_lengths_share_one_graph():
  task, traced = toy_task.ToyTask(), []
  forward = task.forward

  def first_columns(model, batch, *args):
    traced.append(batch["x"].shape)
    return forward(model, {**batch, "x": batch["x"][:, :5]}, *args)

  task.forward = first_columns
  whole = list(task.eval_dataset(10))

  def ragged():
    for index, batch in enumerate(whole):
      longer = tf.pad(batch["x"], [[0, 0], [0, index]])
      yield {**batch, "x": longer}

  spec = {**task.eval_dataset(10).element_spec}
  spec["x"] = tf.TensorSpec([10, None])
  data = tf.data.Dataset.from_generator(ragged, output_signature=spec)
  model = task.build_model()
  evaluate = evaluation_of(task, model)
  values = evaluate(data)
  assert evaluate(data) == values
  assert [shape.as_list() for shape in traced] == [[10, None]]
  task.forward = forward
  expected = evaluation_of(task, model)(task.eval_dataset(10))
  assert values == pytest.approx(expected, rel=1e-5)


def test_predictions_come_in_the_order_of_the_examples():
  task = toy_task.PredictingToyTask()
  model = task.build_model()
  predict = evaluation.make_prediction(
    task, model, distribution.make_strategy("one_device")
  )
  expected = model(task.eval_x).numpy()
  for data in (
    task.eval_dataset(10),  # 37 examples: 3 rows fill up the last batch.
    task.eval_dataset(8).unbatch().shuffle(99, seed=1).batch(8, True),
  ):
    rows = predict(data)
    assert rows.keys() == {"example_id", "outputs"}
    np.testing.assert_array_equal(rows["example_id"], np.arange(37))
    np.testing.assert_allclose(rows["outputs"], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
  "name, devices",
  [
    ("mirrored", 2),
    pytest.param("mirrored", 4, marks=pytest.mark.heavy),
    pytest.param("multi_worker", 2, marks=pytest.mark.heavy),
  ],
)
def test_several_devices_predict_what_one_does(tmp_path, name, devices):
  """A median of one replica's rows, or of rows in another order, differs."""
  task = toy_task.PredictingToyTask()
  cfg = toy_task.config(tmp_path / "one", **_CONFIG)
  _, weights, _ = toy_task.run(task, cfg)
  hidden = np.tanh(task.x @ weights[0] + weights[1])
  errors = np.abs(hidden @ weights[2] + weights[3] - task.y)
  toy_job.run(
    2 if name == "multi_worker" else 1,
    tmp_path / "many",
    _CONFIG,
    predicts=True,
    distribution=name,
    num_devices=devices,
  )
  one, many = (
    reporting.read_metrics(str(tmp_path / run), "eval")
    for run in ("one", "many")
  )
  assert [r["step"] for r in many] == [r["step"] for r in one] == [0, 2]
  assert math.isclose(one[1]["median_error"], np.median(errors), rel_tol=1e-5)
  for a, b in zip(one, many):
    for value in ("median_error", "loss", "share"):
      assert a[value] == pytest.approx(b[value], rel=1e-5)
  assert one[0]["median_error"] != pytest.approx(one[1]["median_error"], 1e-3)


@pytest.mark.parametrize(
  "ids, message",
  [
    ([[0, 1], [2, 1]], "example_id 1 was predicted twice"),
    ([[0, 0]], "example_id 0 was predicted twice"),
    ([[3, 0], [1]], "example_id 2 was not predicted, but 3 was"),
    ([[1, 2]], "example_id 0 was not predicted, but 1 was"),
    ([[]], "there is no example to predict"),
    ([], "there is no example to predict"),
  ],
)
def test_missing_or_repeated_predictions_are_refused(ids, message):
  with pytest.raises(ValueError, match=message):
    evaluation.collect([{"example_id": np.array(i)} for i in ids])


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
