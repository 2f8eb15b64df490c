"""Heads: masked LM, and classes of a whole sequence.

Reference: google-research/albert run_pretraining.py (get_masked_lm_output,
get_sentence_order_output), classifier_utils.py (create_model).
"""

from __future__ import annotations

import math
from typing import Any, Optional, Sequence

import numpy as np
import tensorflow as tf

from official_albert import config as config_lib
from official_albert.modeling import factorized_embedding, fused_ops, layers
from official_albert.settings import check_number


@tf.keras.utils.register_keras_serializable(package="official_albert")
class MaskedLMHead(layers.ConfiguredLayer):
  """Scores the vocabulary at the masked positions.

  Gathers the positions, then applies a Dense layer of width E with the
  encoder's activation, LayerNorm, the transposed word table and a bias.
  """

  def __init__(self, config: config_lib.AlbertConfig, **kwargs: Any):
    super().__init__(config, autocast=False, **kwargs)
    self.transform = layers.dense(self, config.embedding_size, "transform")
    self.layer_norm = layers.layer_norm(self)
    # Keras' .h5 files need unique names, and other heads use output_bias.
    with tf.name_scope(self.name):
      self.output_bias = self.add_weight(
        "output_bias", [config.vocab_size], initializer="zeros"
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
    logits = tf.cast(scores, fused_ops.wide(scores.dtype))
    logits += tf.cast(self.output_bias, logits.dtype)
    return tf.reshape(logits, [batch, predictions, self.config.vocab_size])


@tf.keras.utils.register_keras_serializable(package="official_albert")
class ClassificationHead(layers.ConfiguredLayer):
  """Computes class scores, or one number, from the pooled output.

  The weights are stored as [classes, H], as in the released checkpoints.

  Attributes:
    target_scale: of a regression, the mean and the logarithm of the standard
      deviation of its targets, <float32>[2]. The weights compute standardized
      numbers, which are then returned to the targets' scale. Zeros, the initial
      values, leave them as they are. None without `has_target_scale`.
  """

  def __init__(
    self,
    config: config_lib.AlbertConfig,
    num_classes: int,
    dropout_prob: float = 0.0,
    has_target_scale: bool = False,
    **kwargs: Any,
  ):
    super().__init__(config, **kwargs)
    check_number("num_classes", num_classes, least=1, whole=True)
    check_number("dropout_prob", dropout_prob, least=0, below=1)
    self.num_classes = num_classes
    self.dropout_prob = dropout_prob
    self.target_scale = None
    if has_target_scale:
      self.target_scale = self.add_weight(
        "target_scale",
        [2],
        dtype=fused_ops.wide(self.variable_dtype),
        initializer="zeros",
        trainable=False,
      )
    self.output_weights = self.add_weight(
      "output_weights",
      [num_classes, config.hidden_size],
      initializer=layers.normal(config),
    )
    self.output_bias = self.add_weight(
      "output_bias", [num_classes], initializer="zeros"
    )

  @layers.without_autograph
  def call(
    self,
    pooled_output: tf.Tensor,
    training: Optional[bool] = None,
    dropout_seed: Optional[tf.Tensor] = None,
  ) -> tf.Tensor:
    """Maps <float>[B, H] to logits <float32>[B, classes]."""
    x = tf.cast(pooled_output, fused_ops.wide(self.compute_dtype))
    x = layers.seeded_dropout(x, self.dropout_prob, training, dropout_seed)
    weights = tf.cast(self.output_weights, x.dtype)
    scores = tf.matmul(x, weights, transpose_b=True)
    scores += tf.cast(self.output_bias, x.dtype)
    if self.target_scale is None:
      return scores
    return scores * self.target_std + self.target_scale[0]

  @property
  def target_std(self) -> tf.Tensor:
    """The standard deviation of the targets <float32>[]; 1 unless it is set."""
    if self.target_scale is None:
      return tf.ones([])
    return tf.exp(self.target_scale[1])

  def enlarge_weights(self) -> None:
    """Draws larger initial weights, for several labels in small models.

    With them, these learn faster. The standard deviation is 0.3 for a
    `hidden_size` of 128, where it was measured (docs/finetuning.md), and less
    for wider models. Those of the paper's sizes keep their weights.
    """
    if self.config.hidden_size < 768:
      std = 3.4 / self.config.hidden_size**0.5
      draw = tf.keras.initializers.RandomNormal(stddev=std)
      weights = self.output_weights
      weights.assign(draw(weights.shape, weights.dtype))

  def set_targets(
    self, targets: np.ndarray, keep_outputs: bool = False
  ) -> None:
    """Standardizes the targets of a regression, <float32>[N].

    Otherwise, AdamW would take 50,000 updates of 1e-3 to reach a mean of 50.
    With `keep_outputs`, the head computes the same numbers as before; otherwise
    its weights stay as they are.

    Raises:
      ValueError: the targets are all equal, or not finite.
    """
    values = np.asarray(targets, np.float64)
    mean, std = values.mean(), values.std()
    if not (np.isfinite(std) and np.ptp(np.float32(values)) > 0):
      raise ValueError(
        f"a regression needs finite and different numbers to learn from, but "
        f"the {values.size:,} labels lie between {values.min():g} and "
        f"{values.max():g}: correct them."
      )
    self.set_target_scale([mean, np.log(std)], keep_outputs)

  def set_target_scale(
    self, scale: Sequence[float], keep_outputs: bool
  ) -> None:
    """Sets `target_scale`; for `keep_outputs` see `set_targets`."""
    if keep_outputs:
      mean, log_std = self.target_scale.numpy().astype(np.float64)
      weights, bias = fold_target_scale(
        self.output_weights.numpy(),
        self.output_bias.numpy(),
        [(mean - scale[0]) / np.exp(scale[1]), log_std - scale[1]],
      )
      self.output_weights.assign(weights)
      self.output_bias.assign(bias)
    self.target_scale.assign(np.asarray(scale, np.float32))

  def get_config(self) -> dict[str, Any]:
    return {
      **super().get_config(),
      "num_classes": self.num_classes,
      "dropout_prob": self.dropout_prob,
      "has_target_scale": self.target_scale is not None,
    }


def fold_target_scale(
  weights: np.ndarray, bias: np.ndarray, scale: Sequence[float]
) -> tuple[np.ndarray, np.ndarray]:
  """Returns weights <float32>[1, H] and bias [1] that include `target_scale`.

  Formats of other programs have no place for it.
  """
  mean, std = float(scale[0]), math.exp(scale[1])
  folded = np.asarray(weights, np.float64) * std, bias * std + mean
  return folded[0].astype(np.float32), np.asarray(folded[1], np.float32)
