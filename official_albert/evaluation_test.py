from __future__ import annotations

import math

import numpy as np
import pytest

from official_albert import toy_task


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


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
