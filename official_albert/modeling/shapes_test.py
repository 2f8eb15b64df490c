"""Tests of the refusals."""

from __future__ import annotations

import pytest
import tensorflow as tf

from official_albert.modeling import shapes


def test_messages_name_the_tensor():
  with pytest.raises(ValueError, match=r"input_ids .*\[B, S\], got \[3\]"):
    shapes.check_ids("input_ids", tf.zeros([3], tf.int32))
  with pytest.raises(ValueError, match="input_mask .*int32.*float32"):
    shapes.check_ids("input_mask", tf.zeros([3, 5]))


def test_other_shapes_are_refused_even_where_they_would_stretch():
  ids = tf.zeros([3, 5], tf.int32)
  shapes.check_same_shape("input_mask", tf.ones([3, 5]), "input_ids", ids)
  for shape in ([3, 1], [1, 5], [3, 4]):
    with pytest.raises(ValueError, match="input_mask .* input_ids has"):
      shapes.check_same_shape("input_mask", tf.ones(shape), "input_ids", ids)


def test_right_shapes_pass():
  shapes.check_ids("input_ids", tf.zeros([3, 5], tf.int64))
  shapes.check_rank("x", tf.zeros([2, 3, 5]), "B S H")


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
