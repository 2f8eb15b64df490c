"""The factorized embedding: V x E tables, then E x H (paper, section 3.1).

The word, position and segment tables have the small width E. One matrix
projects their normalized sum to the hidden size H of the encoder. The masked
LM head uses the transposed word table to score the vocabulary.

Reference: google-research/albert modeling.py (embedding_lookup,
embedding_postprocessor, the projection in transformer_model).
"""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

from official_albert.modeling import dropout as dropout_lib
from official_albert.modeling import layer_norm, transformer_block


@tf.keras.utils.register_keras_serializable(package="official_albert")
class FactorizedEmbedding(tf.keras.layers.Layer):
  """Maps ids to hidden states, and hidden states back to vocabulary scores.

  Computes LayerNorm(word + position + segment) of width E, dropout, and the
  projection E -> H, which has a bias but no activation. If E = H, there is a
  projection only with `always_project`.
  """

  def __init__(
    self,
    vocab_size: int,
    embedding_size: int,
    hidden_size: int,
    max_position_embeddings: int = 512,
    type_vocab_size: int = 2,
    hidden_dropout_prob: float = 0.0,
    initializer_range: float = 0.02,
    always_project: bool = False,
    **kwargs,
  ):
    super().__init__(**kwargs)
    self.vocab_size = vocab_size
    self.embedding_size = embedding_size
    self.hidden_size = hidden_size
    self.max_position_embeddings = max_position_embeddings
    self.type_vocab_size = type_vocab_size
    self.hidden_dropout_prob = hidden_dropout_prob
    self.initializer_range = initializer_range
    self.always_project = always_project

    def table(name: str, rows: int) -> tf.Variable:
      return self.add_weight(
        name=name,
        shape=[rows, embedding_size],
        initializer=tf.keras.initializers.TruncatedNormal(
          stddev=initializer_range
        ),
      )

    self.word_embeddings = table("word_embeddings", vocab_size)
    self.token_type_embeddings = table("token_type_embeddings", type_vocab_size)
    self.position_embeddings = table(
      "position_embeddings", max_position_embeddings
    )
    self.layer_norm = layer_norm.LayerNorm(name="LayerNorm")
    self.projection = None
    if embedding_size != hidden_size or always_project:
      self.projection = transformer_block.dense(
        hidden_size, initializer_range, "embedding_hidden_mapping_in"
      )

  def call(
    self,
    input_ids: tf.Tensor,
    segment_ids: tf.Tensor,
    training: Optional[bool] = None,
    dropout_seed: Optional[tf.Tensor] = None,
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """Embeds a batch.

    Args:
      input_ids: <int32>[B, S], in [0, V).
      segment_ids: <int32>[B, S], in [0, type_vocab_size).
      training: whether to apply dropout.
      dropout_seed: <int32>[2], see `dropout.py`.

    Returns:
      The hidden states <float>[B, S, H], and the embedding before the
      projection <float>[B, S, E], both in the compute dtype.
    """
    words = tf.gather(self.word_embeddings, input_ids)  # [B, S, E]
    # A product with one-hot rows, because the gradient of a gather would add
    # B * S slices to the two rows of the table one by one.
    segments = tf.matmul(  # [B, S, E]
      tf.one_hot(segment_ids, self.type_vocab_size, dtype=words.dtype),
      tf.cast(self.token_type_embeddings, words.dtype),
    )
    length = input_ids.shape[1] or tf.shape(input_ids)[1]
    positions = tf.cast(self.position_embeddings[:length], words.dtype)
    embedded = self.layer_norm(words + segments + positions, training=training)
    embedded = tf.cast(embedded, self.compute_dtype)
    embedded = dropout_lib.seeded_dropout(
      embedded, self.hidden_dropout_prob, training, dropout_seed
    )
    hidden = self.projection(embedded) if self.projection else embedded
    return hidden, embedded

  def vocabulary_scores(self, x: tf.Tensor) -> tf.Tensor:
    """Multiplies by the transposed word table (tied weights), without a bias.

    Args:
      x: <float>[N, E].

    Returns:
      <float>[N, V] in the compute dtype.
    """
    table = tf.cast(self.word_embeddings, self.compute_dtype)
    return tf.matmul(tf.cast(x, self.compute_dtype), table, transpose_b=True)

  def get_config(self) -> dict[str, Any]:
    return {
      **super().get_config(),
      "vocab_size": self.vocab_size,
      "embedding_size": self.embedding_size,
      "hidden_size": self.hidden_size,
      "max_position_embeddings": self.max_position_embeddings,
      "type_vocab_size": self.type_vocab_size,
      "hidden_dropout_prob": self.hidden_dropout_prob,
      "initializer_range": self.initializer_range,
      "always_project": self.always_project,
    }
