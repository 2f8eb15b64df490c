"""Predicts rows of text with runs and exports, behind one interface.

An export is called through one of its signatures. For a run, the module of an
export is built in memory and called in the same way. Its model uses the devices
and the precision of this process.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import os
import re
from typing import (
  Any,
  Callable,
  Iterable,
  Iterator,
  Mapping,
  Optional,
  Sequence,
)

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401 (its operations are in the graphs)

from official_albert import files, modeling, serving, tokenization, training
from official_albert.serving import Tensors
from official_albert.tokenization import in_graph
from official_albert.training import Batch
from tasks import common, pretraining, race
from tools import conversion, finetuning
from tools.prediction.input import OPTIONS, ROLES
from tools.prediction.output import ERROR, MAIN_OUTPUTS

IDS = ("input_ids", "input_mask", "segment_ids")
# Outputs that no table contains, because [B, S, H] is large.
_UNUSED = ("sequence_output", *IDS)
# What predictions read of export.json.
_RECORD_NAMES = {"kind", "task", "tokenizer", "lower_case", "max_seq_length"}
# The number of batches that are sorted together.
_WINDOW_BATCHES = 32


@dataclasses.dataclass(frozen=True)
class Backend:
  """A model that answers rows.

  Attributes:
    function: takes texts by role, <string>[B] or of options <string>[B, 4];
      returns tensors [B, ...] with the names of a signature's outputs.
    roles: the cells that a row needs.
    labels: the classes, in the order of their probabilities.
    source: the checkpoint or the SavedModel, for messages.
    about: a description of the model, for messages.
    columns: the columns of the training data by role, if known.
    text_layer: the tokenizer, if known.
  """

  function: Callable[..., Tensors]
  roles: tuple[str, ...]
  labels: tuple[str, ...]
  source: str
  about: str
  columns: Mapping[str, str] = dataclasses.field(default_factory=dict)
  text_layer: Optional[in_graph.TextLayer] = None

  def lengths(self, rows: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """Returns the length of each row in tokens, or in characters.

    Sorted by characters, batches hold a third more padding than by tokens.
    """
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
    """Returns the outputs of the signature for each of B rows.

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


def predict(
  backend: Backend,
  rows: Iterable[common.Record],
  batch_size: int,
  keep_refused: bool = False,
) -> Iterator[tuple[common.Record, Mapping[str, Any]]]:
  """Yields each row with its answer, in the order of the rows.

  A window of rows is read, sorted by length to save padding, and cut into
  batches. Memory holds one window at a time.

  Args:
    backend: the model.
    rows: any number of rows.
    batch_size: the maximum number of rows in a batch.
    keep_refused: whether the answer to a row that the model refuses is
      {"error": reason}, instead of a ValueError.

  Raises:
    ValueError: the model refuses a row, or with `keep_refused` all rows of the
      first window; the message names a row's file and line.
  """
  if batch_size < 1:
    raise ValueError(f"eval_batch_size is {batch_size}, but must be positive.")
  rest, is_first = iter(rows), True
  while window := list(itertools.islice(rest, batch_size * _WINDOW_BATCHES)):
    lengths = np.asarray(backend.lengths([row.cells for row in window]))
    # The longest first: if memory is too small, the first batch shows it.
    order = np.argsort(-lengths, kind="stable")
    answers: dict[int, Mapping[str, Any]] = {}
    for start in range(0, len(window), batch_size):
      batch = order[start : start + batch_size]
      found = _answers(backend, [window[i] for i in batch])
      answers.update(zip(batch, found))
    refused = sorted(i for i, answer in answers.items() if ERROR in answer)
    none_answered = is_first and len(refused) == len(window)
    if refused and (none_answered or not keep_refused):
      row, reason = window[refused[0]], answers[refused[0]][ERROR]
      raise ValueError(f"{row.where}: {reason} ({backend.about})")
    is_first = False
    yield from ((row, answers[i]) for i, row in enumerate(window))


