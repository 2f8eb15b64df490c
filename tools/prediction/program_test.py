"""Batches of any size on one device and on several."""

from __future__ import annotations

import pathlib
import subprocess
import sys
from typing import Optional

import numpy as np
import pytest
import tensorflow as tf

from official_albert import distribution
from tools.prediction import program as prediction_program


class Toy(tf.Module):
  def __init__(self):
    super().__init__()
    self.scale = tf.Variable(3.0)


def _predict(model, batch):
  return {
    "sum": model.scale * tf.reduce_sum(tf.cast(batch["x"], tf.float32), -1),
    "rows": tf.fill([tf.shape(batch["x"])[0]], tf.shape(batch["x"])[0]),
  }


def check(strategy: tf.distribute.Strategy, rows: Optional[int]) -> None:
  """Predicts batches of several sizes.

  Args:
    strategy: the devices.
    rows: of each device's share; None: all of a batch.
  """
  with strategy.scope():
    model = Toy()
  program = prediction_program.Program(model, _predict, strategy, 4)
  assert not program.fixed_length
  for shape in ((4, 5), (1, 7), (3, 2)):
    x = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    said = program({"x": x})
    np.testing.assert_array_equal(said["sum"], 3.0 * x.sum(1))
    assert said["rows"].tolist() == [rows or shape[0]] * shape[0]


def check_two_devices() -> None:
  """Each has its share of a batch that is filled up."""
  two = distribution.make_strategy("mirrored", 2, "")
  check(two, 2)
  with pytest.raises(
    ValueError, match="is 3, but has to be a multiple of the 2"
  ):
    prediction_program.Program(Toy(), _predict, two, 3)


def test_one_device():
  check(tf.distribute.get_strategy(), None)


def test_two_devices():
  """In a process of their own: they must be made before all else."""
  program = "from tools.prediction import program_test as t\n"
  done = subprocess.run(
    [sys.executable, "-c", program + "t.check_two_devices()"],
    cwd=pathlib.Path(__file__).resolve().parents[2],
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr


def test_rows_of_options():
  program = prediction_program.Program(
    None,
    lambda model, batch: {"y": tf.reduce_max(batch["x"], [1, 2])},
    tf.distribute.get_strategy(),
    9,
  )
  for length in (3, 5):
    x = np.random.default_rng(0).integers(0, 9, (2, 4, length), np.int32)
    np.testing.assert_array_equal(program({"x": x})["y"], x.max((1, 2)))


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
