"""Writes the folder of an export: SavedModel, assets, and TF Serving's files.

The folder is written under a temporary name and renamed, so a server that
watches its parent never loads half of it. In a bucket, saved_model.pb comes
last.

Of the warm-up's messages in tensorflow-serving-api only five fields are needed,
so they are encoded here. The requests need no name of the model, because they
are sent to it directly. Sources: tensorflow/serving: saved_model_warmup.md,
prediction_log.proto, predict.proto, model.proto.
"""

from __future__ import annotations

import os
import tempfile
from typing import Any, Mapping, NamedTuple, Optional

import numpy as np
import tensorflow as tf
from google.protobuf.internal.encoder import _VarintBytes as varint

from official_albert import checkpoints, files, runs, tokenization
from official_albert.serving import served_module

EXPORT_FILE = "export.json"
LABELS_FILE = "labels.txt"
ASSETS, EXTRA = "assets", "assets.extra"
DEFAULT_SIGNATURE = "serving_default"
WARMUP_FILE = "tf_serving_warmup_requests"
# The rows and tokens of TF Serving's warm-up requests.
_WARMUP_ROWS, _WARMUP_LENGTHS = (1, 8), (32, 128)


class Source(NamedTuple):
  """A model to serve.

  Attributes:
    module: the model with its signatures.
    task: the task, or the kind of the module if it is not fine-tuned.
    checkpoint: the prefix or the folder of the weights.
    tokenizer: None if there is none.
    columns: the columns of the training data by role.
    names_task: whether the task is known; if not, `task` is a guess.
    notes: one sentence each for users of the checkpoint.
  """

  module: served_module.ServedModule
  task: str
  checkpoint: str
  tokenizer: Optional[checkpoints.TokenizerFile]
  columns: Mapping[str, str] = {}
  names_task: bool = True
  notes: tuple[str, ...] = ()


def write_saved_model(
  source: Source,
  export_dir: str,
  signatures: str = "all",
  precision: str = "float32",
  at_depth: bool = False,
) -> None:
  """Writes the folder of an export of a model, which this freezes.

  Args:
    source: the model.
    export_dir: a folder that does not exist or is empty.
    signatures: one of `SELECTIONS`.
    precision: a key of `EXPORT_PRECISIONS`; the model must have that policy.
    at_depth: whether to add signatures with the depth as input.

  Raises:
    FileExistsError: `export_dir` is not empty.
    OSError: the folder cannot be written; nothing is left behind.
  """
  module = source.module
  module.freeze(precision)
  if at_depth and not module.depth_inputs:
    raise ValueError(
      f"--depth_signatures is for models with one sequence for each text or "
      f"pair, but {source.checkpoint} is of {source.task}: leave it out."
    )
  functions = module.signatures(signatures, at_depth)
  default = next(iter(functions))
  record = {
    "precision": precision,
    "columns": dict(source.columns),
    "signatures": list(functions),
    DEFAULT_SIGNATURE: default,
  }
  functions = {DEFAULT_SIGNATURE: functions[default], **functions}
  with (
    files.new_folder(export_dir) as folder,
    tempfile.TemporaryDirectory() as asset_folder,
  ):
    assets = write_assets(asset_folder, source, record)
    # Not the module itself: its Keras layers would also save the functions of
    # the training step, which need XLA.
    root = tf.Module(name="export")
    root.weights = module.traced.weights
    root.assets = [tf.saved_model.Asset(path) for path in assets]
    if signatures != "ids":
      root.text_layer = module.text_layer
    tf.saved_model.save(
      root,
      folder,
      signatures=functions,
      options=tf.saved_model.SaveOptions(experimental_custom_gradients=False),
    )
    files.make_folder(os.path.join(folder, EXTRA))
    _write_warmup(os.path.join(folder, EXTRA, WARMUP_FILE), module, functions)


