"""The transformer block: self-attention, then a feed-forward network.

Each sublayer is a Keras layer with its own residual connection and LayerNorm,
because ALBERT can share one without the other (paper, section 4.5 and Table 4).

Reference: google-research/albert modeling.py (attention_layer,
attention_ffn_block).

Letters: B batch, S query position, T key position (T = S), N heads, D head
size, H = N * D hidden size, I intermediate size.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

import tensorflow as tf

from official_albert import config as config_lib
from official_albert.modeling import (
  adapters,
  attention_program,
  fused_ops,
  layers,
  packing,
)


class SublayerWeights(NamedTuple):
  """The weights of one application of a sublayer.

  In attention, O is 3 * H (query, key, value) and J is H. In the feed-forward
  network, both are I. Kernels have the compute dtype, others the
  variable dtype.
  """

  kernel: tf.Tensor  # [H, O]
  bias: tf.Tensor  # [O]
  output_kernel: tf.Tensor  # [J, H]
  output_bias: tf.Tensor  # [H]
  gamma: tf.Tensor  # [H]
  beta: tf.Tensor  # [H]
  # A and B of the kernel, then of the output kernel; see adapters.py.
  adapters: tuple[tf.Tensor, ...] = ()  # [H, R], [R, O], [J, R], [R, H]


class _Sublayer(layers.ConfiguredLayer):
  """LayerNorm(x + dropout(output_dense(f(x)))), with f in the subclasses.

  Their `_projections` returns the input projections. It is no property, because
  Keras would track that by name.

  The Dense layers only hold variables, of the variable dtype. `call` multiplies
  by tensors from `weights_for`, so that a sublayer that many layers share casts
  its kernels once per step.
  """

  def build(self, input_shape):
    projections, hidden = self._projections(), self.config.hidden_size
    for part, size in (
      *((projection, hidden) for projection in projections),
      (self.output_dense, projections[0].units),
      (self.layer_norm, hidden),
    ):
      with tf.name_scope(part.name):
        part.build([None, size])
    super().build(input_shape)

  def weights_for(
    self, uses: int, training: Optional[bool] = None
  ) -> list[SublayerWeights]:
    """Casts the weights once and returns them for each of `uses` calls."""

    def cast(kernel):
      return fused_ops.shared_kernel(
        kernel, uses, tf.as_dtype(self.compute_dtype), bool(training)
      )

    parts = self._projections()
    kernels = cast(tf.concat([part.kernel for part in parts], axis=-1))
    bias = tf.concat([part.bias for part in parts], axis=-1)
    output_kernels = cast(tf.convert_to_tensor(self.output_dense.kernel))
    norm = self.layer_norm
    others = (self.output_dense.bias, norm.gamma, norm.beta)
    output_bias, gamma, beta = map(tf.convert_to_tensor, others)
    return [
      SublayerWeights(kernel, bias, output_kernel, output_bias, gamma, beta)
      for kernel, output_kernel in zip(kernels, output_kernels)
    ]

  def _add_and_norm(
    self,
    context: tf.Tensor,
    weights: SublayerWeights,
    x: tf.Tensor,
    training: Optional[bool],
    dropout_seed: Optional[tf.Tensor],
  ) -> tf.Tensor:
    """Projects <float>[B, S, J] to [B, S, H], adds `x` and normalizes."""
    y = adapters.project(
      context, weights.output_kernel, weights.adapters[2:]
    )  # [B, S, H]
    bias = weights.output_bias
    rate = self.config.hidden_dropout_prob
    if training and rate:
      y = fused_ops.wide_sum(y, bias)
      y = layers.seeded_dropout(y, rate, training, dropout_seed)
      y = tf.cast(y, x.dtype)
      bias = None
    gamma, beta, epsilon = weights.gamma, weights.beta, self.layer_norm.epsilon
    return fused_ops.add_layer_norm(
      y, bias, x, gamma, beta, epsilon, compiled=bool(training)
    )


@tf.keras.utils.register_keras_serializable(package="official_albert")
class SelfAttention(_Sublayer):
  """LayerNorm(x + dropout(W_o softmax(q k^T / sqrt(D) + mask) v))."""

  def __init__(self, config: config_lib.AlbertConfig, **kwargs: Any):
    super().__init__(config, **kwargs)
    self.query = layers.dense(self, config.hidden_size, "query")
    self.key = layers.dense(self, config.hidden_size, "key")
    self.value = layers.dense(self, config.hidden_size, "value")
    self.output_dense = layers.dense(self, config.hidden_size, "output")
    self.layer_norm = layers.layer_norm(self)

  def _projections(self):
    return [self.query, self.key, self.value]

  def call(
    self,
    x: tf.Tensor,
    mask: tf.Tensor,
    training: Optional[bool] = None,
    dropout_seed: Optional[tf.Tensor] = None,
    weights: Optional[SublayerWeights] = None,
    rows: Optional[tf.Tensor] = None,
    packed: Optional[packing.Packing] = None,
  ) -> tf.Tensor:
    """Applies self-attention.

    Args:
      x: <float>[B, S, H].
      mask: <int32>[B, T], 1 for tokens and 0 for padding.
      training: whether to apply dropout and to compile element-wise chains.
      dropout_seed: <int32>[2], see `layers.seeded_dropout`.
      weights: an element of `weights_for`; None casts the weights here.
      rows: <int32>[B, Q], the positions to compute; None computes all.
      packed: says which positions `x` <float>[C, H] has, if not all.

    Returns:
      The shape of `x` in the compute dtype, or <float>[B, Q, H] with `rows`.
    """
    w = weights or self.weights_for(1, training)[0]
    heads, compiled = self.config.num_attention_heads, bool(training)
    rate = self.config.attention_probs_dropout_prob if training else 0.0
    as_one = not rate and attention_program.attention_is_one_program()

    def project(x, kernel, bias, parts, adapter):
      y = adapters.project(x, kernel, adapter)  # [B, S, parts * H] or [C, ...]
      if packed and len(y.shape) == 2:
        y = packed.unpack(y)
      if as_one:
        return [(y, bias)]
      return fused_ops.split_heads(y, bias, parts, heads, compiled)

    if rows is None:
      projected = project(x, w.kernel, w.bias, 3, w.adapters[:2])
    else:
      # Keys and values are needed at all positions.
      sizes = [self.config.hidden_size, 2 * self.config.hidden_size]
      q_kernel, kv_kernel = tf.split(w.kernel, sizes, axis=1)
      q_bias, kv_bias = tf.split(w.bias, sizes, axis=0)
      q_adapter = kv_adapter = w.adapters
      if w.adapters:
        a, b = w.adapters[:2]
        q_adapter, kv_adapter = ((a, x) for x in tf.split(b, sizes, axis=1))
      projected = project(x, kv_kernel, kv_bias, 2, kv_adapter)
      if packed:
        rows = tf.gather(packed.rows, rows, batch_dims=1)
      # [B, Q, H]; Q is S from here on
      x = tf.gather(x, rows, batch_dims=0 if packed else 1)
      projected = [*project(x, q_kernel, q_bias, 1, q_adapter), *projected]
    if as_one:
      products, biases = zip(*projected)
      # [B, S, H]
      context = attention_program.attention(products, biases, mask, heads)
    else:
      q, k, v = projected  # [B, N, S, D], [B, N, T, D] twice
      probs = fused_ops.attention_probs(q, k, mask, compiled)  # [B, N, S, T]
      seed = layers.fold_in(dropout_seed, 0)
      probs = layers.seeded_dropout(probs, rate, training, seed)
      context = fused_ops.product(probs, v)  # [B, N, S, D]
      context = fused_ops.merge_heads(context)  # [B, S, H]
    if packed and rows is None:
      context = packed.pack(context)
    seed = layers.fold_in(dropout_seed, 1)
    return self._add_and_norm(context, w, x, training, seed)  # [B, S, H]


@tf.keras.utils.register_keras_serializable(package="official_albert")
class FeedForward(_Sublayer):
  """LayerNorm(x + dropout(W_2 act(W_1 x)))."""

  def __init__(self, config: config_lib.AlbertConfig, **kwargs: Any):
    super().__init__(config, **kwargs)
    self.intermediate = layers.dense(
      self, config.intermediate_size, "intermediate"
    )
    self.output_dense = layers.dense(self, config.hidden_size, "output")
    self.layer_norm = layers.layer_norm(self)

  def _projections(self):
    return [self.intermediate]

  def call(
    self,
    x: tf.Tensor,
    training: Optional[bool] = None,
    dropout_seed: Optional[tf.Tensor] = None,
    weights: Optional[SublayerWeights] = None,
  ) -> tf.Tensor:
    """Transforms each position of <float>[B, S, H]; see `SelfAttention`."""
    w = weights or self.weights_for(1, training)[0]
    y = adapters.project(x, w.kernel, w.adapters[:2])  # [B, S, I]
    y = layers.activation(self.config.hidden_act, y, w.bias, training)
    return self._add_and_norm(y, w, x, training, dropout_seed)  # [B, S, H]
