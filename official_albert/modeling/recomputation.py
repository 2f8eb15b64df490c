"""Computing a block a second time instead of keeping what it computed.

The gradient of a block needs nearly all of its intermediate tensors, and a
shared block is applied 12 times or more. Computed again from the block's input
when the backward pass comes to it, they exist for one application at a time;
the price is one more forward pass (arXiv 1604.06174).
"""

from __future__ import annotations

from typing import Callable

import tensorflow as tf


def recomputed(
  block: Callable[..., tf.Tensor], x: tf.Tensor, *others: tf.Tensor
) -> tf.Tensor:
  """block(x, *others), of which only these are kept for the gradient.

  Memory is saved inside a `tf.function`; eager tapes keep what they see.

  Args:
    block: computes the same both times: dropout in it has seeds. Its variables
      have gradients as usual, but no tensor that is not an argument.
    x: <float>[...].
    *others: such as weights that are cast already.

  Returns:
    What `block` returns.
  """

  @tf.custom_gradient
  def run(x, *others):
    def gradient(dy, variables=()):
      variables = list(variables)
      with tf.GradientTape() as tape:
        again = _after(dy, x)
        tape.watch([again, *others])
        y = block(again, *others)
      slopes = tape.gradient(y, [again, *others, *variables], dy)
      count = 1 + len(others)
      return tuple(slopes[:count]), slopes[count:]

    return block(x, *others), gradient

  return run(x, *others)


def _after(dy: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
  """`x`, but not before there is `dy`.

  Without that, the second computation would be found equal to the first, and
  the first one's results kept; or it would all be done at once.
  """
  # TensorFlow keeps to control dependencies, XLA to what is added. 0 * dy is
  # not 0 for a compiler, since dy may be infinite; then dx is not finite
  # either way.
  with tf.control_dependencies([dy]):
    nothing = 0.0 * tf.reshape(dy, [-1])[0]
    return x + tf.cast(nothing, x.dtype)
