from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf

from official_albert import distribution
from official_albert.testing import toy_task
from official_albert.training import evaluation


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


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
