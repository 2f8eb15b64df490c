"""AlbertForMultipleChoice, a model with one score for each option.

Reference: google-research/albert race_utils.py (create_model).
"""

from __future__ import annotations

from typing import Any, Mapping, Optional

import tensorflow as tf

from official_albert import modeling


@tf.keras.utils.register_keras_serializable(package="official_albert")
class AlbertForMultipleChoice(modeling.AlbertForSequenceClassification):
  """Scores each option as a sequence of its own."""

  def __init__(
    self,
    config: modeling.AlbertConfig,
    classifier_dropout_prob: float = 0.1,
    recompute_activations: bool = False,
    layerwise_lr_decay: float = 1.0,
    **kwargs,
  ):
    super().__init__(
      config,
      1,
      classifier_dropout_prob,
      recompute_activations,
      layerwise_lr_decay,
      **kwargs,
    )

  def call(
    self,
    features: Mapping[str, tf.Tensor],
    training: Optional[bool] = None,
    dropout_seed: Optional[tf.Tensor] = None,
    logits_only: bool = False,
    num_layers: Optional[int] = None,
  ) -> dict[str, Any]:
    """Scores O options of each example, <int32>[B, O, S].

    Returns:
      `logits` <float32>[B, O] and, unless `logits_only`, the outputs of
      `AlbertModel` for B * O sequences.
    """
    inputs, _ = self.named_inputs(features)
    ids = inputs["input_ids"]
    if len(ids.shape) == 2:  # The constructor creates the variables with it.
      return super().call(inputs, training, dropout_seed, logits_only)
    options, length = ids.shape[1], tf.shape(ids)[2]
    flat = {name: tf.reshape(x, [-1, length]) for name, x in inputs.items()}
    outputs = super().call(
      flat, training, dropout_seed, logits_only, num_layers
    )
    outputs["logits"] = tf.reshape(outputs["logits"], [-1, options])
    return outputs

  def get_config(self) -> dict[str, Any]:
    config = super().get_config()
    del config["num_classes"]
    return config
