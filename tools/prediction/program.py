"""Calls a served model's `forward` for any number of rows on all devices.

A single device accepts batches of any size. Several devices share each batch,
so every batch is padded to a fixed number of rows. TPUs also need a fixed
sequence length, because they compile a program for each shape.
"""

from __future__ import annotations

from typing import Callable, Mapping

import numpy as np
import tensorflow as tf

from official_albert import training
from official_albert.serving import Tensors
from official_albert.training import Batch

IDS = ("input_ids", "input_mask", "segment_ids")


class Program:
  """Maps features to outputs.

  Attributes:
    fixed_length: whether all sequences are padded to one length.
  """

  def __init__(
    self,
    forward: Callable[..., Mapping[str, tf.Tensor]],
    strategy: tf.distribute.Strategy,
    batch_size: int,
    max_seq_length: int,
  ):
    """Creates the program; compiles nothing yet.

    Args:
      forward: takes features [B, ...] by name, returns outputs [B, ...].
      strategy: the devices; the model's variables were made under it.
      batch_size: the maximum number of rows in a batch.
      max_seq_length: the length to which sequences are padded on TPUs.

    Raises:
      ValueError: the devices cannot share a batch equally.
    """
    replicas = strategy.num_replicas_in_sync
    if batch_size < 1 or batch_size % replicas:
      raise ValueError(
        f"eval_batch_size is {batch_size}, but must be a positive multiple of "
        f"the number of devices, {replicas}."
      )
    self.fixed_length = isinstance(strategy, tf.distribute.TPUStrategy)
    self._max_seq_length = max_seq_length
    self._batch_size = batch_size
    self._fixed_rows = replicas > 1 or self.fixed_length

    def step(batch: Batch) -> Tensors:
      rows = training.own_rows(batch) if replicas > 1 else batch
      return training.gather_predictions(dict(forward(**rows)))

    @tf.function(autograph=False)
    def run(batch: Batch) -> Tensors:
      return training.run_step(strategy, step, batch)

    self._run = run

  def __call__(self, **features: tf.Tensor) -> Tensors:
    """Returns the outputs [B, ...] for features [B, ..., S].

    B and S may change from call to call. More than `batch_size` rows are
    computed in several batches.
    """
    arrays = {name: np.asarray(x) for name, x in features.items()}
    if self.fixed_length:
      for name in IDS:
        missing = self._max_seq_length - arrays[name].shape[-1]
        arrays[name] = _padded(arrays[name], missing, -1, "constant")
    size = self._batch_size
    batches = [
      self._run_batch({name: x[i : i + size] for name, x in arrays.items()})
      for i in range(0, len(arrays["input_ids"]), size)
    ]
    return {
      name: tf.concat([outputs[name] for outputs in batches], axis=0)
      for name in batches[0]
    }

  def _run_batch(self, arrays: Mapping[str, np.ndarray]) -> Tensors:
    count, specs = len(arrays["input_ids"]), {}
    if self._fixed_rows:
      missing = self._batch_size - count
      arrays = {n: _padded(x, missing, 0, "edge") for n, x in arrays.items()}
    for name, x in arrays.items():
      rows = len(x) if self._fixed_rows else None
      length = x.shape[-1] if self.fixed_length else None
      shape = [rows, *x.shape[1:-1], length]
      specs[name] = tf.TensorSpec(shape, tf.as_dtype(x.dtype))
    # One graph for all shapes; TensorFlow caches it.
    graph = self._run.get_concrete_function(specs)
    with tf.device(None):  # The caller's choice is not the program's.
      outputs = graph({name: tf.constant(x) for name, x in arrays.items()})
    return {name: x[:count] for name, x in outputs.items()}


def _padded(array: np.ndarray, missing: int, axis: int, mode: str):
  widths = [(0, 0)] * array.ndim
  widths[axis] = (0, missing)
  return np.pad(array, widths, mode)
