"""Held-out numbers and predictions: every example once, on any devices."""

from __future__ import annotations

import math
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from official_albert import distribution
from official_albert.testing import toy_job, toy_task
from official_albert.training import evaluation, objective, reporting

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_CONFIG = dict(num_train_steps=2, num_warmup_steps=0, eval_batch_size=8)


def test_evaluation_counts_every_example_once(tmp_path):
  cfg = toy_task.config(tmp_path, num_train_steps=1, num_warmup_steps=0)
  task = toy_task.ToyTask()
  values, weights, _ = toy_task.run(task, cfg)
  h = np.tanh(task.x @ weights[0] + weights[1])
  errors = task.w * (h @ weights[2] + weights[3] - task.y) ** 2
  expected = errors.sum(0) / task.w.sum(0)
  assert math.isclose(values["first_loss"], expected[0], rel_tol=1e-5)
  assert math.isclose(values["second_loss"], expected[1], rel_tol=1e-5)
  assert math.isclose(values["loss"], expected.sum(), rel_tol=1e-5)
  assert math.isclose(values["share"], (task.x[:, 0] > 0).mean(), rel_tol=1e-6)


def test_an_empty_evaluation_is_an_error(tmp_path):
  task = toy_task.ToyTask()
  task.eval_dataset = lambda size: (
    toy_task.ToyTask().train_dataset(size, 0).take(0)
  )
  with pytest.raises(ValueError, match="no held-out example"):
    toy_task.run(task, toy_task.config(tmp_path))


def evaluation_of(task, model=None):
  return evaluation.make_evaluation(
    task,
    model or task.build_model(),
    distribution.make_strategy("one_device"),
  )


def test_losses_and_predictions_ask_the_model_once():
  """Of one graph; a call with dropout would be another question."""
  task, calls = toy_task.PredictingToyTask(), []

  class Counted(type(task.build_model())):
    def call(self, x):
      calls.append(None)
      return super().call(x)

  model = Counted()
  model.build([None, toy_task.FEATURES])
  calls.clear()
  values = evaluation_of(task, model)(task.eval_dataset(10))
  assert len(calls) == 1 and values["median_error"] > 0
  for ask in (lambda m, b: m(b["x"] + 0), lambda m, b: m(2 * b["x"])):
    calls.clear()
    task.predict = lambda m, b, ask=ask: {
      "example_id": b["example_id"],
      "outputs": ask(m, b),
    }
    evaluation_of(task, model)(task.eval_dataset(10))
    assert len(calls) == 2


def test_batches_of_several_lengths_share_one_program():
  task, traced = toy_task.ToyTask(), []
  forward = task.forward

  def first_column(model, batch, *args):
    traced.append(batch["x"].shape)
    return forward(model, {**batch, "x": batch["x"][:, :5]}, *args)

  task.forward = first_column
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
  for name, value in expected.items():
    assert math.isclose(values[name], value, rel_tol=1e-5)


def test_two_values_of_one_name_are_refused():
  task = toy_task.PredictingToyTask()
  task.score = lambda predictions: {"share": 1.0, "loss": 2.0}
  with pytest.raises(ValueError, match="both give loss, share: rename"):
    evaluation_of(task)(task.eval_dataset(10))


def made(task=None):
  task = task or toy_task.PredictingToyTask()
  tf.keras.utils.set_random_seed(3)
  model = task.build_model()
  return task, model, distribution.make_strategy("one_device")


def test_one_row_for_each_example_in_their_order():
  task, model, strategy = made()
  predict = evaluation.make_prediction(task, model, strategy)
  expected = model(task.eval_x).numpy()
  for data in (
    task.eval_dataset(10),  # 37 examples: 3 rows fill up the last batch.
    task.eval_dataset(8).unbatch().shuffle(99, seed=1).batch(8, True),
  ):
    rows = predict(data)
    assert rows.keys() == {"example_id", "outputs"}
    np.testing.assert_array_equal(rows["example_id"], np.arange(37))
    np.testing.assert_allclose(rows["outputs"], expected, rtol=1e-5, atol=1e-6)


