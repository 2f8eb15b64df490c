"""The checkpoint formats: which one is at a path, and its reader and writer.

The module of a format is imported when its reader or writer is first called.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Callable, Mapping

from official_albert.checkpoints import checkpoint_files

if TYPE_CHECKING:
  from official_albert.checkpoints import portable


def _lazy(module: str, function: str) -> Callable:
  """Returns a function whose module is imported at the first call."""

  def call(*args, **kwargs):
    imported = importlib.import_module(f"{__package__}.{module}")
    return getattr(imported, function)(*args, **kwargs)

  return call


# reader(path, head, include_optimizer, config_file) -> PortableCheckpoint; for
# the arguments see `tf1_checkpoints.read_tf1_checkpoint`.
READERS: Mapping[str, Callable[..., portable.PortableCheckpoint]] = {
  "tf1": _lazy("tf1_checkpoints", "read_tf1_checkpoint"),
  "tf_hub": _lazy("tf1_checkpoints", "read_tf1_checkpoint"),
  "hf": _lazy("hf_checkpoints", "read"),
  "official_albert": _lazy("own_checkpoints", "read"),
}
# writer(checkpoint, folder) -> path of the weights.
WRITERS: Mapping[str, Callable[[portable.PortableCheckpoint, str], str]] = {
  "tf1": _lazy("tf1_checkpoints", "write_tf1_checkpoint"),
  "hf": _lazy("hf_checkpoints", "write"),
  "official_albert": _lazy("own_checkpoints", "write"),
}


def find_format(path: str) -> str:
  """Returns the key of `READERS` for the checkpoint at a path.

  Raises:
    ValueError, OSError: there is no checkpoint, or it is damaged.
  """
  if os.path.exists(os.path.join(path, checkpoint_files.HF_CONFIG_FILE)):
    return "hf"
  prefix = checkpoint_files.find_prefix(path)
  if os.path.exists(os.path.join(path, "saved_model.pb")):
    return "tf_hub"
  is_own = checkpoint_files.TensorBundle(prefix).is_object_based
  return "official_albert" if is_own else "tf1"


def choose(
  path: str, checkpoint: str = "", source: str = ""
) -> tuple[str, str]:
  """Finds the format at a path and, in a run, the checkpoint to read.

  Args:
    path: as in `AlbertModel.from_checkpoint`, but not an archive.
    checkpoint: which checkpoint of a run, as in `find_prefix`.
    source: a key of `READERS`; "" detects the format.

  Returns:
    The key of `READERS` and the path to give to the reader.

  Raises:
    ValueError, OSError: there is no checkpoint, or `checkpoint` is given and
      `path` is not a run.
  """
  path = checkpoint_files.run_folder(path)
  source = source or find_format(path)
  if source == "official_albert":
    return source, checkpoint_files.find_prefix(path, checkpoint)
  if checkpoint:
    raise ValueError(
      f"{path} is not the folder of a run, so there are no checkpoints to "
      "choose from: leave --checkpoint out."
    )
  return source, path


def read_checkpoint(
  path: str, config_file: str = ""
) -> portable.PortableCheckpoint:
  """Reads a checkpoint of any format; see `checkpoints.fill`.

  Args:
    path: as in `AlbertModel.from_checkpoint`, but not an archive.
    config_file: albert_config.json, if there is none beside the weights.

  Raises:
    ValueError, OSError: there is no checkpoint, it is damaged, or it does not
      fit its configuration.
  """
  source, path = choose(path)
  return READERS[source](path, config_file=config_file)
