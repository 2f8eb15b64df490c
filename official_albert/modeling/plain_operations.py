"""Graphs of training that leave this package: no XLA, no gradients by hand.

Whoever loads such a graph may have a TensorFlow without XLA, and differentiates
what is there, maybe twice or with a persistent tape. Values and gradients are
those of `fused_ops`, computed in more steps.
"""

from __future__ import annotations

import contextlib
import contextvars
from typing import Callable, Iterator

import tensorflow as tf

_WANTED = contextvars.ContextVar("plain_operations", default=False)


@contextlib.contextmanager
def plain_operations_only() -> Iterator[None]:
  """What is traced or computed inside is made of plain operations."""
  token = _WANTED.set(True)
  try:
    yield
  finally:
    _WANTED.reset(token)


def plain_operations_wanted() -> bool:
  """Whether the caller is inside of `only`."""
  return _WANTED.get()


def with_gradient(run: Callable) -> Callable:
  """tf.custom_gradient, or inside of `only` the forward function alone.

  Args:
    run: returns its result, and a function for the gradient.
  """
  if plain_operations_wanted():
    return lambda *arguments: run(*arguments)[0]
  return tf.custom_gradient(run)
