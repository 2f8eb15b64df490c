"""Finding the files of a checkpoint, and reading and writing TF checkpoints."""

from __future__ import annotations

import glob
import json
import os
import re
from typing import Mapping, Optional, Sequence

import numpy as np
import tensorflow as tf

from official_albert import files, training
from official_albert.checkpoints import variable_paths

CONFIG_FILE = "albert_config.json"
HF_CONFIG_FILE = "config.json"
# Written by --seeds of tools.run_finetuning above the folders of its runs.
SUMMARY_FILE = "summary.json"
LATEST, BEST = "latest", "best"
_VARIABLES = "variables"
_INDEX = ".index"
_DAMAGED = "damaged-"  # training.CheckpointManager renames unreadable files.
_NUMBERED = re.compile(r"(.*)-([0-9]+)$")


def seed_folder(folder: str, seed: int) -> str:
  """Returns the folder of one of several runs with different seeds."""
  return os.path.join(folder, f"seed_{seed}")


def run_folder(path: str) -> str:
  """Returns the best run's folder if `path` holds several seeds, else `path`.

  Raises:
    ValueError: the summary of the seeds is not valid JSON.
  """
  summary_file = os.path.join(path, SUMMARY_FILE)
  if not os.path.exists(summary_file):
    return path
  with open(summary_file, encoding="utf-8") as file:
    try:
      summary = json.load(file)
    except ValueError as error:
      raise ValueError(f"{summary_file} is not valid JSON: {error}.") from error
  if len(summary["seeds"]) < 2:
    return path
  return seed_folder(path, summary["best_seed"])


def find_prefix(path: str, checkpoint: str = "") -> str:
  """Returns the prefix of the TensorFlow checkpoint at a path.

  Args:
    path: a prefix; the folder of a run, or of a run with several seeds, whose
      best one is taken; another folder with one checkpoint; or the folder of a
      SavedModel, whose variables/ are taken.
    checkpoint: in a folder, `LATEST`, `BEST` or a prefix. "" is the best
      checkpoint if the run keeps one, else the latest.

  Raises:
    FileNotFoundError: there is no checkpoint.
    ValueError: there are several checkpoints and none is the latest, `path`
      is a prefix and `checkpoint` is given too, or `path` is a remote address.
  """
  if checkpoint not in ("", LATEST, BEST):
    path, checkpoint = checkpoint, ""
  files.check_local(path)
  if tf.io.gfile.exists(f"{path}{_INDEX}"):
    if checkpoint:
      raise ValueError(
        f"{path} is one checkpoint, and --checkpoint={checkpoint} chooses one "
        "in the folder of a run: leave it out, or give the run's folder."
      )
    return path
  if not tf.io.gfile.isdir(path):
    raise FileNotFoundError(
      f"no checkpoint at {path}: {path}.index does not exist; give the "
      "prefix without .index or .data, or the folder."
    )
  path = run_folder(path)
  if checkpoint != LATEST:
    best = training.read_best(path)
    if best:
      return training.best_prefix(path, best)
    if checkpoint == BEST:
      raise FileNotFoundError(
        f"{path} keeps no best checkpoint, because it was trained without "
        "--eval_steps: give --checkpoint=latest."
      )
  return _latest(path)


def is_best(prefix: str) -> bool:
  """Returns whether a checkpoint is the best one of a run."""
  return os.path.basename(os.path.dirname(prefix)) == training.BEST_FOLDER


def step_of_best(prefix: str) -> Optional[int]:
  """Returns the step of a run's best checkpoint, which holds only weights.

  Returns:
    None if `prefix` is not a best checkpoint.
  """
  if not is_best(prefix):
    return None
  run = os.path.dirname(os.path.dirname(prefix))
  record = training.read_best(run)
  if record and training.best_prefix(run, record) == prefix:
    return record["step"]
  return None


def _latest(path: str) -> str:
  # Paths in the file `checkpoint` may be those of another machine: only the
  # names are used.
  state = tf.train.get_checkpoint_state(path)
  if state and state.model_checkpoint_path:
    prefix = os.path.join(path, os.path.basename(state.model_checkpoint_path))
    if tf.io.gfile.exists(f"{prefix}{_INDEX}"):
      return prefix
  for folder in (path, os.path.join(path, _VARIABLES)):
    if not tf.io.gfile.isdir(folder):
      continue
    names = [
      name[: -len(_INDEX)]
      for name in tf.io.gfile.listdir(folder)
      if name.endswith(_INDEX) and not name.startswith(_DAMAGED)
    ]
    numbered = list(filter(None, map(_NUMBERED.fullmatch, names)))
    one_stem = len({match[1] for match in numbered}) == 1
    if names and len(numbered) == len(names) and one_stem:
      names = [max(numbered, key=lambda match: int(match[2]))[0]]
    if len(names) > 1:
      raise ValueError(
        f"{folder} holds {len(names)} checkpoints: give the prefix of one, "
        f"such as {os.path.join(folder, min(names))}."
      )
    if names:
      return os.path.join(folder, names[0])
  raise FileNotFoundError(f"the folder {path} holds no checkpoint.")


def folders_of(prefix: str) -> list[str]:
  """Returns the folders to search for a checkpoint's other files, in order.

  That is the folder of the checkpoint. Folders above it belong to something
  else, except above variables/ of a SavedModel and best/ of a run.
  """
  folder = os.path.dirname(os.path.abspath(prefix))
  above, name = os.path.split(folder)
  if name == _VARIABLES:
    return [folder, os.path.join(above, "assets"), above]
  return [folder, above] if name == training.BEST_FOLDER else [folder]


def find_only_file(folders: Sequence[str], *patterns: str) -> str:
  """Returns the first file that is the only match of a pattern in a folder.

  Args:
    folders: searched in order.
    patterns: tried in order, in each folder.

  Returns:
    "" if there is no such file.
  """
  for folder in folders:
    for pattern in patterns:
      found = glob.glob(os.path.join(glob.escape(folder), pattern))
      if len(found) == 1:
        return found[0]
  return ""


class TensorBundle:
  """Reads the variables of a TensorFlow checkpoint.

  Attributes:
    shapes: by the names in the file.
  """

  def __init__(self, prefix: str):
    """Reads the index and checks the size of the data; reads no values.

    Raises:
      ValueError: the files are damaged, truncated or incomplete.
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
    folder, name = os.path.split(prefix)
    actual = sum(
      tf.io.gfile.stat(os.path.join(folder, file)).length
      for file in tf.io.gfile.listdir(folder or ".")
      if file.startswith(f"{name}.data-")
    )
    if claimed > actual:
      raise ValueError(
        f"{prefix}.index lists {claimed:,} bytes, but the data files hold "
        f"{actual:,}: they are truncated; copy them again."
      )

  @property
  def is_object_based(self) -> bool:
    """Whether a TF2 `tf.train.Checkpoint` wrote it, as this package does."""
    return variable_paths.OBJECT_GRAPH in self.shapes

  def is_weight(self, name: str) -> bool:
    """Returns whether a variable holds numbers."""
    return self._dtypes[name].is_floating or self._dtypes[name].is_integer

  def get(self, name: str) -> np.ndarray:
    """Returns a value; floating point values as <float32>.

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
    if self._dtypes[name].is_floating:
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
