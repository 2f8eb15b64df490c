"""Norms of weights and of the last update, and LAMB's trust ratios.

Nothing is kept for them and no step computes them: what an update was can be
had back from what it left. After w' = w - lr r (a + d w), with a = m / (sqrt(v)
+ eps) from the moments, decay d and ratio r, let u = a + d w' be the direction
at the new weights. The old weights lie on the same line,

    w = w' + lr q u        with        q = r / (1 - lr r d)

so that the update's norm is lr q ||u||. For AdamW r is 1. For LAMB it is
||w|| / ||a + d w||, which makes q the positive root of

    (1 - lr^2) ||u||^2 q^2 - 2 lr <w', u> q - ||w'||^2 = 0.

So one look at weights and moments, once per loop, gives the numbers of the
loop's last update as they were.
"""

from __future__ import annotations

from typing import Sequence

import tensorflow as tf

from official_albert.training import optimization

NAMES = ("weight_norm", "update_norm", "trust_ratio")


def make_update_norms(
  optimizer: optimization.AlbertOptimizer, variables: Sequence[tf.Variable]
):
  """A function without arguments, to be called between two loops.

  Returns:
    A function that returns `weight_norm`, `update_norm` and, for LAMB,
    `trust_ratio`: by these names of all variables together (the mean of the
    ratios of those that have one), and by `weight_norm/NAME` and so on of each
    variable; floats. Weights are those after the update. If the last update
    was left out (see `loss_scale.py`), it is the one before, at most.
  """
  adapted = [optimizer.adapts(v) for v in variables]

  @tf.function
  def measure():
    step = optimizer.iterations - 1
    rate = tf.cast(_rate(optimizer, step), tf.float32)
    return [
      _of_one(optimizer, v, has_ratio, rate * optimizer.rate_multiplier(v))
      for v, has_ratio in zip(variables, adapted)
    ]

  def update_norms() -> dict[str, float]:
    rows = [[float(x) for x in row] for row in measure()]
    values = {
      "weight_norm": sum(row[0] ** 2 for row in rows) ** 0.5,
      "update_norm": sum(row[1] ** 2 for row in rows) ** 0.5,
    }
    ratios = [row[2] for row, has_ratio in zip(rows, adapted) if has_ratio]
    if ratios:
      values["trust_ratio"] = sum(ratios) / len(ratios)
    for variable, has_ratio, row in zip(variables, adapted, rows):
      for name, value in zip(NAMES[: 2 + has_ratio], row):
        values[f"{name}/{variable.name.split(':')[0]}"] = value
    return values

  return update_norms


def _rate(optimizer, step):
  rate = optimizer.learning_rate
  return rate(step) if callable(rate) else rate


def _of_one(optimizer, variable, has_ratio, rate):
  """`NAMES` of one variable, <float32>[] each."""
  w = tf.convert_to_tensor(variable)
  decay = optimizer.decay_of(variable)
  u = optimizer.direction(variable) + decay * w
  weights, length = tf.norm(w), tf.norm(u)
  q = 1.0 / (1.0 - rate * decay)
  if has_ratio:
    p = rate * tf.reduce_sum(w * u)
    short = (1.0 - rate**2) * length**2
    root = (p + tf.sqrt(p**2 + short * weights**2)) / short
    # As in LAMB: where there is no length to compare, the ratio is 1.
    q = tf.where(weights * length > 0, root, q)
  return weights, rate * q * length, q / (1.0 + rate * q * decay)
