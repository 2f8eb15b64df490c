"""The two pretraining heads: masked LM and sentence order.

Reference: google-research/albert run_pretraining.py (get_masked_lm_output,
get_sentence_order_output).
"""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

from official_albert.layers import (
  factorized_embedding,
  layer_norm,
  shapes,
  transformer_block,
)


@tf.keras.utils.register_keras_serializable(package="official_albert")
class MaskedLMHead(tf.keras.layers.Layer):
  """Scores the vocabulary at the masked positions only.

  gather -> Dense(E) with the encoder's activation -> LayerNorm -> product
  with the transposed word table -> bias.
  """

  def __init__(
    self,
    vocab_size: int,
    embedding_size: int,
    hidden_act: str = "gelu",
    initializer_range: float = 0.02,
    **kwargs,
  ):
    super().__init__(autocast=False, **kwargs)
    self.vocab_size = vocab_size
    self.embedding_size = embedding_size
    self.hidden_act = hidden_act
    self.initializer_range = initializer_range
    self.transform = transformer_block.dense(
      embedding_size, initializer_range, "transform"
    )
    self.layer_norm = layer_norm.LayerNorm(name="LayerNorm")
    self.output_bias = self.add_weight(
      name="output_bias",
      shape=[vocab_size],
      initializer="zeros",
      experimental_autocast=False,
    )

  def call(
    self,
    sequence_output: tf.Tensor,
    positions: tf.Tensor,
    embedding: factorized_embedding.FactorizedEmbedding,
    training: Optional[bool] = None,
  ) -> tf.Tensor:
    """Scores masked positions.

    Args:
      sequence_output: <float>[B, S, H].
      positions: <int32>[B, P], in [0, S).
      embedding: the layer whose word table is tied to the output.
      training: whether XLA compiles what is between the products.

    Returns:
      logits <float32>[B, P, V].
    """
    shapes.check_rank("sequence_output", sequence_output, "B S H")
    shapes.check_ids("masked_lm_positions", positions, "B P")
    length, width = tf.shape(sequence_output)[1], sequence_output.shape[2]
    batch, predictions = tf.unstack(tf.shape(positions))
    rows = tf.range(tf.cast(batch, positions.dtype))[:, None]
    flat = tf.reshape(positions + rows * tf.cast(length, positions.dtype), [-1])
    x = tf.reshape(sequence_output, [-1, width])  # [B * S, H]
    x = self.transform(tf.gather(x, flat))  # [B * P, E]
    x = transformer_block.activation(self.hidden_act, x, training)
    x = self.layer_norm(x, training=training)  # [B * P, E]
    scores = embedding.vocabulary_scores(x)  # [B * P, V]
    logits = tf.cast(scores, tf.float32) + self.output_bias
    return tf.reshape(logits, [batch, predictions, self.vocab_size])

  def get_config(self) -> dict[str, Any]:
    return {
      **super().get_config(),
      "vocab_size": self.vocab_size,
      "embedding_size": self.embedding_size,
      "hidden_act": self.hidden_act,
      "initializer_range": self.initializer_range,
    }


@tf.keras.utils.register_keras_serializable(package="official_albert")
class SentenceOrderHead(tf.keras.layers.Layer):
  """Two classes from the pooled output: 0 in order, 1 swapped.

  The weights are stored [2, H], as in the released checkpoints.
  """

  def __init__(
    self, hidden_size: int, initializer_range: float = 0.02, **kwargs
  ):
    super().__init__(**kwargs)
    self.hidden_size = hidden_size
    self.initializer_range = initializer_range
    self.output_weights = self.add_weight(
      name="output_weights",
      shape=[2, hidden_size],
      initializer=tf.keras.initializers.TruncatedNormal(
        stddev=initializer_range
      ),
      experimental_autocast=False,
    )
    self.output_bias = self.add_weight(
      name="output_bias",
      shape=[2],
      initializer="zeros",
      experimental_autocast=False,
    )

  def call(self, pooled_output: tf.Tensor) -> tf.Tensor:
    """Maps <float>[B, H] to logits <float32>[B, 2]."""
    shapes.check_rank("pooled_output", pooled_output, "B H")
    pooled_output = tf.cast(pooled_output, tf.float32)
    scores = tf.matmul(pooled_output, self.output_weights, transpose_b=True)
    return scores + self.output_bias

  def get_config(self) -> dict[str, Any]:
    return {
      **super().get_config(),
      "hidden_size": self.hidden_size,
      "initializer_range": self.initializer_range,
    }
