"""A dynamic loss scale, for float16.

float16 has no numbers below 6e-8 or above 65504, and gradients of activations
are small. So the loss is multiplied by a scale before the backward pass, and
the float32 gradients of the weights are divided by it. The scale is as large as
possible: it doubles after many finite gradients in a row and halves when a
gradient overflows, whose update is skipped (arXiv 1710.03740, section 3.2).

A skipped update still counts as a step: learning rate, dropout seeds and the
position in the data are functions of the step.
"""

from __future__ import annotations

from typing import Mapping, Sequence

import tensorflow as tf

from official_albert.training import objective
from official_albert.training.objective import Ratio

INITIAL = 2.0**15
# Finite gradients in a row that double the scale.
GROWTH_STEPS = 2000
SKIPPED = "skipped_updates"
# A larger scale could overflow float32, in which the loss is summed.
_LARGEST = 2.0**24
# If the scale falls below 1, the model itself overflows.
_SMALLEST = 0.5


class LossScale(tf.Module):
  """The scale and its age; both are part of a checkpoint.

  The scale is a power of 2, so it changes only the exponents of numbers. Create
  it in the strategy's scope.

  Attributes:
    value: the scale, <float32>[].
    finite_steps: the number of finite gradients since the scale last changed,
      <int64>[].
  """

  def __init__(self):
    super().__init__(name="loss_scale")
    self.value = tf.Variable(INITIAL, trainable=False, name="value")
    self.finite_steps = tf.Variable(
      0, dtype=tf.int64, trainable=False, name="finite_steps"
    )

  def reset(self) -> None:
    """Starts over with the initial scale."""
    self.value.assign(INITIAL)
    self.finite_steps.assign(0)

  def apply_if_finite(
    self,
    optimizer: tf.keras.optimizers.legacy.Optimizer,
    gradients_and_variables: Sequence[tuple[tf.Tensor, tf.Variable]],
    norm: tf.Tensor,
    results: Mapping[str, Ratio],
  ) -> dict[str, Ratio]:
    """Updates the weights if the norm is finite; counts the step in any case.

    The gradients are unscaled and equal on all replicas, like their norm
    <float32>[]. `results` are the losses and metrics of the step.

    Returns:
      `results`, or zeros if the update is skipped; and `skipped_updates`.
    """
    finite = tf.math.is_finite(norm)

    def across_replicas(strategy, pairs, finite):
      finite = strategy.experimental_local_results(finite)[0]

      def update():
        strategy.extended.call_for_each_replica(
          optimizer.apply_gradients,
          args=(pairs,),
          kwargs={"experimental_aggregate_gradients": False},
        )
        return tf.constant(True)

      def skip():
        optimizer.iterations.assign_add(1)
        return tf.constant(False)

      tf.cond(finite, update, skip)
      steps = tf.where(finite, self.finite_steps + 1, 0)
      grows = steps >= GROWTH_STEPS
      doubled = tf.where(grows, 2 * self.value, self.value)
      value = tf.where(finite, doubled, self.value / 2)
      self.value.assign(tf.clip_by_value(value, _SMALLEST, _LARGEST))
      self.finite_steps.assign(tf.where(grows, tf.zeros_like(steps), steps))

    tf.distribute.get_replica_context().merge_call(
      across_replicas, args=(list(gradients_and_variables), finite)
    )
    used = tf.nest.map_structure(
      lambda x: tf.where(finite, x, tf.zeros_like(x)), dict(results)
    )
    skipped = Ratio(1.0 - tf.cast(finite, tf.float32), tf.ones([]))
    return {**used, SKIPPED: skipped}

  def read(self, sums: Mapping[str, Ratio]) -> objective.Values:
    """Returns the means over the updates of a loop that were not skipped.

    They include `loss_scale` and `skipped_updates`. Objectives without any
    update are omitted.
    """
    sums = dict(sums)
    skipped = float(sums.pop(SKIPPED).total)
    used = {k: ratio for k, ratio in sums.items() if float(ratio.weight)}
    values = objective.quotients(used)
    if len(used) < len(sums):  # The sum of the losses would be incomplete.
      del values["loss"]
    scale = float(self.value.numpy())
    return {**values, "loss_scale": scale, SKIPPED: skipped}
