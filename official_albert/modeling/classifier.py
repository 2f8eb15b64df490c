"""Classifiers on top of the encoder: of whole texts, and of their tokens.

Reference: google-research/albert classifier_utils.py (create_model).
"""

from __future__ import annotations

from typing import Any, Mapping, Optional

import tensorflow as tf

from official_albert import config as config_lib
from official_albert.modeling import heads, layers, model


@tf.keras.utils.register_keras_serializable(package="official_albert")
class AlbertForSequenceClassification(model.HeadModel):
  """Classifies a text or a pair of texts; one class means regression.

  >>> import tensorflow as tf
  >>> from official_albert import AlbertConfig, AlbertForSequenceClassification
  >>> config = AlbertConfig.from_preset("albert_tiny")
  >>> model = AlbertForSequenceClassification(config, num_classes=3)
  >>> ids = tf.constant([[2, 13, 41, 3], [2, 37, 9, 3]])
  >>> model({"input_ids": ids})["logits"].shape
  TensorShape([2, 3])

  Attributes:
    classifier: the `ClassificationHead`.
  """

  other_features = ("label_ids", "example_id", "example_weight")
  # Whether one class is a number, whose scale the head knows.
  _is_regression_of_one = True
  # Whether the logits need all positions, and not only the first one.
  _needs_all_positions = False

  def __init__(
    self,
    config: config_lib.AlbertConfig,
    num_classes: int,
    classifier_dropout_prob: float = 0.1,
    *args: Any,
    **kwargs: Any,
  ):
    """Creates the layers and their variables; other arguments as `HeadModel`.

    The configuration has the dropout rates of fine-tuning. That of the pooled
    output, `classifier_dropout_prob`, is in Table 14 of the paper.
    """
    super().__init__(config, *args, **kwargs)
    self.classifier = heads.ClassificationHead(
      config,
      num_classes,
      classifier_dropout_prob,
      has_target_scale=num_classes == 1 and self._is_regression_of_one,
      name="classifier",
      dtype=self.dtype_policy,
    )
    self._create_variables()

  @layers.without_autograph
  def call(
    self,
    features: Mapping[str, tf.Tensor],
    training: Optional[bool] = None,
    dropout_seed: Optional[tf.Tensor] = None,
    logits_only: bool = False,
    num_layers: Optional[int] = None,
  ) -> dict[str, Any]:
    """Runs the encoder and the head; for the arguments see `AlbertModel`.

    It ignores `other_features`. With `logits_only`, the last block computes
    only the first position, if that is all that the logits need.

    Returns:
      `logits` <float32>[B, classes], or [B, S, classes] for tokens, and, unless
      `logits_only`, the outputs of `AlbertModel`.
    """
    inputs, _ = self.named_inputs(features)
    positions = None
    if logits_only and not self._needs_all_positions:
      positions = tf.zeros_like(inputs["input_ids"][:, :0])  # [B, 0]
    outputs = self.albert(
      inputs,
      training=training,
      dropout_seed=layers.fold_in(dropout_seed, 0),
      output_positions=positions,
      num_layers=num_layers,
    )
    logits = self._classify(
      outputs, training=training, dropout_seed=layers.fold_in(dropout_seed, 1)
    )
    return {**({} if logits_only else outputs), "logits": logits}

  def _classify(self, outputs: Mapping[str, Any], **options: Any) -> tf.Tensor:
    return self.classifier(outputs["pooled_output"], **options)

  def compute_loss(
    self,
    x: Any = None,
    y: Any = None,
    y_pred: Any = None,
    sample_weight: Any = None,
  ) -> tf.Tensor:
    """Computes the loss of Keras' `fit` and `evaluate` from the logits."""
    return super().compute_loss(x, y, y_pred["logits"], sample_weight)

  def compute_metrics(
    self, x: Any, y: Any, y_pred: Any, sample_weight: Any
  ) -> dict[str, Any]:
    """Updates the metrics of Keras' `fit` and `evaluate` with the logits."""
    return super().compute_metrics(x, y, y_pred["logits"], sample_weight)

  def get_config(self) -> dict[str, Any]:
    return {
      **super().get_config(),
      "num_classes": self.classifier.num_classes,
      "classifier_dropout_prob": self.classifier.dropout_prob,
    }


@tf.keras.utils.register_keras_serializable(package="official_albert")
class AlbertForTokenClassification(AlbertForSequenceClassification):
  """Classifies each token of a text, as for named entities.

  >>> import tensorflow as tf
  >>> from official_albert import AlbertConfig, AlbertForTokenClassification
  >>> config = AlbertConfig.from_preset("albert_tiny")
  >>> model = AlbertForTokenClassification(config, num_classes=5)
  >>> ids = tf.constant([[2, 13, 41, 3], [2, 37, 9, 3]])
  >>> model({"input_ids": ids})["logits"].shape
  TensorShape([2, 4, 5])

  Source: modeling_albert.py of transformers 4.57. The original has none.
  """

  _is_regression_of_one = False
  _needs_all_positions = True

  def _classify(self, outputs: Mapping[str, Any], **options: Any) -> tf.Tensor:
    hidden = outputs["sequence_output"]  # [B, S, H]
    rows = tf.reshape(hidden, [-1, hidden.shape[2]])
    scores = self.classifier(rows, **options)  # [B * S, classes]
    sizes = [*tf.unstack(tf.shape(hidden)[:2]), self.classifier.num_classes]
    return tf.reshape(scores, sizes)
