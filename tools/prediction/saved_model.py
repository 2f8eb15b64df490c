"""Predictions of an exported SavedModel.

A signature that takes text is given the rows as they are: the tokenizer is in
the graph. Only where an export has none, the ids are made here, with the
tokenizer among its assets.
"""

from __future__ import annotations

import os
from typing import Any, Mapping, Optional, Sequence

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401 (its operations are in the graphs)

from official_albert import checkpoints, serving
from tasks import race
from tools.prediction import export_reader
from tools.prediction import ids as prediction_ids
from tools.prediction import input as prediction_input
from tools.prediction import output as prediction_output
from tools.prediction import program as prediction_program
from tools.prediction.stream import Part

# Of an encoder, what is not asked for: [B, S, H] is large.
_UNUSED = ("sequence_output", *prediction_ids.FEATURES)


class SavedModelBackend:
  """Implements `prediction_stream.Backend`.

  Attributes:
    roles: what a row has to have.
    columns: of a role the column, where it is not called like it.
    layout: of the predictions.
    source: what predicts, for messages.
  """

  columns: Mapping[str, str] = {}

  def __init__(self, saved_model_dir: str, signature: str = ""):
    """Loads the model.

    Args:
      saved_model_dir: of tools.export_saved_model.
      signature: which one; "" is serving_default.

    Raises:
      OSError: there is none.
      ValueError: it has no such signature, or one that rows cannot be given to.
    """
    if not os.path.exists(os.path.join(saved_model_dir, "saved_model.pb")):
      raise FileNotFoundError(
        f"{saved_model_dir} is not the folder of a SavedModel: it has no "
        "saved_model.pb."
      )
    export = _read_export(saved_model_dir)
    self.source = saved_model_dir
    self.about = f"{saved_model_dir} is " + (
      f"an export of {export.task}" if export else "a SavedModel"
    )
    # Whoever lets go of the model loses its tables.
    self._model = tf.saved_model.load(saved_model_dir)
    signatures = self._model.signatures
    signature = signature or "serving_default"
    if signature not in signatures:
      raise ValueError(
        f"{saved_model_dir} has no signature {signature!r}: it has "
        f"{', '.join(sorted(signatures)) or 'none'}."
      )
    self._function = signatures[signature]
    self._names = tuple(self._function.structured_input_signature[1])
    self._ids = None
    if set(self._names) <= set(prediction_input.ROLES):
      order = prediction_input.ROLES.index
      self.roles = tuple(sorted(self._names, key=order))
    elif set(self._names) == set(prediction_ids.FEATURES):
      self._ids = _make_ids(saved_model_dir, export)
      self.roles = self._ids.roles
    else:
      raise ValueError(
        f"the signature {signature} of {saved_model_dir} takes "
        f"{', '.join(sorted(self._names))}, which no table has: choose another "
        f"--signature of {', '.join(sorted(signatures))}."
      )
    self._outputs = [
      name for name in self._function.structured_outputs if name not in _UNUSED
    ]
    self.layout = prediction_output.layout_of(
      self._outputs, export.labels if export else ()
    )

  def parts(self, cells: Mapping[str, Any]) -> list[Part]:
    """The row, measured in characters or tokens."""
    if self._ids:
      return [self._ids.part(cells)]
    values = [cells[name] for name in self._names]
    length = sum(
      max(map(len, value)) if isinstance(value, list) else len(value)
      for value in values
    )
    return [Part(length, values)]

  def run(self, inputs: Sequence[Any]) -> list[dict[str, Any]]:
    """The signature's outputs for each row; texts are `str`."""
    if self._ids:
      arrays = self._ids.batch(inputs)
    else:
      columns = zip(*inputs)
      arrays = {n: np.array(x, object) for n, x in zip(self._names, columns)}
    outputs = self._function(
      **{name: tf.constant(x) for name, x in arrays.items()}
    )
    values = [
      prediction_program.to_numpy(outputs[name]) for name in self._outputs
    ]
    return [dict(zip(self._outputs, row)) for row in zip(*values)]

  def answer(
    self,
    cells: Mapping[str, Any],
    parts: Sequence[Part],
    outputs: Sequence[Mapping[str, Any]],
  ) -> Mapping[str, Any]:
    """The outputs."""
    return outputs[0]


def _read_export(saved_model_dir: str) -> Optional[export_reader.Export]:
  """What the export says of itself; None of SavedModels that others made.

  Raises:
    ValueError: its record is damaged.
  """
  record = os.path.join(saved_model_dir, serving.ASSETS, serving.EXPORT_FILE)
  if not os.path.exists(record):
    return None
  return export_reader.read_export(saved_model_dir)


def _make_ids(
  saved_model_dir: str, export: Optional[export_reader.Export]
) -> prediction_ids.Ids:
  """Makes ids as export.json says.

  Raises:
    ValueError: there is none, or no tokenizer, or the task needs a text
      signature.
  """
  if export is None:
    raise ValueError(
      f"{saved_model_dir} takes ids, and its assets have no "
      f"{serving.EXPORT_FILE} that says how texts become such: "
      "export it again with tools.export_saved_model."
    )
  if export.tokenizer_file is None:
    raise ValueError(
      f"{saved_model_dir} takes ids, and was exported without a tokenizer: "
      "put the tokenizer beside the checkpoint and export it again."
    )
  if export.kind == "encoder" or export.task == "pretraining":
    roles = ("text",)
  else:
    roles = prediction_ids.roles_of(export.task)
  if "context" in roles:
    raise ValueError(
      f"{saved_model_dir} takes ids only, and answers come from text: export "
      "it with its text signatures, or predict with --model_dir."
    )
  length = export.max_seq_length
  recipe = race.RECIPES["race"]
  return prediction_ids.Ids(
    checkpoints.TokenizerFile(
      export.tokenizer_file, export.tokenizer_kind, export.lower_case
    ).open(),
    length,
    roles,
    export.settings.get("max_qa_length")
    or min(recipe.max_qa_length, length - 4),
  )
