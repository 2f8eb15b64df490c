"""Loads values into a model, by TF1 names or by attribute paths.

Checkpoints of this package name a variable by its attribute path, such as
model/albert/pooler/kernel.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Mapping, Optional

import numpy as np
import tensorflow as tf

from official_albert.checkpoints import names, portable

ITERATIONS = "optimizer/iter/.ATTRIBUTES/VARIABLE_VALUE"
# Not a weight: a constant of regressions, see `modeling.ClassificationHead`.
TARGET_SCALE = "classifier/target_scale"
_MODEL = "model/"
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
_SLOT = "/.OPTIMIZER_SLOT/optimizer/"


def by_path(model: tf.Module) -> dict[str, tf.Variable]:
  """Returns the model's weights by attribute path, as in albert/pooler/bias.

  A variable that several attributes share is listed under each.
  """
  entries: dict[str, tf.Variable] = {}

  def walk(node: Any, path: tuple[str, ...]) -> None:
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
  entries.pop(TARGET_SCALE, None)
  return entries


def tree(variables: Mapping[str, tf.Variable]) -> tf.Module:
  """Returns nested modules whose variables have these attribute paths."""
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
  """Returns the attribute path of a weight, or None for other keys."""
  key = key.replace(".S", "/")  # How TensorFlow writes "/" within a name.
  is_weight = key.startswith(_MODEL) and key.endswith(_VALUE)
  if not is_weight or "/.OPTIMIZER_SLOT/" in key:
    return None
  return key[len(_MODEL) : -len(_VALUE)]


def name_variables(
  module: Any, model: Mapping[str, Optional[tf.Module]]
) -> None:
  """Makes TensorFlow save the weights of a module by their attribute paths.

  TensorFlow names a variable by its shortest path, which may be one such as
  `variables/7`. So each becomes an attribute of the module itself, which is
  named model/albert/pooler/kernel.

  Args:
    module: the object that will be saved.
    model: the parts of the model, by their names in it; None for no such part.
  """
  for part, layer in model.items():
    for path, variable in (by_path(layer) if layer else {}).items():
      setattr(module, f"{_MODEL}{part}/{path}", variable)


def key_of(path: str, slot: str = "") -> str:
  """Returns the key of a weight, or of its optimizer slot "m" or "v"."""
  return f"{_MODEL}{path}{f'{_SLOT}{slot}' if slot else ''}{_VALUE}"


@dataclasses.dataclass(frozen=True)
class LoadReport:
  """The names of variables in the checkpoint and in the model.

  Attributes:
    matched: names that were loaded into the model.
    missing: names in the model that were not loaded.
    unexpected: names in the checkpoint that the model lacks.
    ignored: the checkpoint's optimizer slots and step.
    other_shape: names in `missing` whose checkpoint value has another shape.
    left_out: names in `missing` that belong to a head for another task.
    notes: one sentence for each decision about the head.
    source: the checkpoint, as the user would write it; "" if not a choice.
  """

  matched: tuple[str, ...]
  missing: tuple[str, ...]
  unexpected: tuple[str, ...]
  ignored: tuple[str, ...] = ()
  other_shape: tuple[str, ...] = ()
  left_out: tuple[str, ...] = ()
  notes: tuple[str, ...] = ()
  source: str = ""

  def __str__(self) -> str:
    reasons = {
      **dict.fromkeys(self.missing, "missing in the checkpoint"),
      **dict.fromkeys(self.left_out, "left out"),
      **dict.fromkeys(self.other_shape, "of another shape in the checkpoint"),
    }
    return "\n".join(
      [
        f"{len(self.matched)} variables matched, {len(self.missing)} missing, "
        f"{len(self.unexpected)} unexpected, {len(self.ignored)} optimizer "
        "variables ignored",
        *([f"  read from {self.source}"] if self.source else []),
        *(f"  {note}" for note in self.notes),
        *(f"  {reasons[name]}: {name}" for name in self.missing),
        *(f"  unexpected in it: {name}" for name in self.unexpected),
      ]
    )


def tf1_variables(model: tf.keras.Model) -> dict[str, tf.Variable]:
  """Returns the variables of a model by their TF1 names.

  Those of unknown heads have attribute paths. The model is an `AlbertModel`, or
  has one as its attribute `albert`.
  """
  prefix = "" if hasattr(model, "albert") else "albert/"
  paths = {f"{prefix}{path}": x for path, x in by_path(model).items()}
  rows = names.all_rows(getattr(model, "albert", model).config)
  found = {row.tf1: paths.pop(row.own) for row in rows if row.own in paths}
  return {**found, **paths}


def _is_head(name: str) -> bool:
  return not name.startswith(("bert/", "albert/"))


def fill(
  model: tf.keras.Model, checkpoint: portable.PortableCheckpoint
) -> LoadReport:
  """Loads a checkpoint, whose files must still exist, into a model.

  A head of another shape belongs to another task and is not loaded. For
  example, a model for the three classes of MNLI may be fine-tuned for the two
  of RTE.

  The model (see `tf1_variables`) must have the checkpoint's configuration. If
  all layers share their weights, the number of layers may differ.

  Raises:
    ValueError: a shape of the encoder differs, or no name matches; no value is
      assigned then.
  """
  source, tensors = checkpoint.source, checkpoint.tensors
  variables = tf1_variables(model)
  matched, other_shape = list[str](), list[str]()
  for name in sorted(set(tensors) & set(variables)):
    found, own = list(tensors[name].shape), variables[name].shape.as_list()
    if found != own and not _is_head(name):
      raise ValueError(
        f"{name} has shape {found} in {source} but {own} in the model: the "
        "checkpoint is of another size or vocabulary."
      )
    (matched if found == own else other_shape).append(name)
  if not matched:
    raise ValueError(portable.no_albert(tensors, source))
  head = getattr(model, "classifier", None)
  scaled: Mapping[str, portable.Array] = {}
  if (
    "output_weights" in matched
    and getattr(head, "target_scale", None) is not None
  ):  # A regression.
    scaled = checkpoint.scaled_head
    head.set_target_scale(
      scaled.get(TARGET_SCALE, np.zeros(2)), keep_outputs=False
    )
  for name in matched:
    variables[name].assign(np.asarray(scaled.get(name, tensors[name])))
  left = checkpoint.unexpected
  ignored = {n for n in tensors if names.is_slot(n) or n == names.GLOBAL_STEP}
  ignored |= {n for n in left if left[n] == portable.OPTIMIZER_STATE}
  return LoadReport(
    matched=tuple(matched),
    missing=tuple(sorted(set(variables) - set(matched))),
    unexpected=tuple(sorted({*tensors, *left} - set(variables) - ignored)),
    ignored=tuple(sorted(ignored)),
    other_shape=tuple(other_shape),
  )
