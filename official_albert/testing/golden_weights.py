"""Loads the weights of the original code's small models."""

from __future__ import annotations

import pathlib

import tensorflow as tf

from official_albert import checkpoints


def load_golden(model: tf.keras.Model, path: pathlib.Path) -> None:
  """Loads every weight of `model` from a checkpoint of the original code."""
  report = checkpoints.load_tf1_checkpoint(model, str(path))
  assert not report.missing and not report.unexpected
