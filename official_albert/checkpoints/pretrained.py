"""Opening pretrained weights of any format, and an encoder from them.

`AlbertModel.from_checkpoint` is the front door.
"""

from __future__ import annotations

import os
from typing import Callable, Mapping, NamedTuple, Optional

import tensorflow as tf

from official_albert import modeling, training
from official_albert.checkpoints import (
  checkpoint_files,
  hf_checkpoints,
  hf_config,
  own_checkpoints,
  reference_checkpoints,
  tf1_checkpoints,
  variable_paths,
)
from official_albert.checkpoints import names as checkpoint_names
from official_albert.checkpoints import portable as portable_checkpoint

READERS: Mapping[str, Callable[..., portable_checkpoint.PortableCheckpoint]] = {
  "tf1": tf1_checkpoints.read_tf1_checkpoint,
  "tf_hub": tf1_checkpoints.read_tf1_checkpoint,
  "hf": hf_checkpoints.read,
  "official_albert": own_checkpoints.read,
}
WRITERS: Mapping[
  str, Callable[[portable_checkpoint.PortableCheckpoint, str], str]
] = {
  "tf1": tf1_checkpoints.write_tf1_checkpoint,
  "hf": hf_checkpoints.write,
  "official_albert": own_checkpoints.write,
}


def find_format(path: str) -> str:
  """Which of `READERS` a path is for, by what lies there.

  Raises:
    ValueError, OSError: there is no checkpoint, or it is damaged.
  """
  if os.path.exists(os.path.join(path, hf_config.HF_CONFIG_FILE)):
    return "hf"
  prefix = checkpoint_files.find_prefix(path)
  if os.path.exists(os.path.join(path, "saved_model.pb")):
    return "tf_hub"
  names = checkpoint_files.TensorBundle(prefix).shapes
  return "official_albert" if variable_paths.OBJECT_GRAPH in names else "tf1"


def choose(
  path: str, checkpoint: str = "", source: str = ""
) -> tuple[str, str]:
  """What to read at a path, for every program that takes one.

  Args:
    path: see `AlbertModel.from_checkpoint`, but no archive.
    checkpoint: of a run, see `checkpoint_files.find_prefix`.
    source: one of `READERS`; "" to look.

  Returns:
    The format, one of `READERS`, and the path; of a run, that of the chosen
    checkpoint.

  Raises:
    ValueError, OSError: there is none, or there is nothing to choose from.
  """
  path = checkpoint_files.run_folder(path)
  source = source or find_format(path)
  if source == "official_albert":
    return source, checkpoint_files.find_prefix(path, checkpoint)
  if checkpoint:
    raise ValueError(
      f"{path} is not the folder of a run, of whose checkpoints one could be "
      "chosen: leave --checkpoint out."
    )
  return source, path


def fill(
  model, checkpoint: portable_checkpoint.PortableCheckpoint
) -> variable_paths.LoadReport:
  """Assigns a checkpoint's values to a model of the same configuration.

  Args:
    model: see `reference_checkpoints.tf1_variables`.
    checkpoint: where from.

  Returns:
    A report of the names on both sides.
  """
  variables = reference_checkpoints.tf1_variables(model)
  values = [name for name in checkpoint.tensors if name in variables]
  for name in values:
    variables[name].assign(checkpoint.tensors[name])
  no_weights = (
    portable_checkpoint.OPTIMIZER_STATE,
    portable_checkpoint.RUN_STATE,
  )
  ignored = {n for n, why in checkpoint.unexpected.items() if why in no_weights}
  left = set(checkpoint.tensors) - set(variables)
  left -= {checkpoint_names.GLOBAL_STEP, *checkpoint.slots}
  return variable_paths.LoadReport(
    matched=tuple(sorted(values)),
    missing=tuple(sorted(set(variables) - set(values))),
    unexpected=tuple(sorted(left | (set(checkpoint.unexpected) - ignored))),
    ignored=tuple(sorted(ignored.union(checkpoint.slots))),
  )


def read_checkpoint(
  path: str, config_file: str = ""
) -> portable_checkpoint.PortableCheckpoint:
  """The checkpoint at a path, of whichever format.

  Args:
    path: see `AlbertModel.from_checkpoint`, but no archive.
    config_file: where none lies beside the weights.

  Raises:
    ValueError, OSError: there is none, or it is damaged or of another model;
      one sentence.
  """
  return READERS[find_format(path)](path, config_file=config_file)


class Weights(NamedTuple):
  """What an encoder is made from.

  Attributes:
    config: of the encoder.
    fill: assigns the values to an `AlbertModel` of that configuration, or of
      one with another `num_hidden_layers` where all share one; returns a
      report of the names. The path has to be there still.
    tokenizer: beside the weights; None where there is none.
    source: the checkpoint's prefix, or the folder.
  """

  config: modeling.AlbertConfig
  fill: Callable[..., variable_paths.LoadReport]
  tokenizer: Optional[portable_checkpoint.TokenizerFile]
  source: str


def open_weights(path: str, config_file: str = "") -> Weights:
  """As `read`, but for encoders whose layers share less than everything too."""
  found, path = choose(path)
  if found == "official_albert":
    config = find_unshared_config(path, config_file)
    if config:
      return Weights(
        config,
        lambda model: fill_unshared(model, path),
        own_checkpoints.find_tokenizer(path),
        path,
      )
  checkpoint = READERS[found](path, config_file=config_file)
  return Weights(
    checkpoint.config,
    lambda model: fill(model, checkpoint),
    checkpoint.tokenizer,
    checkpoint.source,
  )


def find_unshared_config(
  path: str, config_file: str = ""
) -> Optional[modeling.AlbertConfig]:
  """The configuration of a run whose layers share less than everything.

  No other format has names for such layers, so `PortableCheckpoint` has none
  either: their weights go by our own paths, straight into a model.

  Args:
    path: a checkpoint of ours, or its folder.
    config_file: instead of the one beside it.

  Returns:
    None if the layers share everything.

  Raises:
    ValueError, OSError: it cannot be read.
  """
  prefix = checkpoint_files.find_prefix(path)
  config = own_checkpoints.find_config(prefix, config_file)
  return None if config.sharing == "all" else config


def fill_unshared(model, path: str) -> variable_paths.LoadReport:
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
