"""Our own runs whose layers share less than everything.

No other format has names for such layers, so `portable_checkpoint` has none
either: their weights go by our own paths, straight into a model.
"""

from __future__ import annotations

from typing import Optional

import tensorflow as tf

from official_albert import (
  checkpoint_files,
  checkpoints,
  portable_checkpoint,
  reference_checkpoints,
  run_record,
)
from official_albert import config as config_lib


def find_config(
  path: str, config_file: str = ""
) -> Optional[config_lib.AlbertConfig]:
  """The configuration of such a run, None of one that shares everything.

  Args:
    path: a checkpoint of ours, or its folder.
    config_file: instead of the one beside it.

  Raises:
    ValueError, OSError: it cannot be read.
  """
  config_file = config_file or checkpoint_files.find_only(
    _folders(path), checkpoint_files.CONFIG_FILE
  )
  if not config_file:
    return None
  config = config_lib.AlbertConfig.from_json_file(config_file)
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
  report = checkpoints.warm_start(root, prefix)
  if report.missing:
    raise ValueError(
      f"{prefix} lacks {report.missing[0]}: it is not whole, or of another "
      "configuration."
    )
  return report


def find_tokenizer(path: str) -> Optional[portable_checkpoint.TokenizerFile]:
  """The tokenizer beside a checkpoint, None where there is none."""
  folders = _folders(path)
  lower_case = True
  record = checkpoint_files.find_only(folders, run_record.RECORD_FILE)
  if record:
    recorded = run_record.read(record[: -len(run_record.RECORD_FILE)])
    lower_case = recorded["data"].get("tokenizer", {}).get("lower_case", True)
  return checkpoint_files.find_tokenizer(folders, lower_case)


def _folders(path: str) -> list[str]:
  return checkpoint_files.folders_of(checkpoint_files.find_prefix(path))
