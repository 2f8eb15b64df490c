"""Building blocks of the layers: Dense, activation, LayerNorm and dropout.

Training must be a pure function of weights, batch and step number. Only then
does a resumed run equal the uninterrupted run to the bit, and can the backward
pass recompute activations with the same dropout mask. Keras' Dropout has
hidden state, so the dropout of this module takes its seed as an argument.
"""

from __future__ import annotations

import inspect
from typing import Any, Callable, Mapping, Optional, TypeVar

import tensorflow as tf

from official_albert import config as config_lib
from official_albert.modeling import fused_ops

Call = TypeVar("Call", bound=Callable[..., Any])


def without_autograph(call: Call) -> Call:
  """Keeps AutoGraph away from the `call` of a layer and what it calls.

  Keras' `fit` or a `tf.function` would rewrite the source of all layers, which
  takes 40% of the first `fit` of a toy. None of them has control flow that
  depends on the values of tensors.
  """
  decorated = tf.autograph.experimental.do_not_convert(call)
  decorated.__signature__ = inspect.signature(call)  # Keras reads its names.
  return decorated


class _Layer(tf.keras.layers.Layer):
  """A layer that reads its weights in the variable dtype under any policy."""

  def add_weight(self, *args: Any, **kwargs: Any) -> tf.Variable:
    return super().add_weight(*args, experimental_autocast=False, **kwargs)


class ConfiguredLayer(_Layer):
  """A layer built from an `AlbertConfig`, which is its attribute `config`."""

  def __init__(self, config: config_lib.AlbertConfig, **kwargs: Any):
    super().__init__(**kwargs)
    self.config = config

  def get_config(self) -> dict[str, Any]:
    return {**super().get_config(), "config": self.config.to_dict()}

  @classmethod
  def from_config(cls, config: Mapping[str, Any]) -> ConfiguredLayer:
    albert_config = config_lib.AlbertConfig.from_dict(config["config"])
    return cls(**{**config, "config": albert_config})


@tf.keras.utils.register_keras_serializable(package="official_albert")
class LayerNorm(_Layer):
  """LayerNorm over the last axis.

  Computes in float32, or in float64 for such an input. The result has the dtype
  of the input.
  """

  # Is added to the variance, as in the reference (tf.contrib's layer_norm).
  epsilon = 1e-12

  def __init__(self, **kwargs: Any):
    super().__init__(autocast=False, **kwargs)

  def build(self, input_shape: tf.TensorShape) -> None:
    size = [input_shape[-1]]
    self.gamma = self.add_weight("gamma", size, initializer="ones")
    self.beta = self.add_weight("beta", size, initializer="zeros")
    super().build(input_shape)

  def call(self, x: tf.Tensor, training: Optional[bool] = None) -> tf.Tensor:
    """Normalizes <float>[..., H]; XLA compiles it in training."""
    gamma, beta = map(tf.convert_to_tensor, (self.gamma, self.beta))
    return fused_ops.add_layer_norm(
      x, None, None, gamma, beta, self.epsilon, compiled=bool(training)
    )


