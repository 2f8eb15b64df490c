"""Where the parts of a checkpoint lie: values, configuration, tokenizer."""

from __future__ import annotations

import glob
import json
import os
import re
from typing import Mapping, Optional, Sequence

import numpy as np
import tensorflow as tf

from official_albert import files, training
from official_albert.checkpoints import portable as portable_checkpoint

CONFIG_FILE = "albert_config.json"
# What --seeds of tools.run_finetuning leaves above its runs.
SUMMARY_FILE = "summary.json"
LATEST, BEST = "latest", "best"
_VARIABLES = "variables"
_INDEX = ".index"
_DAMAGED = "damaged-"  # As checkpoints.py renames what it cannot read.
_NUMBERED = re.compile(r"(.*)-([0-9]+)$")


def seed_folder(folder: str, seed: int) -> str:
  """Where one of several runs goes."""
  return os.path.join(folder, f"seed_{seed}")


def run_folder(path: str) -> str:
  """The folder of the run that `path` means: of several seeds, the best one.

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
  """The prefix of the TensorFlow checkpoint that `path` means.

  Every program that takes a run asks here.

  Args:
    path: a prefix; the folder of a run, or of several seeds of one, the best
      of which is taken; another folder with a checkpoint; or one of a
      SavedModel, whose variables/ are taken.
    checkpoint: of a folder, `LATEST`, `BEST`, or a prefix itself. "": the best
      if the run keeps one, else the latest.

  Raises:
    FileNotFoundError: there is none.
    ValueError: there are several and nothing says which, `path` names one
      checkpoint and `checkpoint` another, or it is a remote address, where
      nothing has been looked for.
  """
  if checkpoint not in ("", LATEST, BEST):
    path, checkpoint = checkpoint, ""
  files.check_local(path)
  if tf.io.gfile.exists(f"{path}{_INDEX}"):
    if checkpoint:
      raise ValueError(
        f"{path} is one checkpoint, and --checkpoint={checkpoint} chooses one "
        "of a run: leave it out, or name the run's folder."
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
        f"{path} keeps no best checkpoint, as it was trained without "
        "--eval_steps: give --checkpoint=latest."
      )
  return _latest(path)


def is_best(prefix: str) -> bool:
  """Whether a checkpoint lies where a run keeps its best."""
  return os.path.basename(os.path.dirname(prefix)) == training.BEST_FOLDER


def step_of_best(prefix: str) -> Optional[int]:
  """The step of a run's best checkpoint, which holds weights only.

  Returns:
    None if `prefix` is not one.
  """
  if not is_best(prefix):
    return None
  run = os.path.dirname(os.path.dirname(prefix))
  record = training.read_best(run)
  is_it = record and training.best_prefix(run, record) == prefix
  return record["step"] if is_it else None


def _latest(path: str) -> str:
  # The list may hold paths of the machine that wrote it, so only names count.
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
  """Where the files that belong to a checkpoint may lie, nearest first.

  What lies above is another's, unless the folder's name says that it is only a
  part: variables/ of a SavedModel, or best/ of a run.
  """
  folder = os.path.dirname(os.path.abspath(prefix))
  above, name = os.path.split(folder)
  if name == _VARIABLES:
    return [folder, os.path.join(above, "assets"), above]
  return [folder, above] if name == training.BEST_FOLDER else [folder]


def find_only_file(folders: Sequence[str], *patterns: str) -> str:
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
    model = find_only_file(
      [folder], "tokenizer.model", "spiece.model", "*.model"
    )
    if model:
      return portable_checkpoint.TokenizerFile(
        model, "sentencepiece", lower_case
      )
    vocabulary = find_only_file([folder], "vocab.txt", "vocab*.txt")
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
