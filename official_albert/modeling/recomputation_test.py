"""Tests that the second computation is one, comes late and changes nothing."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from official_albert.modeling import recomputation

B, H = 3, 5


def make_block():
  rng = np.random.default_rng(0)
  kernel = tf.Variable(rng.normal(size=[H, H]), dtype=tf.float32, name="k")
  bias = tf.Variable(rng.normal(size=[H]), dtype=tf.float32, name="b")
  return [kernel, bias], lambda x: tf.tanh(tf.matmul(x, kernel) + bias)


def normal(seed):
  values = np.random.default_rng(seed).normal(size=[B, H])
  return tf.constant(values, tf.float32)


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("applications", [1, 3])
def test_gradients_are_those_of_the_block(graph, applications):
  """Also when the variables are used many times, and elsewhere."""
  variables, block = make_block()

  def gradients(apply, x):
    with tf.GradientTape() as tape:
      tape.watch(x)
      y = x
      for _ in range(applications):
        y = apply(y)
      total = tf.reduce_sum(y * normal(2)) + tf.reduce_sum(variables[0] ** 2)
    return y, tape.gradient(total, [x, *variables])

  def ours(x):
    return gradients(lambda y: recomputation.recomputed(block, y), x)

  run = tf.function(ours) if graph else ours
  expected, got = gradients(block, normal(1)), run(normal(1))
  for a, b in zip(tf.nest.flatten(expected), tf.nest.flatten(got)):
    np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


def ancestors(op, data_only):
  seen, todo = set(), [op]
  while todo:
    op = todo.pop()
    if op.name not in seen:
      seen.add(op.name)
      todo.extend(x.op for x in op.inputs)
      todo.extend([] if data_only else op.control_inputs)
  return seen


def test_the_second_computation_waits_for_the_gradient():
  """By a control input for TensorFlow, and by data for XLA.

  Otherwise they merge both computations into one, and no memory is saved.
  """
  _, block = make_block()

  @tf.function
  def run(x, dy):
    with tf.GradientTape() as tape:
      tape.watch(x)
      y = recomputation.recomputed(block, x)
    return tape.gradient(y, x, dy)

  spec = tf.TensorSpec([B, H])
  graph = run.get_concrete_function(spec, spec).graph
  first, second = [op for op in graph.get_operations() if op.type == "Tanh"]
  for data_only in (False, True):
    assert "dy" not in ancestors(first, data_only)
    assert "dy" in ancestors(second, data_only)
  controls = [c for op in graph.get_operations() for c in op.control_inputs]
  assert "dy" in [op.name for op in controls]


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16])
def test_values_keep_dtype_and_bits(dtype):
  x = tf.cast(normal(1), dtype)
  with tf.GradientTape() as tape:
    tape.watch(x)
    y = recomputation.recomputed(lambda x: tf.exp(-x), x)
  np.testing.assert_array_equal(y, tf.exp(-x))
  gradient = tape.gradient(y, x)
  assert gradient.dtype == dtype
  np.testing.assert_array_equal(gradient, -tf.exp(-x))


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
