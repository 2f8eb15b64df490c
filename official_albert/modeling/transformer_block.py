"""One post-LayerNorm transformer block, as two halves.

The halves are layers of their own because ALBERT may share one and not the
other (paper, section 4.5 and Table 4): `SelfAttention`, then `FeedForward`,
each with its residual connection and its LayerNorm.

Reference: google-research/albert modeling.py (attention_layer,
attention_ffn_block).

Letters: B batch, S query position, T key position (T = S), N heads, D head
size, H = N * D hidden, I intermediate.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

import tensorflow as tf

from official_albert.modeling import dropout as dropout_lib
from official_albert.modeling import fused_ops, shapes
from official_albert.modeling import layer_norm as layer_norm_lib


class AttentionWeights(NamedTuple):
  """What one application of `SelfAttention` computes with.

  Kernels have the compute dtype, all others are float32.
  """

  qkv_kernel: tf.Tensor  # [H, 3 * H]
  qkv_bias: tf.Tensor  # [3 * H]
  output_kernel: tf.Tensor  # [H, H]
  output_bias: tf.Tensor  # [H]
  gamma: tf.Tensor  # [H]
  beta: tf.Tensor  # [H]


class FeedForwardWeights(NamedTuple):
  """What one application of `FeedForward` computes with, likewise."""

  intermediate_kernel: tf.Tensor  # [H, I]
  intermediate_bias: tf.Tensor  # [I]
  output_kernel: tf.Tensor  # [I, H]
  output_bias: tf.Tensor  # [H]
  gamma: tf.Tensor  # [H]
  beta: tf.Tensor  # [H]


def activation(
  name: str,
  x: tf.Tensor,
  bias: Optional[tf.Tensor] = None,
  training: Optional[bool] = None,
) -> tf.Tensor:
  """The activation `name` of x + bias, one of `config.ACTIVATIONS`."""
  if name in ("gelu", "gelu_erf"):
    return fused_ops.gelu(x, bias, bool(training), approximate=name == "gelu")
  if bias is not None:
    x += tf.cast(bias, x.dtype)
  return tf.keras.activations.get(name)(x)


def _kernel_initializer(initializer_range: float):
  return tf.keras.initializers.TruncatedNormal(stddev=initializer_range)


def dense(
  units: int, initializer_range: float, name: str
) -> tf.keras.layers.Dense:
  """A linear Dense layer with the reference's truncated-normal kernel."""
  return tf.keras.layers.Dense(
    units,
    kernel_initializer=_kernel_initializer(initializer_range),
    name=name,
  )


class Projection(tf.keras.layers.Layer):
  """The variables of a Dense layer; who holds it computes with them.

  Attributes:
    kernel: <float32>[I, O], never cast by Keras.
    bias: <float32>[O], likewise.
  """

  def __init__(self, shape: tuple[int, int], initializer_range: float, name):
    super().__init__(name=name)
    self.shape = shape
    self.initializer_range = initializer_range

  def build(self, input_shape):
    self.kernel = self.add_weight(
      name="kernel",
      shape=self.shape,
      dtype=tf.float32,
      initializer=_kernel_initializer(self.initializer_range),
      experimental_autocast=False,
    )
    self.bias = self.add_weight(
      name="bias",
      shape=self.shape[1:],
      dtype=tf.float32,
      initializer="zeros",
      experimental_autocast=False,
    )
    super().build(input_shape)


