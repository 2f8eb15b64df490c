"""The interface between the training loop and a task, and sums of losses."""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple, Optional, Protocol, Sequence

import numpy as np
import tensorflow as tf

Batch = Mapping[str, tf.Tensor]
# Losses and metrics; None is the mean of no examples, 0 / 0.
Values = dict[str, Optional[float]]

# A single input pipeline.
ONE_PIPELINE = tf.distribute.InputContext()


class Divergence(ValueError):
  """A loss or gradient is not finite."""


class Ratio(NamedTuple):
  """A sum and the weight to divide it by, both <float32>[].

  Ratios are summed over micro-batches, replicas and steps; the log reports the
  quotients of the sums.
  """

  total: tf.Tensor
  weight: tf.Tensor


class Task(Protocol):
  """A model, its data and its losses, as the loop uses them.

  Attributes:
    name: for logs.
    tokens_per_example: the padded length of an example, for throughput.
    flops_per_example: the floating-point operations of training on an example.
  """

  name: str
  tokens_per_example: int
  flops_per_example: int

  def build_model(self) -> tf.keras.Model:
    """Returns a model with initial weights; all its variables must exist."""

  def begin(self, model: tf.keras.Model) -> None:
    """Replaces initial weights before the first step of a run.

    For those that take long to compute: it is not called for a run that is
    resumed or that starts from a checkpoint.
    """

  def warm_start(self, model: tf.keras.Model, path: str) -> Any:
    """Sets the weights of a model to those of the checkpoint at `path`.

    Returns:
      A report, whose text is a sentence for the log; its `missing` are the
      variables that the checkpoint lacks, which kept their values.

    Raises:
      FileNotFoundError, OSError: there is no checkpoint, or it is damaged.
      ValueError: it belongs to another model.
    """

  def train_dataset(
    self,
    batch_size: int,
    start_example: int,
    context: tf.distribute.InputContext = ONE_PIPELINE,
  ) -> tf.data.Dataset:
    """Returns an endless dataset that begins after `start_example` examples.

    Each batch is for one replica, so an update takes one batch for each
    replica, in order. With several pipelines, each yields the batches of its
    own replicas, which are consecutive in the update.
    """

  def eval_dataset(self, batch_size: int) -> tf.data.Dataset:
    """Returns a dataset with each held-out example once.

    Every batch has the static size `batch_size`. Rows that only pad the last
    batch have weight 0.
    """

  def loss_weights(self, batch: Batch) -> dict[str, tf.Tensor]:
    """Returns the denominator <float32>[] of each objective."""

  def forward(
    self, model: tf.keras.Model, batch: Batch, training: bool, dropout_seed: Any
  ) -> tuple[dict[str, tf.Tensor], dict[str, Ratio]]:
    """Returns the sum <float32>[] of each objective, and the metrics."""

  def evaluate(
    self, model: tf.keras.Model, batch: Batch
  ) -> tuple[dict[str, tf.Tensor], dict[str, Ratio], dict[str, tf.Tensor]]:
    """Returns the result of `forward` without dropout, and the predictions.

    Losses and predictions come from one call of the model. The predictions are
    those of `PredictingTask.predict`; {} for other tasks.
    """

  def describe(self) -> dict[str, Any]:
    """Returns the description of the data for run.json, as JSON values."""


class PredictingTask(Task, Protocol):
  """A task that predicts each example and scores all predictions together."""

  def predict(
    self, model: tf.keras.Model, batch: Batch
  ) -> dict[str, tf.Tensor]:
    """Returns the predictions for the rows of a batch; ignores its labels.

    Returns:
      Tensors [B, ...] of a NumPy dtype, whose shapes differ between batches
      only in B. Among them is `example_id` <int32>[B], the index of the example
      in its split, from 0.
    """

  def score(self, predictions: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Returns the metrics of all predictions, sorted by `example_id`."""


def at_depths(task: Any, depths: Sequence[int]) -> list[Task]:
  """Returns the task at each depth (`at_depth`); without depths, itself."""
  return [task.at_depth(depth) for depth in depths] or [task]


def quotients(sums: Mapping[str, Ratio]) -> Values:
  """Returns totals divided by weights, and the sum of the losses as `loss`.

  A value is None if its weight is 0, because a mean of no examples does not
  exist; so is `loss` if one of the losses is.
  """
  values: Values = {
    name: float(ratio.total) / float(ratio.weight) if ratio.weight else None
    for name, ratio in sums.items()
  }
  losses = [v for name, v in values.items() if name.endswith("_loss")]
  return {"loss": None if None in losses else sum(losses), **values}


def brief(values: Values) -> str:
  """Formats values as "masked_lm_loss 6.283, learning_rate 0.001"."""
  return ", ".join(f"{name} {shown(value)}" for name, value in values.items())


def shown(value: Optional[float], form: str = ".4g") -> str:
  """Formats the value of a loss or metric, also one that does not exist."""
  return "undefined (0 examples)" if value is None else format(value, form)
