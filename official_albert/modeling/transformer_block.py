"""The transformer block: self-attention, then a feed-forward network.

Each of these two sublayers is a Keras layer with its own residual connection
and LayerNorm, because ALBERT may share one and not the other (paper, section
4.5 and Table 4).

Reference: google-research/albert modeling.py (attention_layer,
attention_ffn_block).

Letters: B batch, S query position, T key position (T = S), N heads, D head
size, H = N * D hidden size, I intermediate size.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

import tensorflow as tf

from official_albert.modeling import config as config_lib
from official_albert.modeling import dropout as dropout_lib
from official_albert.modeling import fused_ops
from official_albert.modeling import layer_norm as layer_norm_lib


class AttentionWeights(NamedTuple):
  """The weights of one application of `SelfAttention`.

  Kernels have the compute dtype; everything else is float32.
  """

  qkv_kernel: tf.Tensor  # [H, 3 * H]
  qkv_bias: tf.Tensor  # [3 * H]
  output_kernel: tf.Tensor  # [H, H]
  output_bias: tf.Tensor  # [H]
  gamma: tf.Tensor  # [H]
  beta: tf.Tensor  # [H]


class FeedForwardWeights(NamedTuple):
  """The weights of one application of `FeedForward`; dtypes as above."""

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
  """Applies the activation `name`, one of `config.ACTIVATIONS`, to x + bias."""
  if name in ("gelu", "gelu_erf"):
    return fused_ops.gelu(x, bias, bool(training), approximate=name == "gelu")
  if bias is not None:
    x += tf.cast(bias, x.dtype)
  return tf.keras.activations.get(name)(x)


def dense(
  units: int, initializer_range: float, name: str, dtype=None
) -> tf.keras.layers.Dense:
  """Returns a linear layer with the reference's truncated normal kernel."""
  return tf.keras.layers.Dense(
    units,
    kernel_initializer=tf.keras.initializers.TruncatedNormal(
      stddev=initializer_range
    ),
    name=name,
    dtype=dtype,
  )


