"""Loads values into a model, by TF1 names or by attribute paths.

Checkpoints of this package name a variable by its attribute path, such as
model/albert/pooler/kernel.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Mapping, Optional, Sequence

import numpy as np
import tensorflow as tf

from official_albert import runs
from official_albert.checkpoints import names, portable, tensor_bundle

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


def split_by_shape(
  names: Sequence[str],
  stored: Mapping[str, Sequence[int]],
  variables: Mapping[str, tf.Variable],
  is_head: Callable[[str], bool],
  path: str,
) -> tuple[list[str], list[str]]:
  """Splits common names into those of equal shapes, and heads of other shapes.

  A head of another shape belongs to another task. For example, a model for the
  three classes of MNLI may be fine-tuned for the two of RTE. Then only the
  encoder is loaded. `stored` are the shapes in the checkpoint at `path`.

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


def own_variables(model: tf.keras.Model) -> dict[str, tf.Variable]:
  """Returns a model's variables by path, the encoder's under "albert/"."""
  prefix = "" if hasattr(model, "albert") else "albert/"
  paths = by_path(model)
  return {f"{prefix}{path}": variable for path, variable in paths.items()}


def tf1_variables(model: tf.keras.Model) -> dict[str, tf.Variable]:
  """Returns the variables of encoder and known heads by their TF1 names.

  The model is an `AlbertModel`, or has one as its attribute `albert`.

  Raises:
    ValueError: the layers of a group do not share all weights.
  """
  paths = own_variables(model)
  rows = names.all_rows(getattr(model, "albert", model).config)
  return {row.tf1: paths[row.own] for row in rows if row.own in paths}


def _is_head(name: str) -> bool:
  return not name.startswith(("bert/", "albert/"))


def load_tf1_checkpoint(model: tf.keras.Model, path: str) -> LoadReport:
  """Loads a checkpoint of google-research/albert into a model.

  >>> from official_albert import AlbertConfig, AlbertModel
  >>> from official_albert.checkpoints import load_tf1_checkpoint
  >>> config = AlbertConfig.from_json_file("albert_toy/albert_config.json")
  >>> model = AlbertModel(config)
  >>> report = load_tf1_checkpoint(model, "albert_toy/model.ckpt-best")
  >>> report.missing
  ()

  For the model see `tf1_variables`.

  Raises:
    FileNotFoundError: there is no such checkpoint.
    OSError: it is damaged or cannot be read.
    ValueError: a shape of the encoder differs, or no name matches.
  """
  return fill(model, open_tf1(model, path))


def open_tf1(model: tf.keras.Model, path: str) -> portable.PortableCheckpoint:
  """Opens all values of a TF1 checkpoint for a model of its configuration.

  For the arguments and errors see `load_tf1_checkpoint`.
  """
  path = runs.find_prefix(path)
  config = getattr(model, "albert", model).config
  values = tf1_values(tensor_bundle.TensorBundle(path))
  if not set(values) & set(tf1_variables(model)):
    raise ValueError(
      f"{path} holds no variable with an ALBERT name; its first is "
      f"{min(values, default='')!r:.80}."
    )
  return portable.PortableCheckpoint(path, config, values, "none")


def tf1_values(
  bundle: tensor_bundle.TensorBundle,
) -> dict[str, tensor_bundle.LazyArray]:
  """Returns values by TF1 names, which begin with "module/" in a module."""
  return {n.removeprefix("module/"): x for n, x in bundle.values.items()}


def set_target_scale(model: tf.keras.Model, scale: np.ndarray) -> bool:
  """Sets the scale of a regression's targets; False if a model has none."""
  head = getattr(model, "classifier", None)
  if getattr(head, "target_scale", None) is None:
    return False
  head.set_target_scale(scale, keep_outputs=False)
  return True


def fill(
  model: tf.keras.Model, checkpoint: portable.PortableCheckpoint
) -> LoadReport:
  """Loads a checkpoint, whose files must still exist, into a model.

  The model (see `tf1_variables`) must have the checkpoint's configuration. If
  all layers share their weights, the number of layers may differ.

  Raises:
    ValueError: a shape of the encoder differs (no value is assigned then); or
      the layers of a group do not share all weights and a weight of the
      encoder is missing, or there is one more.
  """
  source, tensors = checkpoint.source, checkpoint.tensors
  shapes = {name: value.shape for name, value in tensors.items()}
  is_shared = checkpoint.config.sharing == "all"
  variables = tf1_variables(model) if is_shared else own_variables(model)
  matched, other_shape = split_by_shape(
    sorted(set(shapes) & set(variables)), shapes, variables, _is_head, source
  )
  scaled = checkpoint.scaled_head
  if not any(name.endswith("output_weights") for name in matched) or (
    not set_target_scale(model, scaled.get(TARGET_SCALE, np.zeros(2)))
  ):
    scaled = {}
  for name in matched:
    variables[name].assign(np.asarray(scaled.get(name, tensors[name])))
  missing = sorted(set(variables) - set(matched))
  lacking = [name for name in missing if not _is_head(name)]
  if lacking and not is_shared:
    raise ValueError(
      f"{source} lacks {lacking[0]}: it is incomplete, or of another "
      "configuration."
    )
  surplus = [n for n in sorted(set(shapes) - set(variables)) if not _is_head(n)]
  if surplus and not is_shared:
    raise ValueError(portable.not_in_encoder(surplus[0], source))
  left = checkpoint.unexpected
  ignored = {n for n in shapes if names.is_slot(n) or n == names.GLOBAL_STEP}
  ignored |= {n for n in left if left[n] == portable.OPTIMIZER_STATE}
  return LoadReport(
    matched=tuple(matched),
    missing=tuple(missing),
    unexpected=tuple(sorted({*shapes, *left} - set(variables) - ignored)),
    ignored=tuple(sorted(ignored)),
    other_shape=tuple(other_shape),
  )
