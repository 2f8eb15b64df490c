"""AlbertForSequenceClassification: the encoder with one head over the pooler.

Every task that gives a class or a number to a sentence or a pair uses it.
Reference: google-research/albert classifier_utils.py (create_model).
"""

from __future__ import annotations

from typing import Any, Mapping, Optional

import tensorflow as tf

from official_albert.modeling import config as config_lib
from official_albert.modeling import dropout, heads
from official_albert.modeling import model as model_lib


@tf.keras.utils.register_keras_serializable(package="official_albert")
class AlbertForSequenceClassification(model_lib.FeatureModel):
  """Classes of a sequence, or with one class a regression.

  Attributes:
    albert: the `AlbertModel`; its pretrained pooler is used.
    classifier: the `ClassificationHead`.
  """

  other_features = ("label_ids", "example_id", "example_weight")

  def __init__(
    self,
    config: config_lib.AlbertConfig,
    num_classes: int,
    classifier_dropout_prob: float = 0.1,
    recompute_activations: bool = False,
    layerwise_lr_decay: float = 1.0,
    **kwargs,
  ):
    """Makes the variables.

    Args:
      config: the encoder's; its dropouts are those of fine-tuning.
      num_classes: 1 for a regression.
      classifier_dropout_prob: of the pooled output (paper, Table 14).
      recompute_activations: see `AlbertModel`.
      layerwise_lr_decay: see `AlbertModel`.
      **kwargs: of `tf.keras.Model`.
    """
    super().__init__(config, **kwargs)
    self.albert = model_lib.AlbertModel(
      config, recompute_activations, layerwise_lr_decay, name="albert"
    )
    self.classifier = heads.ClassificationHead(
      num_classes,
      config.hidden_size,
      config.initializer_range,
      classifier_dropout_prob,
      name="classifier",
    )
    with tf.init_scope():  # As in AlbertModel: the variables exist at once.
      self({"input_ids": tf.zeros([1, 1], tf.int32)})

  def call(
    self,
    features: Mapping[str, tf.Tensor],
    training: Optional[bool] = None,
    dropout_seed: Optional[tf.Tensor] = None,
    logits_only: bool = False,
    num_layers: Optional[int] = None,
  ) -> dict[str, Any]:
    """Runs encoder and head.

    Args:
      features: what `AlbertModel` takes; other features of a record
        (`other_features`) are accepted, and not used.
      training: whether dropout is applied.
      dropout_seed: <int32>[2], see `layers/dropout.py`.
      logits_only: whether the last block computes what they need, the first
        position, and no other.
      num_layers: how many layers to apply; None: the model's. See
        `SharedTransformerEncoder`.

    Returns:
      `logits` <float32>[B, classes] and, unless they are all that is asked
      for, the outputs of `AlbertModel`.
    """
    inputs, _ = self.named_inputs(features)
    none = tf.zeros_like(inputs["input_ids"][:, :0]) if logits_only else None
    outputs = self.albert(
      inputs,
      training=training,
      dropout_seed=dropout.fold_in(dropout_seed, 0),
      output_positions=none,
      num_layers=num_layers,
    )
    logits = self.classifier(
      outputs["pooled_output"],
      training=training,
      dropout_seed=dropout.fold_in(dropout_seed, 1),
    )
    return {**({} if logits_only else outputs), "logits": logits}

  def get_config(self) -> dict[str, Any]:
    return {
      **super().get_config(),
      "num_classes": self.classifier.num_classes,
      "classifier_dropout_prob": self.classifier.dropout_prob,
      **self.albert.training_settings(),
    }
