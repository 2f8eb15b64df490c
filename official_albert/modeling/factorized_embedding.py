"""The factorized embedding: V x E tables, then E x H (paper, section 3.1).

The word, position and segment tables have the small width E. One matrix
projects their normalized sum to the hidden size H of the encoder. The masked
LM head scores the vocabulary with the transposed word table.

Reference: google-research/albert modeling.py (embedding_lookup,
embedding_postprocessor, the projection in transformer_model).
"""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

from official_albert import config as config_lib
from official_albert.modeling import fused_ops, layers


@tf.keras.utils.register_keras_serializable(package="official_albert")
class FactorizedEmbedding(layers.ConfiguredLayer):
  """Maps ids to hidden states, and hidden states back to vocabulary scores.

  Computes LayerNorm(word + position + segment) of width E, dropout, and the
  projection E -> H, which has a bias but no activation.
  """

  def __init__(self, config: config_lib.AlbertConfig, **kwargs: Any):
    super().__init__(config, **kwargs)

    def table(name: str, rows: int) -> tf.Variable:
      size, initializer = config.embedding_size, layers.normal(config)
      return self.add_weight(name, [rows, size], initializer=initializer)

    self.word_embeddings = table("word_embeddings", config.vocab_size)
    self.token_type_embeddings = table(
      "token_type_embeddings", config.type_vocab_size
    )
    self.position_embeddings = table(
      "position_embeddings", config.max_position_embeddings
    )
    self.layer_norm = layers.layer_norm(self)
    self.projection = None
    if config.has_projection:
      name = "embedding_hidden_mapping_in"
      self.projection = layers.dense(self, config.hidden_size, name)

  @layers.without_autograph
  def call(
    self,
    input_ids: tf.Tensor,
    segment_ids: Optional[tf.Tensor] = None,
    training: Optional[bool] = None,
    dropout_seed: Optional[tf.Tensor] = None,
    first_position: Optional[tf.Tensor] = None,
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """Embeds ids and segments <int32>[B, S]; without segments, all are 0.

    `first_position` <int32>[] is the row of the position table for the first
    token; None means 0.

    Returns:
      The hidden states <float>[B, S, H], and the embedding before the
      projection <float>[B, S, E], both in the compute dtype.
    """
    if segment_ids is None:
      segment_ids = tf.zeros_like(input_ids)
    dtype = fused_ops.wide(tf.as_dtype(self.compute_dtype))
    words = tf.gather(self.word_embeddings, input_ids)  # [B, S, E]
    words = tf.cast(words, dtype)
    # A product with one-hot rows, because the gradient of a gather would add
    # B * S slices to the two rows of the table one by one.
    segments = tf.matmul(  # [B, S, E]
      tf.one_hot(segment_ids, self.config.type_vocab_size, dtype=dtype),
      tf.cast(self.token_type_embeddings, dtype),
    )
    length = input_ids.shape[1] or tf.shape(input_ids)[1]
    if first_position is None:
      positions = self.position_embeddings[:length]  # [S, E]
    else:
      size = [length, self.config.embedding_size]
      positions = tf.slice(self.position_embeddings, [first_position, 0], size)
    positions = tf.cast(positions, dtype)
    embedded = self.layer_norm(words + segments + positions, training=training)
    embedded = layers.seeded_dropout(
      embedded, self.config.hidden_dropout_prob, training, dropout_seed
    )
    embedded = tf.cast(embedded, self.compute_dtype)
    hidden = self.projection(embedded) if self.projection else embedded
    return hidden, embedded

  def vocabulary_scores(self, x: tf.Tensor) -> tf.Tensor:
    """Multiplies <float>[N, E] by the transposed word table to [N, V].

    The weights are tied and there is no bias. The scores have the compute
    dtype.
    """
    table = tf.cast(self.word_embeddings, self.compute_dtype)
    x = tf.cast(x, self.compute_dtype)
    return fused_ops.product(x, table, transpose_b=True)
