"""A dynamic loss scale, for float16.

float16 holds nothing below 6e-8 and nothing above 65504, and gradients of
activations are small. So the loss is multiplied by a factor before the
backward pass, and the gradient of the weights, which is float32, is divided by
it afterwards. The factor is as large as it can be: it doubles after many
finite gradients in a row, and is halved when one overflows; the update of that
step is then left out (arXiv 1710.03740, section 3.2 and its dynamic variant).

A step whose update is left out still counts: learning rate, dropout seeds and
data position are functions of the step, and a resumed run finds them so.
"""

from __future__ import annotations

from typing import Mapping, Optional, Sequence

import tensorflow as tf

from official_albert.training import objective
from official_albert.training.objective import Ratio

INITIAL = 2.0**15
# Finite gradients in a row after which the scale is doubled.
GROWTH_STEPS = 2000
# Beyond it float32, which the loss is summed in, would come to its end.
_LARGEST = 2.0**24
# Below 1 there is nothing to scale up: the model itself overflows.
_SMALLEST = 0.5


class LossScale(tf.Module):
  """The factor, and how long it has held; both are saved with a run.

  All of it is a power of 2, so scaling changes the exponent of a number and
  none of its digits. To be made under the strategy's scope.

  Attributes:
    value: <float32>[].
    finite_steps: <int64>[], finite gradients since the factor last changed.
  """

  def __init__(self):
    super().__init__(name="loss_scale")
    self.value = tf.Variable(INITIAL, trainable=False, name="value")
    self.finite_steps = tf.Variable(
      0, dtype=tf.int64, trainable=False, name="finite_steps"
    )

  def unscale(self, gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Gradients of the loss from those of the scaled loss."""
    inverse = 1.0 / self.value
    return [g * inverse for g in gradients]

  def apply_if_finite(
    self,
    optimizer: tf.keras.optimizers.legacy.Optimizer,
    gradients_and_variables: Sequence[tuple[tf.Tensor, tf.Variable]],
    finite: tf.Tensor,
  ) -> None:
    """Updates the weights or leaves that out; the step counts either way.

    Args:
      optimizer: of the variables.
      gradients_and_variables: reduced and unscaled; the same on all replicas.
      finite: <bool>[], likewise; whether the gradients are to be used.
    """

    def across_replicas(strategy, pairs, finite):
      # It was computed from what was reduced, so any replica's will do.
      finite = strategy.experimental_local_results(finite)[0]

      def update():
        strategy.extended.call_for_each_replica(
          optimizer.apply_gradients,
          args=(pairs,),
          kwargs={"experimental_aggregate_gradients": False},
        )
        return tf.constant(True)

      def leave_out():
        optimizer.iterations.assign_add(1)
        return tf.constant(False)

      tf.cond(finite, update, leave_out)
      self._adapt(finite)

    tf.distribute.get_replica_context().merge_call(
      across_replicas, args=(list(gradients_and_variables), finite)
    )

  def _adapt(self, finite: tf.Tensor) -> None:
    steps = tf.where(finite, self.finite_steps + 1, 0)
    grows = steps >= GROWTH_STEPS
    doubled = tf.where(grows, 2 * self.value, self.value)
    value = tf.where(finite, doubled, self.value / 2)
    self.value.assign(tf.clip_by_value(value, _SMALLEST, _LARGEST))
    self.finite_steps.assign(tf.where(grows, tf.zeros_like(steps), steps))

  def read(self, sums: Mapping[str, Ratio]) -> dict[str, float]:
    """What people read of a loop: `objective.quotients` of what was used.

    Returns:
      The quotients, without those that no step contributed to; the factor as
      `loss_scale`; how many updates were left out as `skipped_updates`.
    """
    sums = dict(sums)
    skipped = float(sums.pop(SKIPPED).total)
    used = {k: ratio for k, ratio in sums.items() if float(ratio.weight)}
    values = objective.quotients(used)
    if len(used) < len(sums):  # The sum of the losses would be 0 or too small.
      del values["loss"]
    return {
      **values,
      "loss_scale": float(self.value.numpy()),
      SKIPPED: skipped,
    }


SKIPPED = "skipped_updates"


def make_loss_scale(model: tf.keras.Model) -> Optional[LossScale]:
  """A loss scale if `model` computes in float16, else None."""
  return LossScale() if model.compute_dtype == "float16" else None


def only_if(
  finite: tf.Tensor, results: Mapping[str, Ratio]
) -> dict[str, Ratio]:
  """The step's `results` if its update was made, else nothing, and the count.

  Args:
    finite: <bool>[].
    results: of one step.
  """
  used = tf.nest.map_structure(
    lambda x: tf.where(finite, x, tf.zeros_like(x)), dict(results)
  )
  skipped = Ratio(1.0 - tf.cast(finite, tf.float32), tf.ones([]))
  return {**used, SKIPPED: skipped}