def write_assets(
  folder: str, source: Source, record: Mapping[str, Any]
) -> list[str]:
  """Writes configuration, export.json, tokenizer and labels; returns paths.

  `record` holds additional values for export.json.
  """
  module, tokenizer = source.module, source.tokenizer
  settings = module.settings()
  labels = settings.get("labels") or []
  record = {
    "kind": module.kind,
    "task": source.task,
    # The last two names of the path; the others may be private.
    "checkpoint": "/".join(
      os.path.normpath(source.checkpoint).split(os.sep)[-2:]
    ),
    **record,
    "max_seq_length": module.max_seq_length,
    "max_position_embeddings": module.config.max_position_embeddings,
    "vocab_size": module.config.vocab_size,
    "labels": labels,
    "settings": settings,
    "tokenizer": None,
    "lower_case": None,
  }
  names = [runs.CONFIG_FILE, EXPORT_FILE]
  if tokenizer:
    names.append(tokenization.TOKENIZER_FILES[tokenizer.kind])
    rules = tokenizer.rules.to_dict()
    record["lower_case"] = rules.pop("lower_case")
    record["tokenizer"] = {
      "file": names[-1],
      "kind": tokenizer.kind,
      "sha256": tokenizer.sha256(),
      **rules,
    }
    tokenizer.copy_to(folder)
  if labels:
    names.append(LABELS_FILE)
    text = "".join(f"{label}\n" for label in labels)
    files.write_text(os.path.join(folder, LABELS_FILE), text)
  paths = [os.path.join(folder, name) for name in names]
  module.config.to_json_file(paths[0])
  files.write_json(paths[1], record, ensure_ascii=False)
  return paths


def _field(number: int, value: bytes) -> bytes:
  """Encodes a field of bytes: key, length, value."""
  return varint(number << 3 | 2) + varint(len(value)) + value


def prediction_log(signature: str, inputs: Mapping[str, np.ndarray]) -> bytes:
  """Returns a serialized PredictionLog of one request."""
  # PredictRequest: 1 model_spec, 2 a map of inputs. ModelSpec: 3
  # signature_name.
  request = _field(1, _field(3, signature.encode()))
  for name, value in inputs.items():
    tensor = tf.make_tensor_proto(value).SerializeToString()
    request += _field(2, _field(1, name.encode()) + _field(2, tensor))
  # PredictionLog: 6 predict_log; PredictLog: 1 request.
  return _field(6, _field(1, request))


def _write_warmup(
  path: str, module: served_module.ServedModule, functions: Mapping[str, Any]
) -> None:
  """Writes the requests that TF Serving sends itself when it loads a model.

  TensorFlow prepares a graph for each name, even if signatures are equal.
  """
  lengths = {min(n, module.max_seq_length) for n in _WARMUP_LENGTHS}
  with tf.io.TFRecordWriter(path) as writer:
    for rows in _WARMUP_ROWS:
      for length in sorted(lengths):
        for name, function in functions.items():
          inputs = example_request(module, function, rows, length)
          writer.write(prediction_log(name, inputs))


def example_request(
  module: served_module.ServedModule, function: Any, rows: int, length: int
) -> dict[str, np.ndarray]:
  """Returns a request of `rows` rows to a signature of a module.

  Ids have S = `length`; texts have about as many tokens, and a mask.
  """
  parts = module.options or 1
  example = tf.train.Example()
  example.features.feature["input_ids"].int64_list.value.extend(
    [1] * (parts * length)
  )
  specs = tf.nest.flatten(function.structured_input_signature)
  words = max(0, (length - 1) // len(specs) - 2)
  text = " ".join(["[MASK]", *["the"] * words])
  request: dict[str, np.ndarray] = {}
  for spec in specs:
    size = 1 if spec.name in module.extra_ids else length
    shape = [rows, *(size if x is None else x for x in spec.shape[1:])]
    value: Any = text
    if spec.name == "examples":
      value = example.SerializeToString()
    elif spec.dtype != tf.string:  # Depths of 0 are those of all layers.
      value = np.int32(spec.name == "input_mask")
    is_text = spec.dtype == tf.string
    dtype = object if is_text else spec.dtype.as_numpy_dtype
    request[spec.name] = np.full(shape, value, dtype)
  return request
