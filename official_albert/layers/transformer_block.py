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

from typing import Any, Optional

import tensorflow as tf

from official_albert import fused_ops
from official_albert.layers import dropout as dropout_lib
from official_albert.layers import layer_norm as layer_norm_lib
from official_albert.layers import shapes


def activation(
  name: str, x: tf.Tensor, training: Optional[bool] = None
) -> tf.Tensor:
  """Applies the activation `name`; "gelu" is the tanh approximation."""
  if name == "gelu":
    return fused_ops.gelu(x, compiled=bool(training))
  return tf.keras.activations.get(name)(x)


def dense(
  units: int, initializer_range: float, name: str
) -> tf.keras.layers.Dense:
  """A linear Dense layer with the reference's truncated-normal kernel."""
  return tf.keras.layers.Dense(
    units,
    kernel_initializer=tf.keras.initializers.TruncatedNormal(
      stddev=initializer_range
    ),
    name=name,
  )


@tf.keras.utils.register_keras_serializable(package="official_albert")
class SelfAttention(tf.keras.layers.Layer):
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
    self.query = dense(hidden_size, initializer_range, "query")
    self.key = dense(hidden_size, initializer_range, "key")
    self.value = dense(hidden_size, initializer_range, "value")
    self.output_dense = dense(hidden_size, initializer_range, "output")
    self.layer_norm = layer_norm_lib.LayerNorm(name="LayerNorm")

  def call(
    self,
    x: tf.Tensor,
    mask: tf.Tensor,
    training: Optional[bool] = None,
    dropout_seed: Optional[tf.Tensor] = None,
  ) -> tf.Tensor:
    """Attends.

    Args:
      x: <float>[B, S, H].
      mask: <int32>[B, T], 1 for tokens and 0 for padding.
      training: whether dropout is applied, and chains are compiled.
      dropout_seed: <int32>[2], see `layers/dropout.py`.

    Returns:
      <float>[B, S, H] in the compute dtype.
    """
    shapes.check_rank("hidden states", x, "B S H")
    shapes.check_ids("input_mask", mask, "B T")
    heads = self.num_attention_heads
    head_size = self.hidden_size // heads
    length = tf.shape(x)[1]

    def split_heads(y: tf.Tensor) -> tf.Tensor:
      y = tf.reshape(y, [-1, length, heads, head_size])  # [B, S, N, D]
      return tf.transpose(y, [0, 2, 1, 3])  # [B, N, S, D]

    q = split_heads(self.query(x) * head_size**-0.5)  # [B, N, S, D]
    k = split_heads(self.key(x))  # [B, N, T, D]
    v = split_heads(self.value(x))  # [B, N, T, D]
    scores = tf.matmul(q, k, transpose_b=True)  # [B, N, S, T]
    probs = fused_ops.attention_probs(  # [B, N, S, T]
      scores, mask, compiled=bool(training)
    )
    probs = dropout_lib.seeded_dropout(
      probs,
      self.attention_probs_dropout_prob,
      training,
      dropout_lib.fold_in(dropout_seed, 0),
    )
    context = tf.transpose(tf.matmul(probs, v), [0, 2, 1, 3])  # [B, S, N, D]
    context = tf.reshape(context, [-1, length, self.hidden_size])  # [B, S, H]
    y = dropout_lib.seeded_dropout(
      self.output_dense(context),  # [B, S, H]
      self.hidden_dropout_prob,
      training,
      dropout_lib.fold_in(dropout_seed, 1),
    )
    return self.layer_norm(y, residual=x, training=training)

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
class FeedForward(tf.keras.layers.Layer):
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
    self.intermediate = dense(
      intermediate_size, initializer_range, "intermediate"
    )
    self.output_dense = dense(hidden_size, initializer_range, "output")
    self.layer_norm = layer_norm_lib.LayerNorm(name="LayerNorm")

  def call(
    self,
    x: tf.Tensor,
    training: Optional[bool] = None,
    dropout_seed: Optional[tf.Tensor] = None,
  ) -> tf.Tensor:
    """Transforms each position: <float>[B, S, H] -> <float>[B, S, H].

    `training` is whether dropout is applied, and chains are compiled.
    """
    shapes.check_rank("hidden states", x, "B S H")
    y = self.intermediate(x)  # [B, S, I]
    y = activation(self.hidden_act, y, training)  # [B, S, I]
    y = self.output_dense(y)  # [B, S, H]
    y = dropout_lib.seeded_dropout(
      y, self.hidden_dropout_prob, training, dropout_seed
    )
    return self.layer_norm(y, residual=x, training=training)

  def get_config(self) -> dict[str, Any]:
    return {
      **super().get_config(),
      "hidden_size": self.hidden_size,
      "intermediate_size": self.intermediate_size,
      "hidden_act": self.hidden_act,
      "hidden_dropout_prob": self.hidden_dropout_prob,
      "initializer_range": self.initializer_range,
    }
