"""Heads: masked LM, sentence order, and classes of a whole sequence.

Reference: google-research/albert run_pretraining.py (get_masked_lm_output,
get_sentence_order_output), classifier_utils.py (create_model).
"""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

from official_albert.modeling import config as config_lib
from official_albert.modeling import factorized_embedding, layers
from official_albert.settings import check_number


@tf.keras.utils.register_keras_serializable(package="official_albert")
class MaskedLMHead(layers.ConfiguredLayer):
  """Scores the vocabulary at the masked positions.

  Gathers the positions, then applies a Dense layer of width E with the
  encoder's activation, LayerNorm, the transposed word table and a bias.
  """

  def __init__(self, config: config_lib.AlbertConfig, **kwargs: Any):
    super().__init__(config, autocast=False, **kwargs)
    self.transform = layers.dense(
      config.embedding_size, config.initializer_range, "transform"
    )
    self.layer_norm = layers.LayerNorm(name="LayerNorm")
    # Keras' .h5 files need unique names, and other heads use output_bias.
    with tf.name_scope(self.name):
      self.output_bias = self.add_weight(
        name="output_bias",
        shape=[config.vocab_size],
        initializer="zeros",
        experimental_autocast=False,
      )

  @layers.without_autograph
  def call(
    self,
    sequence_output: tf.Tensor,
    positions: Optional[tf.Tensor],
    embedding: factorized_embedding.FactorizedEmbedding,
    training: Optional[bool] = None,
  ) -> tf.Tensor:
    """Scores the vocabulary.

    Args:
      sequence_output: <float>[B, S, H].
      positions: <int32>[B, P], the positions in [0, S) to score; None scores
        all, with P = S.
      embedding: the layer whose word table is tied to the output.
      training: whether to compile element-wise chains with XLA.

    Returns:
      The logits <float32>[B, P, V].
    """
    if positions is not None:
      sequence_output = tf.gather(sequence_output, positions, batch_dims=1)
    batch, predictions = tf.unstack(tf.shape(sequence_output)[:2])
    x = tf.reshape(sequence_output, [-1, sequence_output.shape[2]])
    x = self.transform(x)  # [B * P, E]
    x = layers.activation(self.config.hidden_act, x, None, training)
    x = self.layer_norm(x, training=training)  # [B * P, E]
    scores = embedding.vocabulary_scores(x)  # [B * P, V]
    logits = tf.cast(scores, tf.float32) + self.output_bias
    return tf.reshape(logits, [batch, predictions, self.config.vocab_size])


@tf.keras.utils.register_keras_serializable(package="official_albert")
class ClassificationHead(layers.ConfiguredLayer):
  """Computes class scores, or one number, from the pooled output.

  The weights are stored as [classes, H], as in the released checkpoints.
  """

  def __init__(
    self,
    config: config_lib.AlbertConfig,
    num_classes: int,
    dropout_prob: float = 0.0,
    **kwargs: Any,
  ):
    super().__init__(config, **kwargs)
    check_number("num_classes", num_classes, least=1, whole=True)
    check_number("dropout_prob", dropout_prob, least=0, below=1)
    self.num_classes = num_classes
    self.dropout_prob = dropout_prob
    self.output_weights = self.add_weight(
      name="output_weights",
      shape=[num_classes, config.hidden_size],
      initializer=tf.keras.initializers.TruncatedNormal(
        stddev=config.initializer_range
      ),
      experimental_autocast=False,
    )
    self.output_bias = self.add_weight(
      name="output_bias",
      shape=[num_classes],
      initializer="zeros",
      experimental_autocast=False,
    )

  @layers.without_autograph
  def call(
    self,
    pooled_output: tf.Tensor,
    training: Optional[bool] = None,
    dropout_seed: Optional[tf.Tensor] = None,
  ) -> tf.Tensor:
    """Maps <float>[B, H] to logits <float32>[B, classes]."""
    x = tf.cast(pooled_output, tf.float32)
    x = layers.seeded_dropout(x, self.dropout_prob, training, dropout_seed)
    scores = tf.matmul(x, self.output_weights, transpose_b=True)
    return scores + self.output_bias

  def get_config(self) -> dict[str, Any]:
    return {
      **super().get_config(),
      "num_classes": self.num_classes,
      "dropout_prob": self.dropout_prob,
    }


@tf.keras.utils.register_keras_serializable(package="official_albert")
class SentenceOrderHead(ClassificationHead):
  """Two classes from the pooled output: 0 for in order, 1 for swapped."""

  def __init__(self, config: config_lib.AlbertConfig, **kwargs: Any):
    super().__init__(config, 2, **kwargs)

  def get_config(self) -> dict[str, Any]:
    config = super().get_config()
    del config["num_classes"], config["dropout_prob"]
    return config