def _product(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
  """Multiplies <float>[B, S, I] by <float>[I, O] to <float>[B, S, O]."""
  batch, length = tf.unstack(tf.shape(x)[:2])
  y = tf.matmul(tf.reshape(x, [-1, kernel.shape[0]]), kernel)
  return tf.reshape(y, [batch, length, kernel.shape[1]])


class ConfiguredLayer(tf.keras.layers.Layer):
  """A layer that is made from an `AlbertConfig`.

  Attributes:
    config: the `AlbertConfig`.
  """

  def __init__(self, config: config_lib.AlbertConfig, **kwargs):
    super().__init__(**kwargs)
    self.config = config

  def get_config(self) -> dict[str, Any]:
    return {**super().get_config(), "config": self.config.to_dict()}

  @classmethod
  def from_config(cls, config):
    albert_config = config_lib.AlbertConfig.from_dict(config["config"])
    return cls(**{**config, "config": albert_config})


class _Sublayer(ConfiguredLayer):
  """What both sublayers do with their output projection and LayerNorm.

  The Dense layers of a sublayer only hold variables, in float32 under any
  precision policy. `call` multiplies by tensors from `weights_for`, so that a
  sublayer that many layers share casts its kernels once per step.
  """

  def _dense(self, units: int, name: str) -> tf.keras.layers.Dense:
    return dense(units, self.config.initializer_range, name, dtype=tf.float32)

  def _build_part(self, part: tf.keras.layers.Layer, input_size: int) -> None:
    with tf.name_scope(part.name):
      part.build([None, input_size])

  def _weights_for(self, kernel, bias, uses: int, training: Optional[bool]):
    """Returns kernel, bias and those of the output for each of `uses`."""
    kernels, output_kernels = (
      fused_ops.shared_kernel(
        tf.convert_to_tensor(kernel),
        uses,
        tf.as_dtype(self.compute_dtype),
        bool(training),
      )
      for kernel in (kernel, self.output_dense.kernel)
    )
    bias, output_bias, gamma, beta = map(
      tf.convert_to_tensor,
      (
        bias,
        self.output_dense.bias,
        self.layer_norm.gamma,
        self.layer_norm.beta,
      ),
    )
    return [
      (kernel, bias, output_kernel, output_bias, gamma, beta)
      for kernel, output_kernel in zip(kernels, output_kernels)
    ]

  def _add_and_norm(self, y, weights, x, training, dropout_seed):
    """Returns LayerNorm(x + dropout(y + bias)); all are <float>[B, S, H]."""
    bias = weights.output_bias
    rate = self.config.hidden_dropout_prob
    if training and rate:
      y += tf.cast(bias, y.dtype)
      y = dropout_lib.seeded_dropout(y, rate, training, dropout_seed)
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
class SelfAttention(_Sublayer):
  """LayerNorm(x + dropout(W_o softmax(q k^T / sqrt(D) + mask) v))."""

  def __init__(self, config: config_lib.AlbertConfig, **kwargs):
    super().__init__(config, **kwargs)
    self.query = self._dense(config.hidden_size, "query")
    self.key = self._dense(config.hidden_size, "key")
    self.value = self._dense(config.hidden_size, "value")
    self.output_dense = self._dense(config.hidden_size, "output")
    self.layer_norm = layer_norm_lib.LayerNorm(name="LayerNorm")

  def build(self, input_shape):
    for part in (
      self.query,
      self.key,
      self.value,
      self.output_dense,
      self.layer_norm,
    ):
      self._build_part(part, self.config.hidden_size)
    super().build(input_shape)

  def weights_for(
    self, uses: int, training: Optional[bool] = None
  ) -> list[AttentionWeights]:
    """Casts the weights once and returns them for each of `uses` calls."""
    projections = (self.query, self.key, self.value)
    kernel = tf.concat([part.kernel for part in projections], axis=1)
    bias = tf.concat([part.bias for part in projections], axis=0)
    weights = self._weights_for(kernel, bias, uses, training)
    return [AttentionWeights(*w) for w in weights]

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
    """Applies self-attention.

    Args:
      x: <float>[B, S, H].
      mask: <int32>[B, T], 1 for tokens and 0 for padding.
      training: whether to apply dropout and to compile element-wise chains.
      dropout_seed: <int32>[2], see `dropout.py`.
      weights: an element of `weights_for`; None casts the weights here.
      rows: <int32>[B, Q], the positions to compute; None computes all.
      return_probs: return the attention probabilities instead of the output.

    Returns:
      <float>[B, S, H] in the compute dtype, or <float>[B, Q, H] with `rows`;
      probabilities are <float>[B, N, S, T].
    """
    w = weights or self.weights_for(1, training)[0]
    compiled = bool(training)

    def project(x, kernel, bias, parts):
      y = _product(x, kernel)  # [B, S, parts * H]
      return fused_ops.split_heads(
        y, bias, parts, self.config.num_attention_heads, compiled
      )

    if rows is None:
      q, k, v = project(x, w.qkv_kernel, w.qkv_bias, 3)  # [B, N, S, D] each
    else:
      # Keys and values are needed at all positions.
      sizes = [self.config.hidden_size, 2 * self.config.hidden_size]
      q_kernel, kv_kernel = tf.split(w.qkv_kernel, sizes, axis=1)
      q_bias, kv_bias = tf.split(w.qkv_bias, sizes, axis=0)
      k, v = project(x, kv_kernel, kv_bias, 2)  # [B, N, T, D] each
      x = tf.gather(x, rows, batch_dims=1)  # [B, Q, H]; Q is S from here on
      (q,) = project(x, q_kernel, q_bias, 1)  # [B, N, S, D]
    probs = fused_ops.attention_probs(q, k, mask, compiled)  # [B, N, S, T]
    if return_probs:
      return probs
    probs = dropout_lib.seeded_dropout(
      probs,
      self.config.attention_probs_dropout_prob,
      training,
      dropout_lib.fold_in(dropout_seed, 0),
    )
    context = fused_ops.merge_heads(tf.matmul(probs, v))  # [B, S, H]
    y = _product(context, w.output_kernel)  # [B, S, H]
    seed = dropout_lib.fold_in(dropout_seed, 1)
    return self._add_and_norm(y, w, x, training, seed)


@tf.keras.utils.register_keras_serializable(package="official_albert")
class FeedForward(_Sublayer):
  """LayerNorm(x + dropout(W_2 act(W_1 x)))."""

  def __init__(self, config: config_lib.AlbertConfig, **kwargs):
    super().__init__(config, **kwargs)
    self.intermediate = self._dense(config.intermediate_size, "intermediate")
    self.output_dense = self._dense(config.hidden_size, "output")
    self.layer_norm = layer_norm_lib.LayerNorm(name="LayerNorm")

  def build(self, input_shape):
    self._build_part(self.intermediate, self.config.hidden_size)
    self._build_part(self.output_dense, self.config.intermediate_size)
    self._build_part(self.layer_norm, self.config.hidden_size)
    super().build(input_shape)

  def weights_for(
    self, uses: int, training: Optional[bool] = None
  ) -> list[FeedForwardWeights]:
    """Casts the weights once and returns them for each of `uses` calls."""
    weights = self._weights_for(
      self.intermediate.kernel, self.intermediate.bias, uses, training
    )
    return [FeedForwardWeights(*w) for w in weights]

  def call(
    self,
    x: tf.Tensor,
    training: Optional[bool] = None,
    dropout_seed: Optional[tf.Tensor] = None,
    weights: Optional[FeedForwardWeights] = None,
  ) -> tf.Tensor:
    """Transforms each position of <float>[B, S, H]; see `SelfAttention`."""
    w = weights or self.weights_for(1, training)[0]
    y = _product(x, w.intermediate_kernel)  # [B, S, I]
    y = activation(self.config.hidden_act, y, w.intermediate_bias, training)
    y = _product(y, w.output_kernel)  # [B, S, H]
    return self._add_and_norm(y, w, x, training, dropout_seed)
