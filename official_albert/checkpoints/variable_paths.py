"""Variables by the attributes on the way to them, as our checkpoints do.

A TensorFlow checkpoint names a variable by the attributes on the way to it,
such as model/albert/pooler/kernel.
"""

from __future__ import annotations

import dataclasses
from typing import Callable, Mapping, Optional, Sequence

import tensorflow as tf

OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
ITERATIONS = "optimizer/iter/.ATTRIBUTES/VARIABLE_VALUE"
_MODEL = "model/"
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
_SLOT = "/.OPTIMIZER_SLOT/optimizer/"


def by_path(model: tf.Module) -> dict[str, tf.Variable]:
  """The model's variables by the names that a checkpoint of ours gives them."""
  entries = {}

  def walk(node, path: tuple[str, ...]) -> None:
    if isinstance(node, tf.Variable):
      entries.setdefault("/".join(path), node)
    elif isinstance(node, (list, tuple)):
      for index, child in enumerate(node):
        walk(child, (*path, str(index)))
    elif isinstance(node, tf.Module):
      for name, child in vars(node).items():
        if not name.startswith("_"):
          walk(child, (*path, name))

  walk(model, ())
  return entries


def tree(variables: Mapping[str, tf.Variable]) -> tf.Module:
  """Modules whose checkpoint is that of a model with these variables."""
  root = tf.Module()
  for path, variable in variables.items():
    *way, name = path.split("/")
    node = root
    for part in way:
      child = getattr(node, part, None)
      if child is None:
        child = tf.Module()
        setattr(node, part, child)
      node = child
    setattr(node, name, variable)
  return root


def path_of(key: str) -> Optional[str]:
  """The path of a weight in its model, as in albert/pooler/kernel.

  Args:
    key: in a checkpoint.

  Returns:
    None if it is the key of no weight.
  """
  is_weight = key.startswith(_MODEL) and key.endswith(_VALUE)
  if not is_weight or "/.OPTIMIZER_SLOT/" in key:
    return None
  return key[len(_MODEL) : -len(_VALUE)]


def key_of(path: str, slot: str = "") -> str:
  """The key of a weight, or of its slot "m" or "v"."""
  return f"{_MODEL}{path}{f'{_SLOT}{slot}' if slot else ''}{_VALUE}"


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
