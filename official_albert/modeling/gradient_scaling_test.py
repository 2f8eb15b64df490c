"""Tests that only the variables' gradient has the factor."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from official_albert.modeling import gradient_scaling, recomputation


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
@pytest.mark.parametrize("factor", [1.0, 0.25])
def test_the_variables_have_the_factor_and_the_input_has_not(
  factor, dtype, recompute
):
  rng = np.random.default_rng(0)
  kernel = tf.Variable(rng.normal(size=[5, 5]), dtype=tf.float32)
  x = tf.cast(rng.normal(size=[3, 5]), dtype)

  def block(x):
    return tf.tanh(tf.matmul(x, tf.cast(kernel, x.dtype)))

  def weighted(x):
    return gradient_scaling.scaled(block, x, factor)

  def gradients(apply):
    with tf.GradientTape() as tape:
      tape.watch(x)
      y = apply(x)
    return y, *tape.gradient(y, [x, kernel])

  y, dx, dk = gradients(block)
  apply = weighted
  if recompute:
    apply = lambda x: recomputation.recomputed(weighted, x)  # noqa: E731
  got = gradients(apply)
  # A power of two: the factor itself rounds nothing.
  np.testing.assert_array_equal(got[0], y)
  np.testing.assert_array_equal(got[1], dx)
  np.testing.assert_array_equal(got[2], factor * dk)
  assert got[1].dtype == dtype


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
