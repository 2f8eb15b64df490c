"""Keras' metrics and losses of classes, in the form that each of them takes.

A classifier has labels [B] and probabilities [B, C]. Of Keras' metrics only the
sparse ones take them so: others want one-hot labels, or, of two classes, the
label 0 or 1 and the probability of class 1.
"""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

_metrics = tf.keras.metrics
# Of two classes, these measure the second one against the first.
_OF_ONE_CLASS = (
  _metrics.AUC,
  _metrics.BinaryAccuracy,
  _metrics.FalseNegatives,
  _metrics.FalsePositives,
  _metrics.Precision,
  _metrics.PrecisionAtRecall,
  _metrics.Recall,
  _metrics.RecallAtPrecision,
  _metrics.SensitivityAtSpecificity,
  _metrics.SpecificityAtSensitivity,
  _metrics.TrueNegatives,
  _metrics.TruePositives,
)
# Keras itself chooses their form.
_CHOSEN_BY_KERAS = ("accuracy", "acc", "crossentropy", "ce")


def takes_one_hot(function: Any) -> bool:
  """Returns whether a loss or a metric is one of Keras that is not sparse."""
  kind = function if hasattr(function, "__name__") else type(function)
  if isinstance(function, _metrics.MeanMetricWrapper):
    kind = function._fn
  package = str(kind.__module__).partition(".")[0]
  is_known = package in ("keras", "tf_keras", "tensorflow_addons")
  return is_known and not kind.__name__.lower().startswith("sparse")


def of_classes(metric: Any) -> Any:
  """Returns a metric, or what `compile` takes for one, for labels [B]."""
  if isinstance(metric, str) and metric not in _CHOSEN_BY_KERAS:
    metric = _metrics.get(metric)
  if isinstance(metric, (str, ClassMetric)) or not takes_one_hot(metric):
    return metric
  if not isinstance(metric, _metrics.Metric):
    metric = _metrics.MeanMetricWrapper(metric, name=metric.__name__)
  return ClassMetric(metric)


@tf.keras.utils.register_keras_serializable(package="official_albert")
class ClassMetric(tf.keras.metrics.Metric):
  """A metric of Keras, which gets the labels in its form."""

  def __init__(self, metric: tf.keras.metrics.Metric, **kwargs: Any):
    super().__init__(**{"name": metric.name, **kwargs})
    self.metric = metric

  def update_state(
    self,
    y_true: tf.Tensor,
    y_pred: tf.Tensor,
    sample_weight: Optional[tf.Tensor] = None,
  ) -> Any:
    """Adds labels <int>[B] and probabilities <float>[B, C]."""
    labels = tf.reshape(y_true, [-1])
    if (
      y_pred.shape[-1] == 2
      and isinstance(self.metric, _OF_ONE_CLASS)
      and getattr(self.metric, "class_id", None) is None
      and not getattr(self.metric, "multi_label", False)
    ):
      y_pred = y_pred[:, 1]
    else:
      labels = tf.one_hot(labels, y_pred.shape[-1])
    return self.metric.update_state(labels, y_pred, sample_weight=sample_weight)

  def result(self) -> Any:
    return self.metric.result()

  def reset_state(self) -> None:
    self.metric.reset_state()

  def get_config(self) -> dict[str, Any]:
    metric = _metrics.serialize(self.metric)
    return {**super().get_config(), "metric": metric}

  @classmethod
  def from_config(cls, config: dict[str, Any]) -> ClassMetric:
    # Unlike that of tf.keras.saving, it also reads a SavedModel of Keras.
    metric = _metrics.deserialize(config["metric"])
    return cls(**{**config, "metric": metric})
