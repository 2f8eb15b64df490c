"""Where the parts of a checkpoint lie: values, configuration, tokenizer."""

from __future__ import annotations

import glob
import os
from typing import Mapping, Optional, Sequence

import numpy as np
import tensorflow as tf

from official_albert import output_paths, portable_checkpoint

CONFIG_FILE = "albert_config.json"
_VARIABLES = "variables"
_BEST = "best"  # best_checkpoint.FOLDER


def find_prefix(path: str) -> str:
  """The prefix of the TensorFlow checkpoint that `path` means.

  Args:
    path: a prefix, a folder with a checkpoint (the latest is taken), or one of
      a SavedModel, whose variables/ are taken.

  Raises:
    FileNotFoundError: there is none.
    ValueError: there are several and nothing says which; or `path` is a remote
      address, where nothing has been looked for.
  """
  output_paths.check_local(path)
  if os.path.exists(f"{path}.index"):
    return path
  if not os.path.isdir(path):
    raise FileNotFoundError(
      f"no checkpoint at {path}: {path}.index does not exist; give the "
      "prefix without .index or .data, or the folder."
    )
  # The list may hold paths of the machine that wrote it, so only names count.
  state = tf.train.get_checkpoint_state(path)
  if state and state.model_checkpoint_path:
    name = os.path.basename(state.model_checkpoint_path)
    if os.path.exists(os.path.join(path, f"{name}.index")):
      return os.path.join(path, name)
  for folder in (path, os.path.join(path, _VARIABLES)):
    found = glob.glob(os.path.join(glob.escape(folder), "*.index"))
    if len(found) == 1:
      return found[0][: -len(".index")]
    if found:
      raise ValueError(
        f"{folder} holds {len(found)} checkpoints: give the prefix of one, "
        f"such as {min(found)[: -len('.index')]}."
      )
  raise FileNotFoundError(f"the folder {path} holds no checkpoint.")


def folders_of(prefix: str) -> list[str]:
  """Where the files that belong to a checkpoint may lie, nearest first.

  What lies above is another's, unless the folder's name says that it is only a
  part: variables/ of a SavedModel, or best/ of a run.
  """
  folder = os.path.dirname(os.path.abspath(prefix))
  above, name = os.path.split(folder)
  if name == _VARIABLES:
    return [folder, os.path.join(above, "assets"), above]
  return [folder, above] if name == _BEST else [folder]


def find_only(folders: Sequence[str], *patterns: str) -> str:
  """The only file with such a name in the first folder that has one, or ""."""
  for folder in folders:
    for pattern in patterns:
      found = glob.glob(os.path.join(glob.escape(folder), pattern))
      if len(found) == 1:
        return found[0]
  return ""


def find_tokenizer(
  folders: Sequence[str], lower_case: bool = True
) -> Optional[portable_checkpoint.TokenizerFile]:
  """The tokenizer in the first folder that has one; None if none has."""
  for folder in folders:
    model = find_only([folder], "tokenizer.model", "spiece.model", "*.model")
    if model:
      return portable_checkpoint.TokenizerFile(
        model, "sentencepiece", lower_case
      )
    vocabulary = find_only([folder], "vocab.txt", "vocab*.txt")
    if vocabulary:
      return portable_checkpoint.TokenizerFile(
        vocabulary, "wordpiece", lower_case
      )
  return None


class TensorBundle:
  """The variables of a TensorFlow checkpoint, whose files are whole.

  Attributes:
    shapes: by the names in the file.
  """

  def __init__(self, prefix: str):
    """Reads the index and compares sizes; no value is read.

    Raises:
      ValueError: the files are damaged, cut short or not all there.
    """
    self._prefix = prefix
    try:
      self._reader = tf.train.load_checkpoint(prefix)
    except (tf.errors.OpError, ValueError, RuntimeError) as error:
      raise ValueError(f"{prefix}.index is damaged: copy it again.") from error
    self.shapes = self._reader.get_variable_to_shape_map()
    self._dtypes = self._reader.get_variable_to_dtype_map()
    claimed = sum(
      int(np.prod(shape, dtype=np.int64)) * self._dtypes[name].size
      for name, shape in self.shapes.items()
      if self._dtypes[name] != tf.string
    )
    data = glob.glob(f"{glob.escape(prefix)}.data-*")
    there = sum(map(os.path.getsize, data))
    if claimed > there:
      raise ValueError(
        f"{prefix} says that it holds {claimed:,} bytes, but its data files "
        f"have {there:,}: they were cut short; copy them again."
      )

  def is_weight(self, name: str) -> bool:
    """Whether a variable holds numbers."""
    return self._dtypes[name].is_floating or self._dtypes[name].is_integer

  def get(self, name: str) -> np.ndarray:
    """A value; of floats, <float32>.

    Raises:
      ValueError: it cannot be read.
    """
    try:
      value = self._reader.get_tensor(name)
    except (tf.errors.OpError, ValueError, RuntimeError) as error:
      raise ValueError(
        f"{name} in {self._prefix} cannot be read: the file is damaged; copy "
        "it again."
      ) from error
    if self._dtypes[name].is_floating and value.dtype != np.float32:
      return np.asarray(value, np.float32)
    return value


def write_bundle(prefix: str, tensors: Mapping[str, np.ndarray]) -> None:
  """Writes a checkpoint whose variables have exactly these names.

  Raises:
    OSError: it cannot be written.
  """
  names = sorted(tensors)
  try:
    tf.raw_ops.SaveV2(
      prefix=prefix,
      tensor_names=names,
      shape_and_slices=[""] * len(names),
      tensors=[tf.constant(tensors[name]) for name in names],
    )
  except tf.errors.OpError as error:
    raise OSError(f"{prefix} could not be written: {error.message}") from error
