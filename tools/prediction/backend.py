"""Models that answer rows of text: runs and exports behind one interface.

An export answers by one of its signatures. For a run, the module that an export
would hold is built in memory, and the same function answers; its model computes
on the devices and in the precision of this process.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from typing import Any, Callable, Mapping, NamedTuple, Optional, Sequence

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401 (its operations are in the graphs)

from official_albert import (
  checkpoints,
  modeling,
  serving,
  tokenization,
  training,
)
from official_albert.serving import Tensors
from official_albert.tokenization import in_graph
from tasks import pretraining, race
from tools import finetuning
from tools.prediction import program as prediction_program
from tools.prediction.input import OPTIONS, ROLES
from tools.prediction.output import Layout, layout_of

# The output of each signature that decides how its answers are written.
_OUTPUTS = {
  "classify": "label",
  "score": "score",
  "choose": "choice",
  "answer": "answer",
  "fill_mask": "mask_positions",
  "sentence_order": "swapped_probability",
  "encode": "pooled_output",
  "encode_pair": "pooled_output",
}
# Outputs that no table holds. [B, S, H] is large.
_UNUSED = ("sequence_output", *prediction_program.IDS)


@dataclasses.dataclass(frozen=True)
class Backend:
  """A model that answers rows.

  Attributes:
    function: takes texts by role, <string>[B] or of options <string>[B, 4];
      returns tensors [B, ...] with the names of a signature's outputs.
    roles: the cells that a row needs.
    layout: how an answer becomes a line.
    source: the checkpoint or the SavedModel, for messages.
    about: what the model is, for messages.
    columns: the columns of the training data by role, where they are known.
    text_layer: the tokenizer; None if it is not known.
  """

  function: Callable[..., Tensors]
  roles: tuple[str, ...]
  layout: Layout
  source: str
  about: str
  columns: Mapping[str, str] = dataclasses.field(default_factory=dict)
  text_layer: Optional[in_graph.TextLayer] = None

  def lengths(self, rows: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """Returns the length of each row in tokens, or in characters."""
    total = np.zeros(len(rows), np.int64)
    for role in self.roles:
      texts = [row[role] for row in rows]
      if role == OPTIONS:
        texts = [" ".join(options) for options in texts]
      if self.text_layer is None:
        total += [len(text) for text in texts]
      else:
        tokens = self.text_layer.tokenize(tf.constant(texts))
        total += tokens.row_lengths().numpy()
    return total

  def __call__(self, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the outputs of the signature for each row.

    Args:
      rows: B rows, texts by role.

    Raises:
      tf.errors.InvalidArgumentError: the model refuses one of the rows, or so
        many together.
    """
    outputs = self.function(
      **{role: tf.constant([row[role] for row in rows]) for role in self.roles}
    )
    values = {
      name: _to_numpy(x) for name, x in outputs.items() if name not in _UNUSED
    }
    return [dict(zip(values, row)) for row in zip(*values.values())]


def _to_numpy(tensor: tf.Tensor) -> np.ndarray:
  """Returns an array; texts are `str`, without bytes that are not UTF-8."""
  array = tensor.numpy()
  if array.dtype != object:
    return array
  texts = np.empty(array.size, object)
  texts[:] = [text.decode("utf-8", "replace") for text in array.ravel()]
  return texts.reshape(array.shape)


class _ServedPretraining(pretraining.ServedPretraining):
  """Encodes texts without the vectors of single tokens, for speed."""

  def encode(self, features: Tensors) -> Tensors:
    none = features["input_ids"][:, :0]
    outputs = self.run(**features, positions=none, masked_lm_rows=none)
    return {"pooled_output": outputs["pooled_output"]}


