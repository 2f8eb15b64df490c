from __future__ import annotations

import math

import pytest
import tensorflow as tf

from official_albert.training import objective


def _ratio(total, weight):
  return objective.Ratio(tf.constant(float(total)), tf.constant(float(weight)))


def test_quotients_of_sums_are_not_means_of_means():
  first = {"a_loss": _ratio(6, 2), "b_loss": _ratio(1, 4), "x": _ratio(3, 1)}
  second = {"a_loss": _ratio(1, 5), "b_loss": _ratio(5, 4), "x": _ratio(0, 2)}
  values = objective.quotients(tf.nest.map_structure(tf.add, first, second))
  assert values == pytest.approx(
    {"loss": 1.75, "a_loss": 1.0, "b_loss": 0.75, "x": 1.0}
  )
  assert objective.quotients({"a": _ratio(0, 0)}) == {"loss": 0, "a": 0}
  values = objective.quotients({"a_loss": _ratio(math.nan, 3)})
  assert math.isnan(values["loss"])


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
