"""Starts a model from the weights of another one, in any format."""

from __future__ import annotations

import dataclasses
from typing import Any, Iterable, NamedTuple, Optional

import numpy as np
import tensorflow as tf

from official_albert import runs
from official_albert.checkpoints import (
  formats,
  loading,
  portable,
  tensor_bundle,
)

# The names of a classifier's head in a checkpoint.
_NAMES = ("output_weights", "output_bias")


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


def warm_start(
  model: tf.keras.Model, path: str, head: Optional[Head] = None
) -> loading.LoadReport:
  """Reads the weights of a model from a checkpoint, without optimizer state.

  Variables that the checkpoint lacks keep their values.

  Args:
    model: the model.
    path: a checkpoint of any format; see `AlbertModel.from_checkpoint`.
    head: the meaning of the model's outputs. It is compared with that of the
      checkpoint's head. If the classes are the same, their rows are put in
      this order; a head with another meaning is not read. None reads the head
      unchanged.

  Raises:
    FileNotFoundError: the checkpoint does not exist.
    OSError: it is damaged or cannot be read.
    ValueError: a shape differs, or no name matches.
  """
  # That of the run's own targets, if it trains.
  classifier = getattr(model, "classifier", None)
  scale = getattr(classifier, "target_scale", None)
  own_scale = None if scale is None else scale.numpy()
  with formats.located(path) as found:
    if found.format == "official_albert":
      report = _from_own(model, found.weights, head)
    else:
      checkpoint = (
        formats.read(found)
        if found.format == "hf"
        else loading.open_tf1(model, found.weights)
      )
      changes = choose_head(checkpoint, head) if head else {}
      report = dataclasses.replace(loading.fill(model, checkpoint), **changes)
      notes = (*portable.notes_about(checkpoint), *report.notes)
      report = dataclasses.replace(report, notes=notes)
    report = dataclasses.replace(report, source=found.shown(found.weights))
  if head and own_scale is not None and _has_head(report.matched):
    # The model is trained further, on targets of its own scale.
    classifier.set_target_scale(own_scale, keep_outputs=True)
  return report


def _has_head(names: Iterable[str]) -> bool:
  return any(name.endswith("output_weights") for name in names)


def _from_own(
  model: tf.keras.Model, path: str, head: Optional[Head]
) -> loading.LoadReport:
  """Reads a checkpoint of this package, whose prefix is `path`."""
  bundle = tensor_bundle.TensorBundle(path)

  def is_head(name: str) -> bool:
    return hasattr(model, "albert") and not name.startswith("albert/")

  variables = loading.by_path(model)
  stored = {loading.path_of(key): key for key in bundle.values}
  stored.pop(None, None)
  if not stored:
    raise ValueError(portable.no_variables(path))
  scale_key = stored.pop(loading.TARGET_SCALE, None)
  common = sorted(set(variables) & set(stored))
  shapes = {name: bundle.values[stored[name]].shape for name in common}
  matched, other_shape = loading.split_by_shape(
    common, shapes, variables, is_head, path
  )
  if not matched:
    raise ValueError(f"{path} holds no variable of this model.")
  rows, left_out = None, list[str]()
  notes: tuple[str, ...] = ()
  heads = [name for name in matched if is_head(name)]
  recorded = _recorded_head(path) if head else None
  if head is not None and (heads or (other_shape and recorded)):
    rows, note = match_heads(recorded, head)
    notes = (note,)
    if rows is None:
      left_out, matched = heads, [n for n in matched if n not in heads]
  for name in matched:
    value = bundle.get(stored[name])
    if rows is not None and name in heads:
      value = value[rows]
    variables[name].assign(value)
  if "classifier/output_weights" in matched:
    scale = bundle.get(scale_key) if scale_key else np.zeros(2)
    loading.set_target_scale(model, scale)
  ignored = set(bundle.values) - {*stored.values(), scale_key}
  return loading.LoadReport(
    matched=tuple(matched),
    missing=tuple(sorted(set(variables) - set(matched))),
    unexpected=tuple(sorted(set(stored) - set(variables))),
    ignored=tuple(sorted(ignored)),
    other_shape=tuple(other_shape),
    left_out=tuple(left_out),
    notes=notes,
  )


def _recorded_head(prefix: str) -> Optional[Head]:
  """Returns the head recorded in run.json, or None."""
  data = runs.recorded_data(runs.folders_of(prefix))
  labels = tuple((data.get("settings") or {}).get("labels") or ())
  kind = data.get("head", "")
  if not kind and "task" in data:
    kind = "classification" if labels else "regression"
    if data["task"] == "race":
      kind = "multiple_choice"
  return Head(kind, labels) if kind else None


def match_heads(
  stored: Optional[Head], head: Head
) -> tuple[Optional[list[int]], str]:
  """Matches the rows of a stored head with those of the model's head.

  Returns:
    The indices of the stored rows in the order of `head`, or None if the heads
    do not match; and a sentence for the log.
  """
  kept = f"the head is kept, for {head}"
  unchanged = list(range(max(len(head.labels), 1)))
  if stored is None or (stored.kind == head.kind and not stored.labels):
    if head.kind != "classification":
      return unchanged, kept
    return unchanged, (
      "warning: the checkpoint does not name the classes of its head, which "
      f"is kept: they are taken to be {', '.join(head.labels)}, in this order"
    )
  if stored == head:
    return unchanged, kept
  if stored.kind == head.kind and set(stored.labels) == set(head.labels):
    return [stored.labels.index(label) for label in head.labels], (
      f"{kept}, whose rows are put in this order; the checkpoint's is for "
      f"{stored}"
    )
  note = f"a new head is trained, for {head}: the checkpoint's is for {stored}"
  if stored.kind == head.kind and len(stored.labels) == len(head.labels):
    note += "; to keep it, give the data the same names"
  return None, note


def choose_head(
  checkpoint: portable.PortableCheckpoint, head: Head
) -> dict[str, Any]:
  """Puts the rows of a checkpoint's head in order, or removes an unfit head.

  Returns:
    The fields of the `LoadReport` that say so.
  """
  tensors = checkpoint.tensors
  names = [n for n in tensors if n.removeprefix("classifier/") in _NAMES]
  if not names or tensors[names[0]].shape[0] != max(len(head.labels), 1):
    return {}  # `fill` leaves out a head of another shape.
  # Where layers share little, and in TF1, the kind of the head is not read.
  kind = head.kind if checkpoint.head == "none" else checkpoint.head
  rows, note = match_heads(Head(kind, checkpoint.labels), head)
  for name in names:
    values = np.asarray(tensors.pop(name))
    if rows is not None:
      tensors[name] = values[rows]
  return {"notes": (note,), "left_out": () if rows else tuple(names)}
