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
    missing: names in the model that were not loaded: the checkpoint lacks them,
      has them in another shape, or for another task.
    unexpected: names in the checkpoint that the model lacks, without optimizer
      state.
    notes: what was inferred, one sentence each.
    source: the checkpoint, as the user would write it.
  """

  matched: tuple[str, ...]
  missing: tuple[str, ...]
  unexpected: tuple[str, ...]
  notes: tuple[str, ...] = ()
  source: str = ""

  def __str__(self) -> str:
    return "\n".join(
      [
        f"{len(self.matched)} variables matched, {len(self.missing)} missing, "
        f"{len(self.unexpected)} unexpected",
        f"  read from {self.source}",
        *(f"  {note}" for note in self.notes),
        *(f"  not loaded: {name}" for name in self.missing),
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
  same_kind = stored.kind == head.kind
  if same_kind and {*stored.labels} == {*head.labels}:
    return [*map(stored.labels.index, head.labels)] or [0], (
      f"the head is kept, for {head}; in the checkpoint, it is for {stored}"
    )
  if same_kind and not stored.labels:
    return [*range(len(head.labels))], (
      "warning: the checkpoint does not name the classes of its head, which "
      f"is kept: they are taken to be {', '.join(head.labels)}, in this order"
    )
  note = f"a new head is trained, for {head}: the checkpoint's is for {stored}"
  if same_kind and len(stored.labels) == len(head.labels):
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
  stored = checkpoint.tensors
  variables = tf1_variables(model)
  config = getattr(model, "albert", model).config
  if config.sharing != checkpoint.config.sharing:
    raise ValueError(
      f"{source} has sharing={checkpoint.config.sharing!r}, but the model has "
      f"sharing={config.sharing!r}: choose the same."
    )
  matched = []
  for name in sorted({*stored} & {*variables}):
    found, own = list(stored[name].shape), variables[name].shape.as_list()
    if found == own:
      matched.append(name)
    elif name.startswith(("bert/", "albert/")):
      raise ValueError(
        f"{name} has shape {found} in {source} but {own} in the model: the "
        "checkpoint is of another size or vocabulary."
      )
  notes, rows = list(checkpoint.notes), None
  if head and _HEAD[0] in stored:
    rows, note = _match(Head(checkpoint.head, checkpoint.labels), head)
    if rows is None:
      matched = [name for name in matched if name not in _HEAD]
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
  return LoadReport(
    matched=tuple(matched),
    missing=tuple(sorted({*variables} - {*matched})),
    unexpected=tuple(
      name
      for name in sorted({*stored} - {*variables} - {names.GLOBAL_STEP})
      if not names.is_slot(name)
    ),
    notes=tuple(notes),
    source=checkpoint.shown(source),
  )