def open_run(
  model_dir: str,
  config: modeling.AlbertConfig,
  tokenizer: tokenization.Tokenizer,
  strategy: tf.distribute.Strategy,
  batch_size: int,
  checkpoint: str = "",
  signature: str = "",
  max_seq_length: int = 0,
  top_k: int = 5,
  null_score_diff_threshold: Optional[float] = None,
) -> Backend:
  """Reads a run of tools.run_pretraining or tools.run_finetuning.

  Args:
    model_dir: the run's folder.
    config: the encoder.
    tokenizer: the tokenizer that the run was trained with.
    strategy: the devices.
    batch_size: the most sequences that are computed together.
    checkpoint: see `checkpoints.find_prefix`.
    signature: of a pretraining run; "" is fill_mask.
    max_seq_length: the most tokens of a sequence; 0: as in training.
    top_k: of a pretraining run, pieces for each mask.
    null_score_diff_threshold: of SQuAD 2.0; None: the run's own.

  Raises:
    OSError: the run has no checkpoint.
    ValueError: the checkpoint is of another model, or a setting does not fit.
  """
  record = training.read_run(model_dir)
  run, head = None, "pretraining"
  if "task" in record["data"]:
    run = finetuning.trained_run.read(model_dir)
    head = finetuning.registry.find(run.task, model_dir).head
    if null_score_diff_threshold is not None:
      run = dataclasses.replace(
        run, null_score_diff_threshold=null_score_diff_threshold
      )
  with strategy.scope():
    model = finetuning.registry.make_model(
      head,
      config,
      len(run.labels or "1") if run else 1,
      run.settings if run else None,
    )
  source = finetuning.run.find_weights(model_dir, checkpoint)
  report = training.warm_start(model, source)
  if report.missing:
    raise ValueError(
      f"{source} does not fit the record in {model_dir}: it lacks "
      f"{report.missing[0]}."
    )
  layer = in_graph.make_text_layer(
    tokenizer.kind, os.fspath(tokenizer.model_file), tokenizer.lower_case
  )
  if run:
    module = finetuning.registry.make_served(
      run, model, layer, max_seq_length or run.max_seq_length
    )
    signature = module.text_signatures[0]
    about = f"{model_dir} is a run of {run.task}"
  else:
    if "max_seq_length" in record["data"]:
      trained_length = pretraining.trained_length(record, source)
    else:  # A converted checkpoint.
      trained_length = config.max_position_embeddings
    module = _ServedPretraining(
      model, layer, max_seq_length or trained_length, top_k
    )
    signature = signature or module.text_signatures[0]
    if signature not in module.text_signatures:
      raise ValueError(
        f"{model_dir} is a pretraining run, which has no signature "
        f"{signature!r}: choose one of {', '.join(module.text_signatures)}, or "
        "name a run of tools.run_finetuning."
      )
    about = f"{model_dir} is a pretraining run (--signature={signature})"
  program = prediction_program.Program(
    module.forward, strategy, batch_size, module.max_seq_length
  )
  module.run_with(program)
  outputs = [_OUTPUTS[signature]]
  if head.startswith("squad"):
    # The program computes windows in batches, so their number has no limit.
    module.max_windows = tf.int32.max
    if program.fixed_length:
      module.min_length = module.max_seq_length
    if head == "squad2":
      outputs.append("null_score_diff")
  function = module.text_functions()[signature]
  host = tf.config.list_logical_devices("CPU")[0].name

  def answer(**texts: tf.Tensor) -> Tensors:
    # Eagerly, because the program is called from Python. Only the program
    # leaves the host.
    with tf.device(host):
      return function.python_function(**texts)

  return Backend(
    function=answer,
    roles=tuple(spec.name for spec in function.input_signature),
    layout=layout_of(outputs, run and run.labels or ()),
    source=source,
    about=about,
    columns=_trained_columns(run.columns) if run else {},
    text_layer=layer,
  )


def _trained_columns(columns: Mapping[str, str]) -> dict[str, str]:
  """Returns the columns of the user's own training data by role."""
  names = {"text": "text", "text_a": "text", "text_b": "text_b", "id": "id"}
  return {
    role: columns[name] for role, name in names.items() if columns.get(name)
  }


class _Export(NamedTuple):
  """The record of tools.export_saved_model, as far as rows need it."""

  kind: str
  task: str
  labels: Sequence[str]
  max_seq_length: int
  settings: Mapping[str, Any]
  tokenizer: Optional[checkpoints.TokenizerFile]


