"""Names of variables in our checkpoints.

A TensorFlow checkpoint names a variable by its attribute path, such as
model/albert/pooler/kernel.
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
  """Returns the model's variables by attribute path, as in albert/pooler/bias.

  A variable that several attributes share is listed under each.
  """
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
  """Returns nested modules that are saved under the same keys as a model.

  Args:
    variables: by attribute path.
  """
  root = tf.Module()
  for path, variable in variables.items():
    *parents, name = path.split("/")
    node = root
    for parent in parents:
      if not hasattr(node, parent):
        setattr(node, parent, tf.Module())
      node = getattr(node, parent)
    setattr(node, name, variable)
  return root


def path_of(key: str) -> Optional[str]:
  """Returns the attribute path of a weight, as in albert/pooler/kernel.

  Args:
    key: a key of a checkpoint.

  Returns:
    None if the key is not that of a weight.
  """
  is_weight = key.startswith(_MODEL) and key.endswith(_VALUE)
  if not is_weight or "/.OPTIMIZER_SLOT/" in key:
    return None
  return key[len(_MODEL) : -len(_VALUE)]


def key_of(path: str, slot: str = "") -> str:
  """Returns the key of a weight, or of its optimizer slot "m" or "v"."""
  return f"{_MODEL}{path}{f'{_SLOT}{slot}' if slot else ''}{_VALUE}"


@dataclasses.dataclass(frozen=True)
class LoadReport:
  """The names of variables in the checkpoint and in the model.

  Attributes:
    matched: names that were loaded into the model.
    missing: names in the model that the checkpoint lacks or has with another
      shape; those variables keep their values.
    unexpected: names in the checkpoint that the model lacks.
    ignored: the checkpoint's optimizer slots and step.
    other_shape: the names in `missing` that the checkpoint has with another
      shape; heads only.
    left_out: the names in `missing` that belong to a head for another purpose.
    notes: what was done with the head, one sentence each.
  """

  matched: tuple[str, ...]
  missing: tuple[str, ...]
  unexpected: tuple[str, ...]
  ignored: tuple[str, ...] = ()
  other_shape: tuple[str, ...] = ()
  left_out: tuple[str, ...] = ()
  notes: tuple[str, ...] = ()

  def __str__(self) -> str:
    reasons = {
      **dict.fromkeys(self.left_out, "left out"),
      **dict.fromkeys(self.other_shape, "of another shape in the checkpoint"),
    }
    return "\n".join(
      [
        f"{len(self.matched)} variables matched, {len(self.missing)} missing, "
        f"{len(self.unexpected)} unexpected, {len(self.ignored)} optimizer "
        "variables ignored",
        *(f"  {note}" for note in self.notes),
        *(
          f"  {reasons.get(name, 'missing in the checkpoint')}: {name}"
          for name in self.missing
        ),
        *(f"  unexpected in it: {name}" for name in self.unexpected),
      ]
    )


def split_by_shape(
  names: Sequence[str],
  stored: Mapping[str, Sequence[int]],
  variables: Mapping[str, tf.Variable],
  is_head: Callable[[str], bool],
  path: str,
) -> tuple[list[str], list[str]]:
  """Splits names into those of equal shapes, and heads of other shapes.

  A head of another shape belongs to another task, as when a model for MNLI's
  three classes is fine-tuned for RTE's two: only the encoder is wanted.

  Args:
    names: the names that checkpoint and model have in common.
    stored: the checkpoint's shapes by name.
    variables: the model's variables by name.
    is_head: whether a name belongs to a head rather than to the encoder.
    path: of the checkpoint, for the error message.

  Raises:
    ValueError: a shape of the encoder differs.
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