def test_only_a_task_that_predicts_is_one():
  assert isinstance(toy_task.PredictingToyTask(), objective.PredictingTask)
  assert not isinstance(toy_task.ToyTask(), objective.PredictingTask)


def run_of(tmp_path, **settings):
  command = toy_job.command(tmp_path, _CONFIG, predicts=True, **settings)
  workers = 2 if settings["distribution"] == "multi_worker" else 1
  with toy_job.started(workers, command, cwd=_ROOT) as processes:
    for process in processes:
      assert toy_job.ended(process) == (0, "")
  return reporting.read_metrics(str(tmp_path), "eval")


@pytest.fixture(scope="module")
def one(tmp_path_factory):
  folder = tmp_path_factory.mktemp("one")
  task = toy_task.PredictingToyTask()
  _, weights, _ = toy_task.run(task, toy_task.config(folder, **_CONFIG))
  records = reporting.read_metrics(str(folder), "eval")
  hidden = np.tanh(task.x @ weights[0] + weights[1])
  errors = np.abs(hidden @ weights[2] + weights[3] - task.y)
  assert records[-1]["median_error"] == pytest.approx(
    np.median(errors), rel=1e-5
  )
  return records


@pytest.mark.parametrize(
  "name, devices",
  [
    ("mirrored", 2),
    pytest.param("mirrored", 4, marks=pytest.mark.heavy),
    pytest.param("multi_worker", 2, marks=pytest.mark.heavy),
  ],
)
def test_all_devices_together_predict_what_one_does(
  tmp_path, one, name, devices
):
  """A median of one replica's rows, or of rows in another order, differs."""
  records = run_of(tmp_path, distribution=name, num_devices=devices)
  assert [r["step"] for r in records] == [r["step"] for r in one] == [0, 2]
  for a, b in zip(records, one):
    for value in ("median_error", "loss", "share"):
      assert a[value] == pytest.approx(b[value], rel=1e-5)
  assert one[0]["median_error"] != pytest.approx(one[1]["median_error"], 1e-3)


def parts(*ids, **others):
  others = others or {"y": [np.zeros([len(i), 2]) for i in ids]}
  return [
    {"example_id": np.array(i), **{k: v[n] for k, v in others.items()}}
    for n, i in enumerate(ids)
  ]


def test_rows_are_sorted():
  y = [np.array([2.0, 0.0]), np.array([1.0])]
  rows = evaluation.collect(parts([2, 0], [1], y=y))
  np.testing.assert_array_equal(rows["y"], [0.0, 1.0, 2.0])


@pytest.mark.parametrize(
  "given, message",
  [
    (parts([0, 1], [2, 1]), "example_id 1 was predicted twice"),
    (parts([0, 0]), "example_id 0 was predicted twice"),
    (parts([3, 0], [1]), "example_id 2 was not predicted, but 3 was"),
    (parts([1, 2]), "example_id 0 was not predicted, but 1 was"),
    (parts([]), "there is no example to predict"),
    ([], "there is no example to predict"),
    ([{"y": np.ones([3])}], "predictions need example_id, .* got only y"),
    (
      parts([0], [1], y=[np.ones([1, 5]), np.ones([1, 7])]),
      r"y have the shape \[7\] in one batch and \[5\] in another",
    ),
  ],
)
def test_predictions_that_are_not_one_for_each_example(given, message):
  with pytest.raises(ValueError, match=message):
    evaluation.collect(given)


def test_a_split_that_is_read_twice_is_refused():
  task, model, strategy = made()
  evaluate = evaluation.make_evaluation(task, model, strategy)
  data = task.eval_dataset(10)
  assert evaluate(data)["median_error"] > 0
  with pytest.raises(ValueError, match="example_id 0 was predicted twice"):
    evaluate(data.concatenate(data))


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
