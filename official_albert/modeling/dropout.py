"""Dropout whose mask is a pure function of a seed.

A training step must be a pure function of weights, batch and step number.
Only then does a resumed run repeat the uninterrupted run to the bit, and only
then can the backward pass recompute activations with the same mask. Keras'
Dropout has hidden state, so here the seed is an argument.
"""

from __future__ import annotations

from typing import Optional

import tensorflow as tf


def fold_in(seed: Optional[tf.Tensor], data) -> Optional[tf.Tensor]:
  """Returns a new seed for the part with number `data`; None stays None.

  Args:
    seed: <int32>[2] or None.
    data: an integer or a scalar integer tensor, different for each use.
  """
  if seed is None:
    return None
  return tf.random.experimental.stateless_fold_in(seed, data)


def seeded_dropout(
  x: tf.Tensor,
  rate: float,
  training: Optional[bool],
  seed: Optional[tf.Tensor] = None,
) -> tf.Tensor:
  """Zeroes a fraction `rate` of `x` in training and scales up the rest.

  Args:
    x: <float>[...].
    rate: the probability in [0, 1) of dropping an element.
    training: False or None returns `x` itself.
    seed: <int32>[2]; None draws from TensorFlow's global generator, which
      is convenient in a notebook but not repeatable after a restart.
  """
  if not training or rate == 0.0:
    return x
  if seed is None:
    return tf.nn.dropout(x, rate)
  return tf.nn.experimental.stateless_dropout(x, rate, seed)
