"""LayerNorm with its residual connection, in float32."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

from official_albert.modeling import fused_ops, shapes

# Reference: contrib layer_norm's variance epsilon for float32 and bfloat16.
EPSILON = 1e-12


@tf.keras.utils.register_keras_serializable(package="official_albert")
class LayerNorm(tf.keras.layers.Layer):
  """LayerNorm(x + residual) over the last axis.

  Statistics, scale and offset are float32 under any precision policy; the
  result has the dtype that came in.
  """

  def __init__(self, epsilon: float = EPSILON, **kwargs):
    super().__init__(autocast=False, **kwargs)
    self.epsilon = epsilon

  def build(self, input_shape):
    def weight(name: str, initializer: str) -> tf.Variable:
      return self.add_weight(
        name=name,
        shape=[input_shape[-1]],
        dtype=tf.float32,
        initializer=initializer,
        experimental_autocast=False,
      )

    self.gamma = weight("gamma", "ones")
    self.beta = weight("beta", "zeros")
    super().build(input_shape)

  def call(
    self,
    x: tf.Tensor,
    residual: Optional[tf.Tensor] = None,
    training: Optional[bool] = None,
  ) -> tf.Tensor:
    """Normalizes <float>[..., H].

    Args:
      x: <float>[..., H].
      residual: <float>[..., H] of the dtype of `x`, added first; None adds
        nothing.
      training: whether XLA compiles the chain, see `fused_ops.py`.

    Returns:
      <float>[..., H] in the dtype of `x`.

    Raises:
      ValueError: the residual has another shape or dtype.
    """
    if residual is not None:
      residual = tf.convert_to_tensor(residual)
      shapes.check_same_shape("residual", residual, "x", x)
      if residual.dtype != x.dtype:
        raise ValueError(f"residual is {residual.dtype}, but x is {x.dtype}.")
    return fused_ops.add_layer_norm(
      x,
      None,
      residual,
      tf.convert_to_tensor(self.gamma),
      tf.convert_to_tensor(self.beta),
      self.epsilon,
      compiled=bool(training),
    )

  def get_config(self) -> dict[str, Any]:
    return {**super().get_config(), "epsilon": self.epsilon}
