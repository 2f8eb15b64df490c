"""Weighing what one application of a shared block adds to its gradient."""

from __future__ import annotations

from typing import Callable

import tensorflow as tf


def scaled(
  block: Callable[[tf.Tensor], tf.Tensor], x: tf.Tensor, factor: float
) -> tf.Tensor:
  """block(x), whose variables get `factor` times their gradient from here.

  The gradient with respect to `x` is that of `block`: what comes in from above
  is multiplied and what goes out below divided, so that only what is branched
  off in between, to the variables, is left with the factor.

  Args:
    block: any computation with variables.
    x: <float>[...].
    factor: positive; 1 costs nothing.

  Returns:
    What `block` returns.
  """
  if factor == 1.0:
    return block(x)
  return _scale(block(_scale(x, 1.0 / factor)), factor)


def _scale(x: tf.Tensor, factor: float) -> tf.Tensor:
  """`x`, with `factor` times its gradient."""

  @tf.custom_gradient
  def run(x):
    return tf.identity(x), lambda dy: dy * tf.cast(factor, dy.dtype)

  return run(x)
