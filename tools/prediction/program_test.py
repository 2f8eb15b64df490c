"""Batches of any size on one device and on several."""

from __future__ import annotations

import pathlib
import subprocess
import sys
from typing import Sequence

import numpy as np
import pytest
import tensorflow as tf

from official_albert import distribution
from tools.prediction import program as prediction_program


class Toy(tf.Module):
  def __init__(self):
    super().__init__()
    self.scale = tf.Variable(3.0)

  def forward(self, input_ids):
    rows = tf.shape(input_ids)[0]
    sums = tf.reduce_sum(tf.cast(input_ids, tf.float32), -1)
    return {"sum": self.scale * sums, "rows": tf.fill([rows], rows)}


def check(strategy: tf.distribute.Strategy, rows: Sequence[int]) -> None:
  """Computes batches of several sizes, the last one larger than a batch.

  Args:
    strategy: the devices.
    rows: how many rows the device of the first row gets, for each size.
  """
  with strategy.scope():
    model = Toy()
  program = prediction_program.Program(model.forward, strategy, 4, 9)
  assert not program.fixed_length
  for shape, count in zip(((4, 5), (1, 7), (3, 2), (11, 3)), rows):
    x = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    # The caller's device is not the program's.
    with tf.device(tf.config.list_logical_devices("CPU")[0].name):
      outputs = program(input_ids=tf.constant(x))
    np.testing.assert_array_equal(outputs["sum"], 3.0 * x.sum(1))
    assert outputs["rows"].shape == shape[:1]
    assert outputs["rows"].numpy()[0] == count


def check_two_devices() -> None:
  """Each has its share of a batch that is filled up."""
  two = distribution.make_strategy("mirrored", 2, "")
  check(two, [2, 2, 2, 2])
  with pytest.raises(
    ValueError, match="is 3, but must be a positive multiple of"
  ):
    prediction_program.Program(Toy().forward, two, 3, 9)


def test_one_device():
  check(tf.distribute.get_strategy(), [4, 1, 3, 4])


def test_two_devices():
  """In a new process: devices must be made before anything else."""
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
    lambda input_ids: {"y": tf.reduce_max(input_ids, [1, 2])},
    tf.distribute.get_strategy(),
    9,
    5,
  )
  for length in (3, 5):
    x = np.random.default_rng(0).integers(0, 9, (2, 4, length), np.int32)
    outputs = program(input_ids=tf.constant(x))
    np.testing.assert_array_equal(outputs["y"], x.max((1, 2)))


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
