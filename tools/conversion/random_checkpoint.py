"""Checkpoints of any size with random weights, for measurements.

Biases are random too: TensorFlow's graph optimizer removes zeros, which new
models have as biases.
"""

from __future__ import annotations

import os

import numpy as np

from official_albert import checkpoints, modeling


def write(config: modeling.AlbertConfig, folder: str) -> int:
  """Writes a TF1 checkpoint and its configuration.

  Args:
    config: the encoder; the pretraining heads are added.
    folder: is created.

  Returns:
    The number of parameters.
  """
  rng = np.random.default_rng(1)
  tensors = {}
  for row in checkpoints.rows(config, "pretraining"):
    value = rng.standard_normal(row.shape_in(config), np.float32)
    value *= np.float32(config.initializer_range)
    tensors[row.tf1] = value + np.float32(row.tf1.endswith("/gamma"))
  os.makedirs(folder)
  checkpoints.write_bundle(
    os.path.join(folder, checkpoints.CHECKPOINT_NAME), tensors
  )
  config.to_json_file(os.path.join(folder, checkpoints.CONFIG_FILE))
  return sum(value.size for value in tensors.values())
