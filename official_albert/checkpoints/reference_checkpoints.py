"""Reading weights by the names that google-research/albert gave them.

Sources: the variable lists of the released checkpoints; modeling.py and
run_pretraining.py of google-research/albert.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from typing import Callable, Mapping, Sequence

import tensorflow as tf

from official_albert.checkpoints import names as checkpoint_names
from official_albert.checkpoints import variable_paths

# Optimizer state of the original, which a warm start does not read either.
_OPTIMIZER_NAMES = re.compile(r"/(adam|lamb)_[mv]$|^global_step$")


@dataclasses.dataclass(frozen=True)
class LoadReport:
  """What happened to each name on both sides.

  Attributes:
    matched: names that were read into the model.
    missing: names the model has and the checkpoint has not, or with another
      shape; those variables keep their values.
    unexpected: names the checkpoint has and the model has not.
    ignored: the checkpoint's optimizer slots and step.
    other_shape: those of `missing` that belong to a head of another size.
    left_out: those of `missing` that belong to a head for something else.
    notes: what became of the head, if it was compared; a sentence each.
  """

  matched: tuple[str, ...]
  missing: tuple[str, ...]
  unexpected: tuple[str, ...]
  ignored: tuple[str, ...] = ()
  other_shape: tuple[str, ...] = ()
  left_out: tuple[str, ...] = ()
  notes: tuple[str, ...] = ()

  def __str__(self) -> str:
    lines = [
      f"{len(self.matched)} variables matched, {len(self.missing)} missing, "
      f"{len(self.unexpected)} unexpected, {len(self.ignored)} optimizer "
      "variables ignored"
    ]
    lines += [f"  {note}" for note in self.notes]
    lines += [
      f"  of another shape in the checkpoint: {name}"
      if name in self.other_shape
      else f"  left out: {name}"
      if name in self.left_out
      else f"  missing in the checkpoint: {name}"
      for name in self.missing
    ]
    lines += [f"  unexpected in it: {name}" for name in self.unexpected]
    return "\n".join(lines)


def split_by_shape(
  names: Sequence[str],
  stored: Mapping[str, Sequence[int]],
  variables: Mapping[str, tf.Variable],
  is_head: Callable[[str], bool],
  path: str,
) -> tuple[list[str], list[str]]:
  """The names whose shapes agree, and those of heads whose shapes do not.

  A head of another size is that of another task: whoever goes on from MNLI's
  three classes to RTE's two, as the paper does, wants what is below it.

  Args:
    names: that both sides have.
    stored: the checkpoint's shapes, by these names.
    variables: the model's, by these names.
    is_head: whether a name belongs to a head, and not to the encoder.
    path: the checkpoint, for the error.

  Raises:
    ValueError: a shape below the heads differs.
  """
  own = {name: variables[name].shape.as_list() for name in names}
  differing = [name for name in names if list(stored[name]) != own[name]]
  for name in differing:
    if not is_head(name):
      raise ValueError(
        f"{name} has shape {list(stored[name])} in {path} but {own[name]} in "
        "the model: the checkpoint is of another size or vocabulary."
      )
  return [name for name in names if name not in differing], differing


def tf1_variables(model: tf.keras.Model) -> dict[str, tf.Variable]:
  """The model's variables by their TF1 names.

  Args:
    model: an `AlbertModel`, or a model with one as its attribute `albert`; of
      heads, those that checkpoint_names.py has in its table are named.

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


def load_tf1_checkpoint(model: tf.keras.Model, path: str) -> LoadReport:
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
  matched, other_shape = split_by_shape(
    matched,
    {name: sizes[stored[name]] for name in matched},
    variables,
    lambda name: not name.startswith("bert/"),
    path,
  )
  for name in matched:
    variables[name].assign(reader.get_tensor(stored[name]))
  ignored = sorted(name for name in stored if _OPTIMIZER_NAMES.search(name))
  return LoadReport(
    matched=tuple(matched),
    missing=tuple(sorted(set(variables) - set(matched))),
    unexpected=tuple(sorted(set(stored) - set(variables) - set(ignored))),
    ignored=tuple(ignored),
    other_shape=tuple(other_shape),
  )
