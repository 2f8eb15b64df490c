"""Variables by the attributes on the way to them, as our checkpoints do.

A TensorFlow checkpoint names a variable by the attributes on the way to it,
such as model/albert/pooler/kernel.
"""

from __future__ import annotations

from typing import Mapping, Optional

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