def project(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
  """Multiplies <float>[..., I] by <float>[I, O] to <float>[..., O]."""
  sizes = tf.unstack(tf.shape(x)[:-1])
  y = fused_ops.product(tf.reshape(x, [-1, kernel.shape[0]]), kernel)
  return tf.reshape(y, [*sizes, kernel.shape[1]])


@tf.keras.utils.register_keras_serializable(package="official_albert")
class Dense(_Layer, tf.keras.layers.Dense):
  """Keras' layer, without activation, whose products are rounded to nearest.

  The bias is added in float32. With `is_wide`, all is computed in float32, or
  float64, under any policy.
  """

  def __init__(self, *args: Any, is_wide: bool = False, **kwargs: Any):
    super().__init__(*args, autocast=False, **kwargs)
    self.is_wide = is_wide

  def call(self, x: tf.Tensor) -> tf.Tensor:
    """Maps <float>[..., I] to <float>[..., O] in the compute dtype."""
    dtype = tf.as_dtype(self.compute_dtype)
    if self.is_wide:
      dtype = fused_ops.wide(dtype)
    y = project(tf.cast(x, dtype), tf.cast(self.kernel, dtype))
    if self.use_bias:
      wide = fused_ops.wide(dtype)
      y = tf.nn.bias_add(tf.cast(y, wide), tf.cast(self.bias, wide))
    return tf.cast(y, dtype)

  def get_config(self) -> dict[str, Any]:
    return {**super().get_config(), "is_wide": self.is_wide}


def normal(
  config: config_lib.AlbertConfig,
) -> tf.keras.initializers.Initializer:
  """Returns the reference's truncated normal."""
  return tf.keras.initializers.TruncatedNormal(stddev=config.initializer_range)


def layer_norm(owner: Any) -> LayerNorm:
  """Returns a LayerNorm with the original's name, for a layer's precision."""
  return LayerNorm(name="LayerNorm", dtype=owner.dtype_policy)


def dense(owner: Any, units: int, name: str, **options: Any) -> Dense:
  """Returns a linear layer of a layer or model that has a configuration."""
  options |= {"kernel_initializer": normal(owner.config), "name": name}
  return Dense(units, dtype=owner.dtype_policy, **options)


def activation(
  name: str,
  x: tf.Tensor,
  bias: Optional[tf.Tensor] = None,
  training: Optional[bool] = None,
) -> tf.Tensor:
  """Applies the activation `name`, one of `config.ACTIVATIONS`, to x + bias."""
  if name in ("gelu", "gelu_erf"):
    return fused_ops.gelu(x, bias, bool(training), approximate=name == "gelu")
  if bias is not None:
    x = tf.cast(fused_ops.wide_sum(x, bias), x.dtype)
  return tf.keras.activations.get(name)(x)


def fold_in(seed: Optional[tf.Tensor], data: Any) -> Optional[tf.Tensor]:
  """Returns a new seed <int32>[2] for part number `data`; None stays None."""
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

  The draws and the scale are float32, or float64 for such an `x`; the result
  has the dtype of `x`.

  The seed is <int32>[2]. None draws from TensorFlow's global generator, so the
  masks differ after a restart.
  """
  if not training or rate == 0.0:
    return x
  # In bfloat16, draws have 7 bits: a rate of 0.01 would drop 0.016.
  wide = tf.cast(x, fused_ops.wide(x.dtype))
  if seed is None:
    wide = tf.nn.dropout(wide, rate)
  else:
    wide = tf.nn.experimental.stateless_dropout(wide, rate, seed)
  return tf.cast(wide, x.dtype)


def recomputed(
  block: Callable[..., tf.Tensor], x: tf.Tensor, *weights: Any
) -> tf.Tensor:
  """Returns block(x, *weights) and recomputes it in the backward pass.

  The gradient of a block needs nearly all of its intermediate tensors, and a
  shared block is applied 12 times or more. If the backward pass recomputes
  them from the block's input, they exist for one application at a time, at the
  cost of one more forward pass (arXiv 1604.06174). This saves memory only
  inside a `tf.function`, because eager tapes keep all tensors.

  `block` must return the same values both times, so its dropout needs seeds.
  Only `x` <float>[...] and the tensors in `weights` get gradients.
  """

  @tf.custom_gradient
  def run(x, *weights):
    def gradient(dy):
      # The second computation begins when `dy` is known. Otherwise, a compiler
      # could merge both and keep the results of the first, or recompute all
      # blocks at once. TensorFlow respects control dependencies; XLA only
      # respects data. Adding 0 * dy is not optimized away, because dy might be
      # infinite. In that case dx is not finite either.
      with tf.control_dependencies([dy]):
        zero = 0.0 * tf.reshape(dy, [-1])[0]
        inputs = (x + tf.cast(zero, x.dtype), *weights)
      with tf.GradientTape() as tape:
        tape.watch(inputs)
        y = block(*inputs)
      return tape.gradient(y, inputs, dy)

    return block(x, *weights), gradient

  return run(x, *weights)
