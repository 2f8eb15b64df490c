from __future__ import annotations

import math

import pytest
import tensorflow as tf

from official_albert.testing import toy_task
from official_albert.training import objective


def _ratio(total, weight):
  return objective.Ratio(tf.constant(float(total)), tf.constant(float(weight)))


def test_quotients_of_sums_and_not_means_of_means():
  first = {"a_loss": _ratio(6, 2), "b_loss": _ratio(1, 4), "x": _ratio(3, 1)}
  second = {"a_loss": _ratio(1, 5), "b_loss": _ratio(5, 4), "x": _ratio(0, 2)}
  values = objective.quotients(objective.add(first, second))
  assert values == pytest.approx(
    {"loss": 1.75, "a_loss": 1.0, "b_loss": 0.75, "x": 1.0}
  )


def test_nothing_divided_by_nothing_is_zero():
  assert objective.quotients({"a": _ratio(0, 0)}) == {"loss": 0, "a": 0}


def test_a_total_that_is_lost_stays_lost():
  values = objective.quotients({"a_loss": _ratio(math.nan, 3)})
  assert math.isnan(values["loss"])


def test_brief():
  text = objective.brief({"loss": 6.28318, "rate": 1e-5})
  assert text == "loss 6.283, rate 1e-05"


def test_the_toy_task_offers_all_that_the_loop_asks_for():
  wanted = set(objective.Task.__annotations__)
  wanted |= {n for n in vars(objective.Task) if not n.startswith("_")}
  assert len(wanted) > 8
  assert all(hasattr(toy_task.ToyTask(), name) for name in wanted)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
