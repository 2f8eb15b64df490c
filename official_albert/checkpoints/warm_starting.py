"""Starts a model from the weights of another one, in any format."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple, Optional

import numpy as np
import tensorflow as tf

from official_albert.checkpoints import formats, loading, portable

# The names of a classifier's head in a checkpoint.
_NAMES = ("output_bias", "output_weights")


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


def load_tf1_checkpoint(model: tf.keras.Model, path: str) -> loading.LoadReport:
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
  config = getattr(model, "albert", model).config
  with formats.open(path, source="tf1", model_config=config) as checkpoint:
    return loading.fill(model, checkpoint)


def warm_start(
  model: tf.keras.Model, path: str, head: Optional[Head] = None
) -> loading.LoadReport:
  """Reads the weights of a model from a checkpoint, without optimizer state.

  Variables that the checkpoint lacks keep their values.

  Args:
    model: the model; see `tf1_variables`.
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
  config = getattr(model, "albert", model).config
  with formats.open(path, model_config=config) as checkpoint:
    left_out, notes = choose_head(checkpoint, head) if head else ((), ())
    report = dataclasses.replace(
      loading.fill(model, checkpoint),
      left_out=left_out,
      notes=(*checkpoint.notes, *notes),
      source=checkpoint.shown(checkpoint.source),
    )
  if head and own_scale is not None and "output_weights" in report.matched:
    # The model is trained further, on targets of its own scale.
    classifier.set_target_scale(own_scale, keep_outputs=True)
  return report


def match_heads(stored: Head, head: Head) -> tuple[Optional[list[int]], str]:
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
) -> tuple[tuple[str, ...], tuple[str, ...]]:
  """Puts the rows of a checkpoint's head in order, or removes an unfit head.

  Returns:
    `left_out` and `notes` of the `LoadReport`.
  """
  tensors = checkpoint.tensors
  names = tuple(name for name in _NAMES if name in tensors)
  if not names:
    return (), ()
  fits = tensors[names[0]].shape[0] == max(len(head.labels), 1)
  # In TF1, the kind of the head is not read.
  kind = head.kind if checkpoint.head == "none" else checkpoint.head
  rows, note = match_heads(Head(kind, checkpoint.labels), head)
  if not fits:  # `fill` leaves out a head of another shape.
    return (), (note,) if rows is None else ()
  for name in names:
    values = np.asarray(tensors.pop(name))
    if rows is not None:
      tensors[name] = values[rows]
  return () if rows else names, (note,)