def _product(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
  """<float>[B, S, I] x <float>[I, O] -> <float>[B, S, O]."""
  batch, length = tf.unstack(tf.shape(x)[:2])
  y = tf.matmul(tf.reshape(x, [-1, kernel.shape[0]]), kernel)
  return tf.reshape(y, [batch, length, kernel.shape[1]])


class _Half(tf.keras.layers.Layer):
  """Variables of half a block, cast and put together for its products."""

  def _build_part(self, part: tf.keras.layers.Layer, width: int) -> None:
    with tf.name_scope(part.name):
      part.build([None, None, width])

  def _kernels(self, kernel, uses: int, training: Optional[bool]):
    return fused_ops.shared_kernel(
      kernel, uses, tf.as_dtype(self.compute_dtype), bool(training)
    )

  def _close(self, y, weights, x, training, dropout_seed):
    """LayerNorm(x + dropout(y + bias)), all <float>[B, S, H]."""
    bias = weights.output_bias
    if training and self.hidden_dropout_prob:
      y += tf.cast(bias, y.dtype)
      y = dropout_lib.seeded_dropout(
        y, self.hidden_dropout_prob, training, dropout_seed
      )
      bias = None
    return fused_ops.add_layer_norm(
      y,
      bias,
      x,
      weights.gamma,
      weights.beta,
      self.layer_norm.epsilon,
      compiled=bool(training),
    )


@tf.keras.utils.register_keras_serializable(package="official_albert")
class SelfAttention(_Half):
  """LayerNorm(x + dropout(W_o softmax(q k^T / sqrt(D) + mask) v))."""

  def __init__(
    self,
    hidden_size: int,
    num_attention_heads: int,
    attention_probs_dropout_prob: float = 0.0,
    hidden_dropout_prob: float = 0.0,
    initializer_range: float = 0.02,
    **kwargs,
  ):
    super().__init__(**kwargs)
    self.hidden_size = hidden_size
    self.num_attention_heads = num_attention_heads
    self.attention_probs_dropout_prob = attention_probs_dropout_prob
    self.hidden_dropout_prob = hidden_dropout_prob
    self.initializer_range = initializer_range

    def part(name: str) -> Projection:
      return Projection((hidden_size, hidden_size), initializer_range, name)

    self.query = part("query")
    self.key = part("key")
    self.value = part("value")
    self.output_dense = part("output")
    self.layer_norm = layer_norm_lib.LayerNorm(name="LayerNorm")

  def build(self, input_shape):
    for part in (self.query, self.key, self.value, self.output_dense):
      self._build_part(part, self.hidden_size)
    self._build_part(self.layer_norm, self.hidden_size)
    super().build(input_shape)

  def weights_for(
    self, uses: int, training: Optional[bool] = None
  ) -> list[AttentionWeights]:
    """The weights of each of several applications; kernels are cast once."""
    parts = (self.query, self.key, self.value)
    qkv = tf.concat([part.kernel for part in parts], axis=1)
    others = (
      tf.convert_to_tensor(self.output_dense.bias),
      tf.convert_to_tensor(self.layer_norm.gamma),
      tf.convert_to_tensor(self.layer_norm.beta),
    )
    qkv_bias = tf.concat([part.bias for part in parts], axis=0)
    output = tf.convert_to_tensor(self.output_dense.kernel)
    pairs = zip(
      self._kernels(qkv, uses, training), self._kernels(output, uses, training)
    )
    return [AttentionWeights(a, qkv_bias, b, *others) for a, b in pairs]

  def call(
    self,
    x: tf.Tensor,
    mask: tf.Tensor,
    training: Optional[bool] = None,
    dropout_seed: Optional[tf.Tensor] = None,
    weights: Optional[AttentionWeights] = None,
    rows: Optional[tf.Tensor] = None,
    return_probs: bool = False,
  ) -> tf.Tensor:
    """Attends.

    Args:
      x: <float>[B, S, H].
      mask: <int32>[B, T], 1 for tokens and 0 for padding.
      training: whether dropout is applied, and chains are compiled.
      dropout_seed: <int32>[2], see `layers/dropout.py`.
      weights: of `weights_for`, where many applications share them.
      rows: <int32>[B, Q], the positions that attend; None: all do.
      return_probs: return the attention probabilities instead of the output.

    Returns:
      <float>[B, S, H] in the compute dtype, or <float>[B, Q, H]; probabilities
      are <float>[B, N, S, T].
    """
    shapes.check_rank("hidden states", x, "B S H")
    shapes.check_ids("input_mask", mask, "B T")
    w = weights or self.weights_for(1, training)[0]
    compiled, heads = bool(training), self.num_attention_heads
    if rows is None:
      qkv = _product(x, w.qkv_kernel)  # [B, S, 3 * H]
      q, k, v = fused_ops.split_heads(  # [B, N, S, D] each
        qkv, w.qkv_bias, 3, heads, compiled
      )
    else:
      sizes = [self.hidden_size, 2 * self.hidden_size]
      kernels = tf.split(w.qkv_kernel, sizes, axis=1)
      biases = tf.split(w.qkv_bias, sizes, axis=0)
      kv = _product(x, kernels[1])  # [B, S, 2 * H]
      k, v = fused_ops.split_heads(kv, biases[1], 2, heads, compiled)
      x = tf.gather(x, rows, batch_dims=1)  # [B, Q, H]; Q is S from here on
      q = _product(x, kernels[0])
      (q,) = fused_ops.split_heads(q, biases[0], 1, heads, compiled)
    probs = fused_ops.attention_probs(q, k, mask, compiled)  # [B, N, S, T]
    if return_probs:
      return probs
    probs = dropout_lib.seeded_dropout(
      probs,
      self.attention_probs_dropout_prob,
      training,
      dropout_lib.fold_in(dropout_seed, 0),
    )
    context = fused_ops.merge_heads(tf.matmul(probs, v))  # [B, S, H]
    y = _product(context, w.output_kernel)  # [B, S, H]
    seed = dropout_lib.fold_in(dropout_seed, 1)
    return self._close(y, w, x, training, seed)

  def get_config(self) -> dict[str, Any]:
    return {
      **super().get_config(),
      "hidden_size": self.hidden_size,
      "num_attention_heads": self.num_attention_heads,
      "attention_probs_dropout_prob": self.attention_probs_dropout_prob,
      "hidden_dropout_prob": self.hidden_dropout_prob,
      "initializer_range": self.initializer_range,
    }


@tf.keras.utils.register_keras_serializable(package="official_albert")
class FeedForward(_Half):
  """LayerNorm(x + dropout(W_2 act(W_1 x)))."""

  def __init__(
    self,
    hidden_size: int,
    intermediate_size: int,
    hidden_act: str = "gelu",
    hidden_dropout_prob: float = 0.0,
    initializer_range: float = 0.02,
    **kwargs,
  ):
    super().__init__(**kwargs)
    self.hidden_size = hidden_size
    self.intermediate_size = intermediate_size
    self.hidden_act = hidden_act
    self.hidden_dropout_prob = hidden_dropout_prob
    self.initializer_range = initializer_range
    self.intermediate = Projection(
      (hidden_size, intermediate_size), initializer_range, "intermediate"
    )
    self.output_dense = Projection(
      (intermediate_size, hidden_size), initializer_range, "output"
    )
    self.layer_norm = layer_norm_lib.LayerNorm(name="LayerNorm")

  def build(self, input_shape):
    self._build_part(self.intermediate, self.hidden_size)
    self._build_part(self.output_dense, self.intermediate_size)
    self._build_part(self.layer_norm, self.hidden_size)
    super().build(input_shape)

  def weights_for(
    self, uses: int, training: Optional[bool] = None
  ) -> list[FeedForwardWeights]:
    """The weights of each of several applications; kernels are cast once."""
    first, second = (
      self._kernels(tf.convert_to_tensor(part.kernel), uses, training)
      for part in (self.intermediate, self.output_dense)
    )
    bias = tf.convert_to_tensor(self.intermediate.bias)
    others = (
      tf.convert_to_tensor(self.output_dense.bias),
      tf.convert_to_tensor(self.layer_norm.gamma),
      tf.convert_to_tensor(self.layer_norm.beta),
    )
    return [
      FeedForwardWeights(a, bias, b, *others) for a, b in zip(first, second)
    ]

  def call(
    self,
    x: tf.Tensor,
    training: Optional[bool] = None,
    dropout_seed: Optional[tf.Tensor] = None,
    weights: Optional[FeedForwardWeights] = None,
  ) -> tf.Tensor:
    """Transforms each position: <float>[B, S, H] -> <float>[B, S, H].

    `training` is whether dropout is applied, and chains are compiled;
    `weights` are of `weights_for`, where many applications share them.
    """
    shapes.check_rank("hidden states", x, "B S H")
    w = weights or self.weights_for(1, training)[0]
    y = _product(x, w.intermediate_kernel)  # [B, S, I]
    y = activation(self.hidden_act, y, w.intermediate_bias, training)
    y = _product(y, w.output_kernel)  # [B, S, H]
    return self._close(y, w, x, training, dropout_seed)

  def get_config(self) -> dict[str, Any]:
    return {
      **super().get_config(),
      "hidden_size": self.hidden_size,
      "intermediate_size": self.intermediate_size,
      "hidden_act": self.hidden_act,
      "hidden_dropout_prob": self.hidden_dropout_prob,
      "initializer_range": self.initializer_range,
    }