def _answers(
  backend: Backend, batch: Sequence[common.Record]
) -> Sequence[Mapping[str, Any]]:
  """Returns the answers; that to a refused row is its reason."""
  try:
    return backend([row.cells for row in batch])
  except tf.errors.InvalidArgumentError as error:
    if len(batch) == 1:
      return [{ERROR: _reason(error)}]
  # Some rows may be wrong; or the rows are too much together, because an export
  # limits the windows of SQuAD's contexts in a request.
  half = len(batch) // 2
  return [*_answers(backend, batch[:half]), *_answers(backend, batch[half:])]


def _reason(error: tf.errors.InvalidArgumentError) -> str:
  """Returns the message without TensorFlow's additions."""
  text = error.message.split("\n\t [[")[0].split(" [Op:")[0]
  text = re.sub(r"^\{\{.*?\}\} ", "", text)
  failed = re.search(r"assertion failed: \[(.*)\]$", text, re.DOTALL)
  # The message and the numbers of a failed check are in brackets each.
  return failed[1].replace("] [", " ") if failed else text


class _ServedPretraining(pretraining.ServedPretraining):
  """Computes no vectors of single tokens, for speed."""

  def forward(self, **features: tf.Tensor) -> Tensors:
    outputs = self.model(features, training=False, logits_only=True)
    pooled = tf.cast(outputs["pooled_output"], tf.float32)
    return {**outputs, "pooled_output": pooled}

  def encode(self, features: Tensors) -> Tensors:
    outputs = self.run_without_masks(features)
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
    model_dir: the folder of the run.
    config: the encoder's configuration.
    tokenizer: the tokenizer of the run's training.
    strategy: the devices.
    batch_size: the maximum number of sequences in a batch.
    checkpoint: see `checkpoints.find_prefix`.
    signature: the signature of a pretraining run; "" is fill_mask.
    max_seq_length: the maximum tokens of a sequence; 0 uses that of training.
    top_k: the number of pieces for each mask, for a pretraining run.
    null_score_diff_threshold: the threshold for SQuAD 2.0; None uses that of
      the run.

  Raises:
    ValueError, OSError: the checkpoint is missing or belongs to another model,
      or a setting does not fit.
  """
  with strategy.scope():
    run, model, source = conversion.export_source.load_run(
      model_dir, config, checkpoint
    )
  layer = in_graph.make_text_layer(
    tokenizer.kind, os.fspath(tokenizer.model_file), tokenizer.lower_case
  )
  if run:
    if null_score_diff_threshold is not None:
      run = dataclasses.replace(
        run, null_score_diff_threshold=null_score_diff_threshold
      )
    module = finetuning.registry.make_served(
      run, model, layer, max_seq_length or run.max_seq_length
    )
    signature = module.text_signatures[0]
    about = f"{model_dir} is a run of {run.task}"
  else:
    record = training.read_run(model_dir)
    if not max_seq_length and "max_seq_length" in record["data"]:
      max_seq_length = pretraining.trained_length(record, source)
    # The record of a converted checkpoint has no length.
    max_seq_length = max_seq_length or config.max_position_embeddings
    module = _ServedPretraining(model, layer, max_seq_length, top_k)
    signature = signature or module.text_signatures[0]
    if signature not in module.text_signatures:
      raise ValueError(
        f"{model_dir} is a pretraining run, which has no signature "
        f"{signature!r}: choose one of {', '.join(module.text_signatures)}, or "
        "name a run of tools.run_finetuning."
      )
    about = f"{model_dir} is a pretraining run (--signature={signature})"
  module.run_with(
    make_program(module.forward, strategy, batch_size, module.max_seq_length)
  )
  if signature == "answer":
    # The program computes windows in batches, so their number has no limit.
    module.max_windows = tf.int32.max
    if _needs_one_length(strategy):
      module.min_length = module.max_seq_length
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
    labels=run and run.labels or (),
    source=source,
    about=about,
    columns=_input_columns(run.columns if run else {}),
    text_layer=layer,
  )


def _input_columns(trained: Mapping[str, str]) -> dict[str, str]:
  """Returns the columns of rows to predict, from those of the training data."""
  names = {"text": "text", "text_a": "text", "text_b": "text_b", "id": "id"}
  return {k: trained[v] for k, v in names.items() if trained.get(v)}


def open_export(saved_model_dir: str, signature: str = "") -> Backend:
  """Loads a SavedModel.

  A text signature receives the rows unchanged. For a signature of ids, this
  function tokenizes the texts with the tokenizer in the export's assets.

  Args:
    saved_model_dir: a folder of tools.export_saved_model, or a SavedModel with
      the same signatures.
    signature: the name of the signature; "" is serving_default.

  Raises:
    ValueError, OSError: there is no SavedModel, or no suitable signature.
  """
  if not files.exists(os.path.join(saved_model_dir, "saved_model.pb")):
    raise FileNotFoundError(
      f"{saved_model_dir} is not the folder of a SavedModel: it has no "
      "saved_model.pb."
    )
  model = tf.saved_model.load(saved_model_dir)
  signature = signature or serving.DEFAULT_SIGNATURE
  if signature not in model.signatures:
    raise ValueError(
      f"{saved_model_dir} has no signature {signature!r}: it has "
      f"{', '.join(sorted(model.signatures)) or 'none'}."
    )
  record = _read_record(saved_model_dir)
  function = model.signatures[signature]
  inputs = set(function.structured_input_signature[1])
  outputs = set(function.structured_outputs)
  layer, file = None, record.get("tokenizer")
  if file:
    path = os.path.join(saved_model_dir, serving.ASSETS, file["file"])
    layer = in_graph.make_text_layer(file["kind"], path, record["lower_case"])
  if not outputs & set(MAIN_OUTPUTS) or not (
    inputs <= set(ROLES) or inputs == set(IDS)
  ):
    raise ValueError(
      f"the signature {signature} of {saved_model_dir} takes "
      f"{', '.join(sorted(inputs))} and returns {', '.join(sorted(outputs))}, "
      "which fit no table: choose another --signature of "
      f"{', '.join(sorted(model.signatures))}."
    )
  if inputs == set(IDS):
    roles, to_inputs = _tokenizing(saved_model_dir, record, layer)
  else:
    roles, to_inputs = tuple(role for role in ROLES if role in inputs), dict

  def answer(**texts: tf.Tensor) -> Tensors:
    # `model` owns the tables of the graph, so it must stay alive.
    return model.signatures[signature](**to_inputs(**texts))

  kind = f"an export of {record['task']}" if record else "a SavedModel"
  return Backend(
    function=answer,
    roles=roles,
    labels=tuple(record.get("labels", ())),
    source=saved_model_dir,
    columns=_input_columns(record.get("columns", {})),
    about=f"{saved_model_dir} is {kind}",
    text_layer=layer,
  )


def _read_record(saved_model_dir: str) -> dict[str, Any]:
  """Returns the export.json of a SavedModel; {} if it has none."""
  path = os.path.join(saved_model_dir, serving.ASSETS, serving.EXPORT_FILE)
  if not files.exists(path):
    return {}
  try:
    record = json.loads(files.read_text(path))
  except ValueError as error:
    raise ValueError(
      f"{path} is not JSON ({error}): export the model again."
    ) from error
  missing = _RECORD_NAMES - set(record if isinstance(record, dict) else ())
  if missing:
    raise ValueError(
      f"{path} lacks {', '.join(sorted(missing))}: export the model again."
    )
  return record


def _tokenizing(
  saved_model_dir: str,
  record: Mapping[str, Any],
  layer: Optional[in_graph.TextLayer],
) -> tuple[tuple[str, ...], Callable[..., Tensors]]:
  """Prepares texts for an export that takes ids.

  Args:
    saved_model_dir: the folder of the export.
    record: its export.json; {} if it has none.
    layer: its tokenizer; None if it has none.

  Returns:
    The roles of the texts, and a function from texts by role to `IDS`.
  """
  if layer is None:
    raise ValueError(
      f"{saved_model_dir} takes ids, and its assets have no tokenizer, or no "
      f"{serving.EXPORT_FILE}: put the tokenizer into the checkpoint's folder, "
      "and export it with tools.export_saved_model."
    )
  length, roles = record["max_seq_length"], ("text",)
  if record["kind"] != "encoder" and record["task"] != "pretraining":
    roles = finetuning.registry.find(record["task"], saved_model_dir).roles
  if OPTIONS in roles:
    qa_length = record["settings"]["max_qa_length"]
    return roles, functools.partial(race.pack_options, layer, length, qa_length)
  packed = in_graph.PackedTextLayer(layer, length)
  return roles, lambda **texts: packed(*(texts[role] for role in roles))


def _needs_one_length(strategy: tf.distribute.Strategy) -> bool:
  # TPUs compile a program for each shape.
  return isinstance(strategy, tf.distribute.TPUStrategy)


def make_program(
  forward: Callable[..., Mapping[str, tf.Tensor]],
  strategy: tf.distribute.Strategy,
  batch_size: int,
  max_seq_length: int,
) -> Callable[..., Tensors]:
  """Returns `forward` for any number of rows, on all devices.

  The function takes features [B, ..., S] by name and returns outputs [B, ...].
  It computes more than `batch_size` rows in several batches. One device takes
  batches of any size. Several devices share each batch, so every batch is
  filled up to `batch_size` rows. TPUs also need sequences of one length.

  Args:
    forward: takes features [B, ...] by name, returns outputs [B, ...].
    strategy: the devices, with which the model's variables were created.
    batch_size: the maximum number of rows in a batch.
    max_seq_length: the length to which TPUs pad.

  Raises:
    ValueError: the devices cannot share a batch equally.
  """
  replicas = strategy.num_replicas_in_sync
  if batch_size % replicas:
    raise ValueError(
      f"eval_batch_size is {batch_size}, but must be a multiple of the number "
      f"of devices, {replicas}."
    )
  one_length = _needs_one_length(strategy)
  one_size = replicas > 1 or one_length

  def step(batch: Batch) -> Tensors:
    rows = training.own_rows(batch) if replicas > 1 else batch
    return training.gather_predictions(dict(forward(**rows)))

  @tf.function(autograph=False)
  def run(batch: Batch) -> Tensors:
    return training.run_step(strategy, step, batch)

  def run_batch(arrays: Mapping[str, np.ndarray]) -> Tensors:
    count, specs = len(arrays["input_ids"]), {}
    if one_size:
      arrays = {
        name: _padded(x, batch_size - count, 0, "edge")
        for name, x in arrays.items()
      }
    for name, x in arrays.items():
      rows = len(x) if one_size else None
      length = x.shape[-1] if one_length else None
      shape = [rows, *x.shape[1:-1], length]
      specs[name] = tf.TensorSpec(shape, tf.as_dtype(x.dtype))
    # One graph for all shapes; TensorFlow caches it.
    graph = run.get_concrete_function(specs)
    with tf.device(None):  # The caller's device is not the program's.
      outputs = graph({name: tf.constant(x) for name, x in arrays.items()})
    return {name: x[:count] for name, x in outputs.items()}

  def program(**features: tf.Tensor) -> Tensors:
    arrays = {name: np.asarray(x) for name, x in features.items()}
    if one_length:
      for name in IDS:
        missing = max_seq_length - arrays[name].shape[-1]
        arrays[name] = _padded(arrays[name], missing, -1, "constant")
    parts = [
      run_batch({n: x[i : i + batch_size] for n, x in arrays.items()})
      for i in range(0, len(arrays["input_ids"]), batch_size)
    ]
    return {
      name: tf.concat([part[name] for part in parts], axis=0)
      for name in parts[0]
    }

  return program


def _padded(array: np.ndarray, missing: int, axis: int, mode: str):
  widths = [(0, 0)] * array.ndim
  widths[axis] = (0, missing)
  return np.pad(array, widths, mode)
