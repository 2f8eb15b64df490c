"""Loads values into a model, by TF1 names or by attribute paths.

Checkpoints of this package name a variable by its attribute path, such as
model/albert/pooler/kernel.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Mapping, NamedTuple, Optional

import numpy as np
import tensorflow as tf

from official_albert.checkpoints import names, portable

ITERATIONS = "optimizer/iter/.ATTRIBUTES/VARIABLE_VALUE"
# Not a weight: a constant of regressions, see `modeling.ClassificationHead`.
TARGET_SCALE = "classifier/target_scale"
_MODEL = "model/"
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
_SLOT = "/.OPTIMIZER_SLOT/optimizer/"
# The names of a classifier's head in a checkpoint.
_HEAD = ("output_bias", "output_weights")


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
    notes: what was inferred, one sentence each.
    source: the checkpoint, as the user would write it.
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
        f"  read from {self.source}",
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


class Head(NamedTuple):
  """The meaning of the outputs of a model's head.

  Attributes:
    kind: "classification", "regression" or "multiple_choice".
    labels: the names of the classes in the order of the outputs; () if the
      head has none or they are unknown.
  """

  kind: str
  labels: tuple[str, ...] = ()

  def __str__(self) -> str:
    if self.kind == "regression":
      return "a number"
    if self.kind == "multiple_choice":
      return "the options of a question"
    names = f"the classes {', '.join(self.labels)}"
    return names if self.labels else "classes without names"


def _match(stored: Head, head: Head) -> tuple[Optional[list[int]], str]:
  """Matches the rows of a stored head with those of the model's head.

  Returns:
    The indices of the stored rows in the order of `head`, or None if the heads
    do not match; and a sentence for the log.
  """
  kept = f"the head is kept, for {head}"
  unchanged = list(range(max(len(head.labels), 1)))
  if stored.kind == head.kind and not stored.labels:
    if head.kind != "classification":
      return unchanged, kept
    return unchanged, (
      "warning: the checkpoint does not name the classes of its head, which "
      f"is kept: they are taken to be {', '.join(head.labels)}, in this order"
    )
  if stored == head:
    return unchanged, kept
  if stored.kind == head.kind and {*stored.labels} == {*head.labels}:
    return [stored.labels.index(label) for label in head.labels], (
      f"{kept}, whose rows are put in this order; the checkpoint's is for "
      f"{stored}"
    )
  note = f"a new head is trained, for {head}: the checkpoint's is for {stored}"
  if stored.kind == head.kind and len(stored.labels) == len(head.labels):
    note += "; to keep it, give the data the same names"
  return None, note


def fill(
  model: tf.keras.Model,
  checkpoint: portable.PortableCheckpoint,
  head: Optional[Head] = None,
) -> LoadReport:
  """Loads a checkpoint, whose files must still exist, into a model.

  Variables that the checkpoint lacks keep their values. A head of another shape
  belongs to another task and is not loaded. For example, a model for the three
  classes of MNLI may be fine-tuned for the two of RTE.

  Args:
    model: the model (see `tf1_variables`). It must have the checkpoint's
      configuration. If all layers share their weights, the number of layers may
      differ.
    checkpoint: the opened checkpoint.
    head: the meaning of the outputs of a model that will be trained. It is
      compared with that of the checkpoint's head. If the classes are the same,
      their rows are put in this order; a head with another meaning is not read,
      and a regression keeps the scale of its targets. None reads the head
      unchanged.

  Raises:
    ValueError: a shape of the encoder differs, or what its layers share; no
      value is assigned then.
  """
  source = checkpoint.source
  stored = {**checkpoint.others, **checkpoint.tensors}
  variables = tf1_variables(model)
  config = getattr(model, "albert", model).config
  if config.sharing != checkpoint.config.sharing:
    raise ValueError(
      f"{source} has sharing={checkpoint.config.sharing!r}, but the model has "
      f"sharing={config.sharing!r}: choose the same."
    )
  matched, other_shape = list[str](), list[str]()
  for name in sorted({*stored} & {*variables}):
    found, own = list(stored[name].shape), variables[name].shape.as_list()
    if found != own and name.startswith(("bert/", "albert/")):
      raise ValueError(
        f"{name} has shape {found} in {source} but {own} in the model: the "
        "checkpoint is of another size or vocabulary."
      )
    (matched if found == own else other_shape).append(name)
  notes, rows, left_out = list(checkpoint.notes), None, list[str]()
  if head and _HEAD[0] in stored:
    kind = checkpoint.head if checkpoint.head_is_known else head.kind
    rows, note = _match(Head(kind, checkpoint.labels), head)
    if rows is None:
      left_out = [name for name in _HEAD if name in matched]
      matched = [name for name in matched if name not in left_out]
    if rows is None or _HEAD[0] in matched:
      notes.append(note)
  classifier = getattr(model, "classifier", None)
  scale = getattr(classifier, "target_scale", None)
  scaled: Mapping[str, portable.Array] = {}
  if scale is not None and _HEAD[0] in matched:  # A regression.
    own_scale, scaled = scale.numpy(), checkpoint.scaled_head
    classifier.set_target_scale(
      scaled.get(TARGET_SCALE, np.zeros(2)), keep_outputs=False
    )
  for name in matched:
    value = np.asarray(scaled.get(name, stored[name]))
    variables[name].assign(value[rows] if rows and name in _HEAD else value)
  if scale is not None and _HEAD[0] in matched and head:
    # It will be trained on targets of its own scale.
    classifier.set_target_scale(own_scale, keep_outputs=True)
  ignored = {n for n in stored if names.is_slot(n) or n == names.GLOBAL_STEP}
  return LoadReport(
    matched=tuple(matched),
    missing=tuple(sorted({*variables} - {*matched})),
    unexpected=tuple(sorted({*stored} - {*variables} - ignored)),
    ignored=tuple(sorted(ignored)),
    other_shape=tuple(other_shape),
    left_out=tuple(left_out),
    notes=tuple(notes),
    source=checkpoint.shown(source),
  )
