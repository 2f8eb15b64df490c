"""Our own runs whose layers share less than everything.

No other format has names for such layers, so `portable_checkpoint` has none
either: their weights go by our own paths, straight into a model.
"""

from __future__ import annotations

from typing import Optional

import tensorflow as tf

from official_albert import modeling, training
from official_albert.checkpoints import files as checkpoint_files
from official_albert.checkpoints import own_checkpoints, reference_checkpoints


def find_config(
  path: str, config_file: str = ""
) -> Optional[modeling.AlbertConfig]:
  """The configuration of such a run, None of one that shares everything.

  Args:
    path: a checkpoint of ours, or its folder.
    config_file: instead of the one beside it.

  Raises:
    ValueError, OSError: it cannot be read.
  """
  prefix = checkpoint_files.find_prefix(path)
  config = own_checkpoints.find_config(prefix, config_file)
  return None if config.sharing == "all" else config


def fill(model, path: str) -> reference_checkpoints.LoadReport:
  """Assigns a run's values to an encoder of the same configuration.

  Args:
    model: an `AlbertModel`.
    path: as above.

  Returns:
    A report of the paths on both sides, `albert/encoder/...`.

  Raises:
    ValueError: the checkpoint has not all of it, or in other shapes.
  """
  root = tf.Module()  # Checkpoints are of a model with an encoder in it.
  root.albert = model
  prefix = checkpoint_files.find_prefix(path)
  report = training.warm_start(root, prefix)
  if report.missing:
    raise ValueError(
      f"{prefix} lacks {report.missing[0]}: it is not whole, or of another "
      "configuration."
    )
  return report
