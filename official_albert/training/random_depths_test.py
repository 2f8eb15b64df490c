"""Tests of updates at random depths: which are drawn, and by whom."""

from __future__ import annotations

import collections
import copy

import numpy as np
import pytest
import tensorflow as tf

from official_albert.testing import toy_task
from official_albert.training import objective, reporting, train_step

DEPTHS = (2, 3, 7)


class DeepToyTask(toy_task.ToyTask):
  """Its metric `depth` is how deep it was trained; it learns accordingly."""

  depth = 5

  def at_depth(self, num_layers):
    task = copy.copy(self)
    task.depth = num_layers
    task.flops_per_example = 100 * num_layers
    return task

  def forward(self, model, batch, training_, dropout_seed):
    batch = {**batch, "x": batch["x"] * self.depth}
    totals, _ = super().forward(model, batch, training_, dropout_seed)
    one = tf.ones([])
    return totals, {"depth": objective.Ratio(self.depth * one, one)}


def config(folder, **changes):
  return toy_task.config(
    folder, **{"random_depths": DEPTHS, "steps_per_loop": 1, **changes}
  )


def depths(folder, kind="train"):
  return [r["depth"] for r in reporting.read_metrics(str(folder), kind)]


def test_each_depth_is_drawn_equally_often(tmp_path):
  draw = tf.function(lambda n: train_step.draw_depth(config(tmp_path), n))
  drawn = [int(draw(tf.constant(n, tf.int64))) for n in range(600)]
  counts = collections.Counter(drawn)
  # 200 each, within four standard deviations.
  assert all(abs(counts[index] - 200) < 46 for index in range(3))
  assert len(counts) == 3 and drawn[:300] != drawn[300:]


def test_a_steps_depth_is_that_of_all_micro_batches_and_of_every_start(
  tmp_path,
):
  whole, parts = tmp_path / "whole", tmp_path / "parts"
  _, weights, log = toy_task.run(DeepToyTask(), config(whole))
  drawn = depths(whole)
  cfg = config(whole)
  assert drawn == [
    DEPTHS[int(train_step.draw_depth(cfg, np.int64(n)))] for n in range(6)
  ]
  assert len(set(drawn)) > 1
  # The evaluation is of the task as it is; operations are the mean's, of 4.
  assert depths(whole, "eval") == [5, 5]
  assert "216 tokens, 2.88e+04 operations" in log
  record = reporting.read_metrics(str(whole), "train")[-1]
  flops = record["model_flops_per_second"] / record["sequences_per_second"]
  assert flops == pytest.approx(400)
  # In micro-batches: the sum of three equal depths over a weight of 3.
  cut = DeepToyTask()
  make = cut.train_dataset
  cut.train_dataset = lambda *arguments: make(*arguments).take(4)
  micro = dict(gradient_accumulation_steps=3)
  with pytest.raises(tf.errors.OutOfRangeError):
    toy_task.run(cut, config(parts, **micro))
  _, resumed, _ = toy_task.run(DeepToyTask(), config(parts, **micro))
  assert depths(parts) == drawn
  for a, b in zip(weights, resumed):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)  # Other sums.


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
