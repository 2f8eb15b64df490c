"""Reading weights by the names that google-research/albert gave them.

Sources: the variable lists of the released checkpoints; modeling.py and
run_pretraining.py of google-research/albert.
"""

from __future__ import annotations

import itertools
import re

import tensorflow as tf

from official_albert.checkpoints import names as checkpoint_names
from official_albert.checkpoints import variable_paths

# Optimizer state of the original, which a warm start does not read either.
_OPTIMIZER_NAMES = re.compile(r"/(adam|lamb)_[mv]$|^global_step$")


def tf1_variables(model: tf.keras.Model) -> dict[str, tf.Variable]:
  """The model's variables by their TF1 names.

  Args:
    model: an `AlbertModel`, or a model with one as its attribute `albert`; of
      heads, those that names.py has in its table are named.

  Raises:
    ValueError: the model shares only parts of its layers, which no TF1
      checkpoint can express.
  """
  paths = variable_paths.by_path(model)
  if not hasattr(model, "albert"):
    paths = {f"albert/{path}": variable for path, variable in paths.items()}
  config = getattr(model, "albert", model).config
  return {
    row.tf1: paths[row.own]
    for row in (
      *checkpoint_names.encoder_rows(config),
      *itertools.chain.from_iterable(checkpoint_names.HEADS.values()),
    )
    if row.own in paths
  }


def load_tf1_checkpoint(
  model: tf.keras.Model, path: str
) -> variable_paths.LoadReport:
  """Reads a checkpoint of the original into `model`.

  Nothing is assigned unless every shape agrees.

  Args:
    model: see `tf1_variables`.
    path: the checkpoint's prefix, such as ".../model.ckpt-best".

  Returns:
    A report of the names on both sides.

  Raises:
    FileNotFoundError: there is no such checkpoint.
    ValueError: a shape differs (a checkpoint of another size), or no name
      matches at all.
  """
  if not tf.io.gfile.exists(f"{path}.index"):
    raise FileNotFoundError(
      f"no TF1 checkpoint at {path}: {path}.index does not exist; give the "
      "prefix without .index or .data."
    )
  reader = tf.train.load_checkpoint(path)
  stored = {  # Names in a TF1 Hub module start with "module/".
    name[len("module/") :] if name.startswith("module/") else name: name
    for name in reader.get_variable_to_shape_map()
  }
  variables = tf1_variables(model)
  matched = sorted(set(stored) & set(variables))
  if not matched:
    raise ValueError(
      f"{path} holds no variable with an ALBERT name; its first is "
      f"{min(stored)!r}."
    )
  sizes = reader.get_variable_to_shape_map()
  matched, other_shape = variable_paths.split_by_shape(
    matched,
    {name: sizes[stored[name]] for name in matched},
    variables,
    lambda name: not name.startswith("bert/"),
    path,
  )
  for name in matched:
    variables[name].assign(reader.get_tensor(stored[name]))
  ignored = sorted(name for name in stored if _OPTIMIZER_NAMES.search(name))
  return variable_paths.LoadReport(
    matched=tuple(matched),
    missing=tuple(sorted(set(variables) - set(matched))),
    unexpected=tuple(sorted(set(stored) - set(variables) - set(ignored))),
    ignored=tuple(ignored),
    other_shape=tuple(other_shape),
  )
