"""A Keras model as a program for batches of any number of rows.

One device takes batches as they come. Several share a batch, so it has to have
as many rows as was agreed on, and is filled up with copies of its last row; so
it is on TPUs, which compile a program for each shape.
"""

from __future__ import annotations

from typing import Any, Callable, Mapping

import numpy as np
import tensorflow as tf

from official_albert import training
from official_albert.training import Batch


class Program:
  """Arrays in, arrays out.

  Attributes:
    fixed_length: whether sequences should always be padded to one length.
  """

  def __init__(
    self,
    model: tf.keras.Model,
    predict: Callable[[Any, Batch], Mapping[str, tf.Tensor]],
    strategy: tf.distribute.Strategy,
    batch_size: int,
  ):
    """Compiles nothing yet.

    Args:
      model: made under `strategy`.
      predict: of the model and a batch, the outputs, a row for each of its.
      strategy: the devices.
      batch_size: rows of a batch at most.

    Raises:
      ValueError: the rows of a batch cannot be shared out.
    """
    replicas = strategy.num_replicas_in_sync
    if batch_size < 1 or batch_size % replicas:
      raise ValueError(
        f"eval_batch_size is {batch_size}, but has to be a multiple of the "
        f"{replicas} devices and above 0."
      )
    self.fixed_length = isinstance(strategy, tf.distribute.TPUStrategy)
    self._rows = batch_size if replicas > 1 or self.fixed_length else None
    shares = replicas > 1

    def step(batch):
      rows = training.own_rows(batch) if shares else batch
      return training.gather_predictions(predict(model, rows))

    @tf.function
    def run(batch):
      return training.run_step(strategy, step, batch)

    self._run = run
    self._concrete = None

  def __call__(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Runs the model on B rows, as many as a batch has at most.

    Args:
      arrays: [B, ..., S] by name, always of the same names and dtypes; S may
        change from call to call.

    Returns:
      The outputs, [B, ...] each.
    """
    count = len(next(iter(arrays.values())))
    missing = self._rows - count if self._rows else 0
    if missing:
      arrays = {
        name: np.concatenate([x, np.repeat(x[-1:], missing, axis=0)])
        for name, x in arrays.items()
      }
    if self._concrete is None:
      self._concrete = self._run.get_concrete_function(
        {name: self._spec(x) for name, x in arrays.items()}
      )
    outputs = self._concrete(
      {name: tf.constant(x) for name, x in arrays.items()}
    )
    return {name: x.numpy()[:count] for name, x in outputs.items()}

  def _spec(self, array: np.ndarray) -> tf.TensorSpec:
    length = array.shape[-1] if self.fixed_length else None
    return tf.TensorSpec(
      [self._rows, *array.shape[1:-1], length], tf.as_dtype(array.dtype)
    )


def to_numpy(tensor: tf.Tensor) -> np.ndarray:
  """A tensor as an array; texts as `str`, without bytes that are no UTF-8."""
  array = tensor.numpy()
  if array.dtype != object:
    return array
  texts = np.empty(array.size, object)
  texts[:] = [text.decode("utf-8", "replace") for text in array.ravel()]
  return texts.reshape(array.shape)