def open_export(saved_model_dir: str, signature: str = "") -> Backend:
  """Loads a SavedModel.

  A signature of texts gets the rows as they are. For a signature of ids, the
  texts are tokenized here, with the tokenizer in the export's assets.

  Args:
    saved_model_dir: a folder of tools.export_saved_model, or a SavedModel with
      such signatures.
    signature: its name; "" is serving_default.

  Raises:
    OSError: there is no SavedModel.
    ValueError: it has no such signature, or one that no row fits.
  """
  if not os.path.exists(os.path.join(saved_model_dir, "saved_model.pb")):
    raise FileNotFoundError(
      f"{saved_model_dir} is not the folder of a SavedModel: it has no "
      "saved_model.pb."
    )
  export = _read_export(saved_model_dir)
  model = tf.saved_model.load(saved_model_dir)
  signature = signature or serving.DEFAULT_SIGNATURE
  if signature not in model.signatures:
    raise ValueError(
      f"{saved_model_dir} has no signature {signature!r}: it has "
      f"{', '.join(sorted(model.signatures)) or 'none'}."
    )
  function = model.signatures[signature]
  inputs = set(function.structured_input_signature[1])
  layer = None
  if export and export.tokenizer:
    file = export.tokenizer
    layer = in_graph.make_text_layer(file.kind, file.path, file.lower_case)
  if inputs <= set(ROLES):
    roles = tuple(role for role in ROLES if role in inputs)

    def answer(**texts: tf.Tensor) -> Tensors:
      # `model` owns the tables of the graph, so it must stay alive.
      return model.signatures[signature](**texts)

  elif inputs == set(prediction_program.IDS):
    roles = _roles_of_ids(saved_model_dir, export)
    to_features = _make_to_features(roles, export, layer)

    def answer(**texts: tf.Tensor) -> Tensors:
      return model.signatures[signature](**to_features(**texts))

  else:
    raise ValueError(
      f"the signature {signature} of {saved_model_dir} takes "
      f"{', '.join(sorted(inputs))}, which no table has: choose another "
      f"--signature of {', '.join(sorted(model.signatures))}."
    )
  kind = f"an export of {export.task}" if export else "a SavedModel"
  return Backend(
    function=answer,
    roles=roles,
    layout=layout_of(
      list(function.structured_outputs), export.labels if export else ()
    ),
    source=saved_model_dir,
    about=f"{saved_model_dir} is {kind}",
    text_layer=layer,
  )


def _read_export(saved_model_dir: str) -> Optional[_Export]:
  """Reads an export's record; returns None for SavedModels without one.

  Raises:
    ValueError: the record is damaged.
  """
  assets = os.path.join(saved_model_dir, serving.ASSETS)
  path = os.path.join(assets, serving.EXPORT_FILE)
  if not os.path.exists(path):
    return None
  try:
    with open(path, encoding="utf-8") as file:
      record = json.load(file)
    tokenizer = record["tokenizer"]
    return _Export(
      kind=record["kind"],
      task=record["task"],
      labels=tuple(record["labels"]),
      max_seq_length=record["max_seq_length"],
      settings=record["settings"],
      tokenizer=tokenizer
      and checkpoints.TokenizerFile(
        os.path.join(assets, tokenizer["file"]),
        tokenizer["kind"],
        record["lower_case"],
      ),
    )
  except (ValueError, KeyError, TypeError, AttributeError) as error:
    raise ValueError(
      f"{path} is not what tools.export_saved_model writes "
      f"({type(error).__name__}: {error}): export again."
    ) from error


def _roles_of_ids(
  saved_model_dir: str, export: Optional[_Export]
) -> tuple[str, ...]:
  """Returns the roles of an export's signature of ids.

  Raises:
    ValueError: texts cannot become its ids, or its ids cannot become answers.
  """
  if export is None:
    raise ValueError(
      f"{saved_model_dir} takes ids, and its assets have no "
      f"{serving.EXPORT_FILE} that tells how texts become ids: export it again "
      "with tools.export_saved_model."
    )
  if export.tokenizer is None:
    raise ValueError(
      f"{saved_model_dir} takes ids, and was exported without a tokenizer: "
      "put the tokenizer beside the checkpoint and export it again."
    )
  if export.kind == "encoder" or export.task == "pretraining":
    return ("text",)
  roles = finetuning.registry.find(export.task, saved_model_dir).roles
  if "context" in roles:
    raise ValueError(
      f"{saved_model_dir} takes ids only, and answers come from text: export "
      "it with its text signatures, or predict with --model_dir."
    )
  return roles


def _make_to_features(
  roles: Sequence[str], export: _Export, layer: in_graph.TextLayer
) -> Callable[..., Tensors]:
  """Returns a function from texts by role to `IDS`."""
  if OPTIONS in roles:
    return functools.partial(
      race.pack_options,
      layer,
      export.max_seq_length,
      export.settings["max_qa_length"],
    )
  packed = in_graph.PackedTextLayer(layer, export.max_seq_length)
  return lambda **texts: packed(*(texts[role] for role in roles))
