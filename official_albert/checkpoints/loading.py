"""Loading weights by their TF1 names into a model.

Sources: the variable lists of the released checkpoints; modeling.py and
run_pretraining.py of google-research/albert.
"""

from __future__ import annotations

import itertools
from typing import Callable, Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from official_albert.checkpoints import (
  checkpoint_files,
  names,
  variable_paths,
)

_MODULE = "module/"


def tf1_variables(model: tf.keras.Model) -> dict[str, tf.Variable]:
  """Returns the model's variables by their TF1 names.

  Args:
    model: an `AlbertModel`, or a model that has one as its attribute `albert`.
      Of its heads, those in `names.HEADS` are included.

  Raises:
    ValueError: the layers share less than everything, for which TF1 has no
      names.
  """
  paths = own_variables(model)
  config = getattr(model, "albert", model).config
  heads = itertools.chain.from_iterable(names.HEADS.values())
  return {
    row.tf1: paths[row.own]
    for row in (*names.encoder_rows(config), *heads)
    if row.own in paths
  }


def own_variables(model: tf.keras.Model) -> dict[str, tf.Variable]:
  """Returns the variables by attribute path in a model with an `albert`."""
  prefix = "" if hasattr(model, "albert") else "albert/"
  paths = variable_paths.by_path(model)
  return {f"{prefix}{path}": variable for path, variable in paths.items()}


def tf1_names(stored: Iterable[str]) -> dict[str, str]:
  """Returns the names in a TF1 checkpoint by the names of the releases.

  Names in a TF1 Hub module begin with "module/".
  """
  return {name.removeprefix(_MODULE): name for name in stored}


def load_tf1_checkpoint(
  model: tf.keras.Model, path: str
) -> variable_paths.LoadReport:
  """Loads a checkpoint of google-research/albert into a model.

  Nothing is assigned unless all shapes of the encoder agree.

  Args:
    model: see `tf1_variables`.
    path: the checkpoint's prefix, such as ".../model.ckpt-best".

  Returns:
    A report of the names on both sides.

  Raises:
    FileNotFoundError: there is no such checkpoint.
    ValueError: the checkpoint is damaged, a shape of the encoder differs, or
      no name matches.
  """
  if not tf.io.gfile.exists(f"{path}.index"):
    raise FileNotFoundError(
      f"no TF1 checkpoint at {path}: {path}.index does not exist; give the "
      "prefix without .index or .data."
    )
  bundle = checkpoint_files.TensorBundle(path)
  stored = tf1_names(bundle.shapes)
  report = assign(
    tf1_variables(model),
    {name: bundle.shapes[key] for name, key in stored.items()},
    lambda name: bundle.get(stored[name]),
    path,
  )
  if not report.matched and not report.other_shape:
    raise ValueError(
      f"{path} holds no variable with an ALBERT name; its first is "
      f"{min(stored)!r}."
    )
  return report


def is_head(name: str) -> bool:
  """Returns whether a TF1 name or a path belongs to a head."""
  return not name.startswith(("bert/", "albert/"))


def assign(
  variables: Mapping[str, tf.Variable],
  shapes: Mapping[str, Sequence[int]],
  load: Callable[[str], np.ndarray],
  path: str,
) -> variable_paths.LoadReport:
  """Assigns stored values to the variables of the same names.

  Args:
    variables: by name.
    shapes: of the stored values, by name.
    load: returns a value.
    path: of the checkpoint, for the error message.

  Raises:
    ValueError: a shape of the encoder differs; nothing is assigned.
  """
  both = sorted(set(shapes) & set(variables))
  matched, other_shape = variable_paths.split_by_shape(
    both, shapes, variables, is_head, path
  )
  for name in matched:
    variables[name].assign(load(name))
  ignored = {n for n in shapes if names.is_slot(n) or n == names.GLOBAL_STEP}
  return variable_paths.LoadReport(
    matched=tuple(matched),
    missing=tuple(sorted(set(variables) - set(matched))),
    unexpected=tuple(sorted(set(shapes) - set(variables) - ignored)),
    ignored=tuple(sorted(ignored)),
    other_shape=tuple(other_shape),
  )
