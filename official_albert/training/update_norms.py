"""The norms of the last update and LAMB's trust ratios, for the log."""

from __future__ import annotations

import functools
import math
from typing import Callable, Optional, Sequence

import tensorflow as tf

from official_albert.training import optimization

NORM_NAMES = ("weight_norm", "update_norm", "trust_ratio")


def make_update_norms(
  optimizer: optimization.AlbertOptimizer, variables: Sequence[tf.Variable]
) -> Callable[[], dict[str, float]]:
  """Returns a function that measures the last update, to call between loops.

  The norms follow from the weights and moments after the update, so no step
  computes them. The update is w' = w - lr r (a + d w), with a = m / (sqrt(v) +
  eps), decay d and trust ratio r. Let u = a + d w'. Then

      w = w' + lr q u        with        q = r / (1 - lr r d)

  and the norm of the update is lr q ||u||. For Muon's matrices, a is
  `optimization.orthogonal_direction(m)`. For AdamW and Muon, r is 1. For LAMB,
  r is ||w|| / ||a + d w||, so q is the positive root of

      (1 - lr^2) ||u||^2 q^2 - 2 lr <w', u> q - ||w'||^2 = 0.

  Returns:
    A function that returns floats: `weight_norm` (after the update),
    `update_norm` and, for LAMB, the mean `trust_ratio` of all variables, and
    the same for each variable as `weight_norm/NAME` and so on. After a skipped
    update (see `loss_scale.py`), they approximate those of the previous one.
  """

  def norms_of(
    w: tf.Tensor,
    m: tf.Tensor,
    v: tf.Tensor,
    rate: tf.Tensor,
    decays: bool,
    adapts: bool,
    orthogonalizes: bool,
  ) -> tf.Tensor:
    beta_1, beta_2, decay = (
      tf.identity(optimizer._get_hyper(name, tf.float32))
      for name in ("beta_1", "beta_2", "weight_decay")
    )
    decay *= float(decays)
    if optimizer.bias_correction:
      done = tf.cast(optimizer.iterations, tf.float32)
      m, v = m / (1.0 - beta_1**done), v / (1.0 - beta_2**done)
    u = m / (tf.sqrt(v) + optimizer.epsilon)
    if orthogonalizes:
      u = optimization.orthogonal_direction(m)
    u += decay * w
    weights, length = tf.norm(w), tf.norm(u)
    q = 1.0 / (1.0 - rate * decay)
    if not adapts:
      return tf.stack([weights, rate * q * length])
    p = rate * tf.reduce_sum(w * u)
    short = (1.0 - rate**2) * length**2
    root = (p + tf.sqrt(p**2 + short * weights**2)) / short
    # As in LAMB, the ratio is 1 if one of the norms is 0.
    q = tf.where(weights * length > 0, root, q)
    return tf.stack([weights, rate * q * length, q / (1.0 + rate * q * decay)])

  @functools.cache
  def traced(
    decays: bool, adapts: bool, matrix: Optional[tf.TensorShape]
  ) -> Callable:
    # Once for variables of all shapes but Muon's matrices, and not copied for
    # each: graphs delay the first line of a run's log.
    spec, scalar = tf.TensorSpec(matrix), tf.TensorSpec([])
    return tf.function(
      lambda w, m, v, rate: norms_of(
        w, m, v, rate, decays, adapts, bool(matrix)
      ),
      input_signature=[spec, spec, spec, scalar],
      autograph=False,
      experimental_attributes={"_noinline": True},
    )

  @tf.function(autograph=False)
  def measure() -> list[tf.Tensor]:
    rate = optimizer.learning_rate
    if callable(rate):
      rate = rate(optimizer.iterations - 1)
    rate = tf.cast(rate, tf.float32)
    rows = []
    for variable in variables:
      slots = (optimizer.get_slot(variable, name) for name in "mv")
      function = traced(
        optimizer._do_use_weight_decay(variable),
        optimizer._do_layer_adaptation(variable),
        variable.shape if optimizer.orthogonalizes(variable) else None,
      )
      tensors = map(tf.convert_to_tensor, (variable, *slots))
      rows.append(function(*tensors, rate))
    return rows

  def update_norms() -> dict[str, float]:
    rows = [row.numpy().tolist() for row in measure()]
    values = {
      "weight_norm": math.hypot(*(row[0] for row in rows)),
      "update_norm": math.hypot(*(row[1] for row in rows)),
    }
    ratios = [row[2] for row in rows if len(row) == 3]
    if ratios:
      values["trust_ratio"] = sum(ratios) / len(ratios)
    for variable, row in zip(variables, rows):
      for name, value in zip(NORM_NAMES, row):
        values[f"{name}/{variable.name.split(':')[0]}"] = value
    return values

  return update_norms
