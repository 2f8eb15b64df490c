"""Refusing tensors of the wrong rank or dtype, by their name."""

from __future__ import annotations

import tensorflow as tf


def check_rank(name: str, tensor: tf.Tensor, letters: str) -> None:
  """Refuses `tensor` unless it has one axis per letter.

  Args:
    name: what the caller calls the tensor.
    tensor: any dense tensor.
    letters: the axes expected, separated by spaces, such as "B S".

  Raises:
    ValueError: the rank differs; the message shows name, shape and letters.
  """
  rank = tensor.shape.rank
  if rank is not None and rank != len(letters.split()):
    raise ValueError(
      f"{name} must have the shape [{', '.join(letters.split())}], got "
      f"{tensor.shape.as_list()}."
    )


def check_same_shape(
  name: str, tensor: tf.Tensor, other_name: str, other: tf.Tensor
) -> None:
  """Refuses `tensor` unless it has the shape of `other`.

  Sizes that are known only when the graph runs are not compared.

  Raises:
    ValueError: a size differs; the message names both tensors. (TensorFlow
      would stretch a size of 1 without a word.)
  """
  if not tensor.shape.is_compatible_with(other.shape):
    raise ValueError(
      f"{name} has the shape {tensor.shape.as_list()}, but {other_name} has "
      f"{other.shape.as_list()}."
    )


def check_ids(name: str, tensor: tf.Tensor, letters: str = "B S") -> None:
  """Refuses `tensor` unless it holds int32 or int64 and has these axes.

  Raises:
    ValueError: wrong rank or dtype; the message names the tensor.
  """
  check_rank(name, tensor, letters)
  if tensor.dtype not in (tf.int32, tf.int64):
    raise ValueError(
      f"{name} must hold integer ids (int32), got {tensor.dtype.name}."
    )
