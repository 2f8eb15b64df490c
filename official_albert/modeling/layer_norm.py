"""LayerNorm in float32."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

from official_albert.modeling import fused_ops

# Reference: the variance epsilon of contrib's layer_norm for float32 and
# bfloat16.
EPSILON = 1e-12


@tf.keras.utils.register_keras_serializable(package="official_albert")
class LayerNorm(tf.keras.layers.Layer):
  """LayerNorm over the last axis.

  Statistics, scale and offset are float32 under any precision policy. The
  result has the dtype of the input.
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

  def call(self, x: tf.Tensor, training: Optional[bool] = None) -> tf.Tensor:
    """Normalizes <float>[..., H]; XLA compiles it in training."""
    return fused_ops.add_layer_norm(
      x,
      None,
      None,
      tf.convert_to_tensor(self.gamma),
      tf.convert_to_tensor(self.beta),
      self.epsilon,
      compiled=bool(training),
    )

  def get_config(self) -> dict[str, Any]:
    return {**super().get_config(), "epsilon": self.epsilon}
