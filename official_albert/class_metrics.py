"""Keras' metrics and losses of classes, in the form that each of them takes.

A classifier has labels [B] and probabilities [B, C]. Of Keras' metrics only the
sparse ones take them so: others want one-hot labels, the class instead of
probabilities, or, of two classes, the label 0 or 1 and the probability of class
1. A regression has no classes, so metrics of classes are refused there.
"""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

_metrics = tf.keras.metrics
# Of two classes, these measure the second one against the first.
_OF_ONE_CLASS = (
  _metrics.AUC,
  _metrics.BinaryAccuracy,
  _metrics.BinaryIoU,
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
# In the names of metrics that need classes.
_WORDS_OF_CLASSES = (
  *("acc", "auc", "crossentropy", "f1", "fbeta", "iou", "negatives"),
  *("positives", "precision", "recall", "specificity"),
)


def _known_name(function: Any) -> str:
  """Returns a function or a class of Keras in small letters; "" for others."""
  kind = function if hasattr(function, "__name__") else type(function)
  package = str(kind.__module__).partition(".")[0]
  is_known = package in ("keras", "tf_keras", "tensorflow_addons")
  return kind.__name__.lower() if is_known else ""


def takes_one_hot(function: Any) -> bool:
  """Returns whether a loss or a metric is one of Keras that is not sparse."""
  if isinstance(function, _metrics.MeanMetricWrapper):
    function = function._fn  # It may be a user's.
  name = _known_name(function)
  return bool(name) and not name.startswith("sparse")


def of_numbers(metric: Any) -> Any:
  """Returns a metric, or what `compile` takes for one, for a regression.

  Raises:
    ValueError: it is one of classes.
  """
  is_chosen = isinstance(metric, str) and metric in _CHOSEN_BY_KERAS
  name = "" if is_chosen else _known_name(_metrics.get(metric))
  if is_chosen or any(word in name for word in _WORDS_OF_CLASSES):
    shown = metric if isinstance(metric, str) else name
    raise ValueError(
      f"the metric {shown} is for classes, but labels=None makes a regression: "
      "give metrics of numbers, such as mean_absolute_error, or name the "
      "classes in labels."
    )
  return metric


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
    metric, is_of_one = self.metric, isinstance(self.metric, _OF_ONE_CLASS)
    # Whether labels and predictions are classes.
    plain = [isinstance(metric, _metrics.Accuracy)] * 2
    if isinstance(metric, _metrics.IoU) and not is_of_one:
      plain = [metric.sparse_y_true, metric.sparse_y_pred]
    if (
      y_pred.shape[-1] == 2
      and is_of_one
      and getattr(metric, "class_id", None) is None
      and not getattr(metric, "multi_label", False)
    ):
      y_pred = y_pred[:, 1]
    else:
      if not plain[0]:
        labels = tf.one_hot(labels, y_pred.shape[-1])
      if plain[1]:
        y_pred = tf.argmax(y_pred, axis=-1)
    return metric.update_state(labels, y_pred, sample_weight=sample_weight)

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
