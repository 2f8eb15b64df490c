"""What the training loop knows of an objective, and how it adds numbers up."""

from __future__ import annotations

from typing import (
  Any,
  Mapping,
  NamedTuple,
  Protocol,
  Sequence,
  runtime_checkable,
)

import numpy as np
import tensorflow as tf

Batch = Mapping[str, tf.Tensor]


# All batches come from one place.
ONE_PIPELINE = tf.distribute.InputContext()


class Divergence(ValueError):
  """The loss or the gradient is not finite any more."""


class Ratio(NamedTuple):
  """A sum and the weight to divide it by, both <float32>[].

  Ratios add up over micro-batches, replicas and steps; their quotients, which
  is what people read, do not.
  """

  total: tf.Tensor
  weight: tf.Tensor


class Task(Protocol):
  """What the loop knows of an objective.

  Attributes:
    name: for logs.
    tokens_per_example: padded length of one example, for throughput.
    flops_per_example: operations of training on one example.
  """

  name: str
  tokens_per_example: int
  flops_per_example: int

  def build_model(self) -> tf.keras.Model:
    """A model with fresh weights; all its variables exist."""

  def train_dataset(
    self,
    batch_size: int,
    start_example: int,
    context: tf.distribute.InputContext = ONE_PIPELINE,
  ) -> tf.data.Dataset:
    """Batches without end, as if `start_example` examples had been drawn.

    Batches are those of single replicas: an update takes as many in a row as
    there are replicas. With several pipelines each yields the ones of its own
    replicas, which follow each other in the update.
    """

  def eval_dataset(self, batch_size: int) -> tf.data.Dataset:
    """Each held-out example once; padded rows carry no weight.

    Every batch has exactly `batch_size` rows, as its static shape says.
    """

  def loss_weights(self, batch: Batch) -> dict[str, tf.Tensor]:
    """The denominator <float32>[] of each objective; needs no model."""

  def forward(
    self, model: tf.keras.Model, batch: Batch, training: bool, dropout_seed
  ) -> tuple[dict[str, tf.Tensor], dict[str, Ratio]]:
    """The sum <float32>[] of each objective, and the metrics."""

  def describe(self) -> dict[str, Any]:
    """What a run's record must say of the data, as JSON values."""


@runtime_checkable
class DeepTask(Task, Protocol):
  """A task whose model can apply its layers any number of times."""

  def at_depth(self, num_layers: int) -> Task:
    """The same data and model, with so many layers; its operations too."""


def training_flops(task: Task, random_depths: Sequence[int]) -> float:
  """Operations of training on an example, on average over the depths.

  Args:
    task: a `DeepTask` if there are depths.
    random_depths: what the depth of an update is drawn from; (): none is.
  """
  if not random_depths:
    return task.flops_per_example
  shallow = [task.at_depth(depth) for depth in random_depths]
  return sum(x.flops_per_example for x in shallow) / len(shallow)


@runtime_checkable
class PredictingTask(Task, Protocol):
  """A task whose model says something of each example, and is scored by it."""

  def predict(
    self, model: tf.keras.Model, batch: Batch
  ) -> dict[str, tf.Tensor]:
    """What the model says of the rows of a batch, without its labels.

    Returns:
      Tensors [B, ...] of a dtype that NumPy has, whose shape is the same for
      all batches apart from B. Among them is `example_id` <int32>[B]: which
      example of its split a row is, counted from 0.
    """

  def score(self, predictions: Mapping[str, np.ndarray]) -> dict[str, float]:
    """The official metrics of the held-out split.

    Args:
      predictions: what `predict` returned for each of its examples, by
        ascending `example_id`.
    """


def add(a: dict[str, Ratio], b: dict[str, Ratio]) -> dict[str, Ratio]:
  """Both together, name by name."""
  return tf.nest.map_structure(tf.add, a, b)


def quotients(sums: Mapping[str, Ratio]) -> dict[str, float]:
  """What people read: totals over weights, and the sum of the losses."""
  values = {
    name: float(ratio.total) / max(float(ratio.weight), 1e-30)
    for name, ratio in sums.items()
  }
  losses = [v for name, v in values.items() if name.endswith("_loss")]
  return {"loss": sum(losses), **values}


def brief(values: Mapping[str, float]) -> str:
  """For a message: "masked_lm_loss 6.283, learning_rate 0.001"."""
  return ", ".join(f"{name} {value:.4g}" for name, value in values.items())
