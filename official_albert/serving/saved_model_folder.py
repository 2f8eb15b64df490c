"""Writes the folder of an export: SavedModel, assets, and TF Serving's files.

The folder is written under a temporary name and then renamed, so a server that
watches its parent never loads a partial model.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import tempfile
from typing import Any, Mapping, Optional, Sequence

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.saved_model import fingerprinting_utils

from official_albert import (
  checkpoints,
  distribution,
  files,
  tokenization,
  training,
)
from official_albert.serving import (
  EXPORT_PRECISIONS,
  served_module,
  serving_files,
)

EXPORT_FILE = "export.json"
LABELS_FILE = "labels.txt"
ASSETS, EXTRA = "assets", "assets.extra"
DEFAULT_SIGNATURE = "serving_default"


@dataclasses.dataclass(frozen=True)
class ExportOptions:
  """How a model is exported.

  Attributes:
    signatures: one of `SELECTIONS`.
    precision: a key of `EXPORT_PRECISIONS`.
    model_name: the model's name in TF Serving.
    warmup_batch_sizes: the batch sizes of TF Serving's warm-up requests.
      Without sizes or lengths, the model has no warm-up.
    warmup_seq_lengths: the lengths of these requests in tokens, limited to
      max_seq_length.

  Raises:
    ValueError: the name is invalid, or a number is less than 1.
  """

  signatures: str = "all"
  precision: str = "float32"
  model_name: str = "albert"
  warmup_batch_sizes: Sequence[int] = (1, 8)
  warmup_seq_lengths: Sequence[int] = (32, 128)

  def __post_init__(self):
    if not re.fullmatch("[A-Za-z0-9][A-Za-z0-9_.-]*", self.model_name):
      raise ValueError(
        f"model_name {self.model_name!r} must be of letters, digits, '_', '.' "
        "and '-', as it is part of a path and of a URL."
      )
    for name in ("warmup_batch_sizes", "warmup_seq_lengths"):
      for number in getattr(self, name):
        if number < 1:
          raise ValueError(f"{name} must be at least 1, got {number}.")

  def set_precision(self) -> None:
    """Sets the Keras policy; call it before the model is created."""
    distribution.set_precision(EXPORT_PRECISIONS[self.precision])


DEFAULT_OPTIONS = ExportOptions()


def write_saved_model(
  module: served_module.ServedModule,
  export_dir: str,
  options: ExportOptions,
  task: str,
  checkpoint: str,
  tokenizer: Optional[checkpoints.TokenizerFile],
) -> None:
  """Writes the folder of an export.

  Args:
    module: the served model, which this freezes.
    export_dir: a folder that does not exist or is empty.
    options: how to export.
    task: the fine-tuned task, or the kind of model.
    checkpoint: the path of the weights, for export.json.
    tokenizer: the tokenizer, which is copied to the assets.

  Raises:
    FileExistsError: `export_dir` is not empty.
    ValueError: the options do not fit the module.
    OSError: the folder cannot be written; nothing is left behind.
  """
  files.check_new_folder(export_dir, "export_dir")
  module.freeze(options.precision)
  signatures = module.signatures(options.signatures)
  default = next(iter(signatures))
  with (
    files.new_folder(export_dir) as folder,
    tempfile.TemporaryDirectory() as asset_folder,
  ):
    record = {
      "task": task,
      "checkpoint": short_path(checkpoint),
      "precision": options.precision,
      "signatures": list(signatures),
      DEFAULT_SIGNATURE: default,
    }
    assets = write_assets(asset_folder, module, tokenizer, record)
    # Not the module itself: its Keras layers would also save the functions of
    # the training step, which need XLA.
    root = tf.Module(name="export")
    root.assets = [tf.saved_model.Asset(path) for path in assets]
    if options.signatures != "ids":
      root.text_layer = module.text_layer
    tf.saved_model.save(
      root,
      folder,
      signatures={DEFAULT_SIGNATURE: signatures[default], **signatures},
      options=tf.saved_model.SaveOptions(experimental_custom_gradients=False),
    )
    _store_compactly(folder)
    _write_extra(os.path.join(folder, EXTRA), module, options, signatures)


def short_path(checkpoint: str) -> str:
  """Returns the last two names of a path; the others may be private."""
  return "/".join(os.path.normpath(checkpoint).split(os.sep)[-2:])


def write_assets(
  folder: str,
  module: served_module.ServedModule,
  tokenizer: Optional[checkpoints.TokenizerFile],
  record: Mapping[str, Any],
) -> list[str]:
  """Writes configuration, export.json, tokenizer and labels; returns paths.

  `record` holds additional values for export.json.
  """
  settings = module.settings()
  labels = settings.get("labels") or []
  record = {
    "kind": module.kind,
    **record,
    "max_seq_length": module.max_seq_length,
    "max_position_embeddings": module.config.max_position_embeddings,
    "vocab_size": module.config.vocab_size,
    "labels": labels,
    "settings": settings,
    "tokenizer": None,
    "lower_case": None,
  }
  names = [training.CONFIG_FILE, EXPORT_FILE]
  if tokenizer:
    names.append(tokenization.TOKENIZER_FILES[tokenizer.kind])
    record["lower_case"] = tokenizer.lower_case
    record["tokenizer"] = {
      "file": names[-1],
      "kind": tokenizer.kind,
      "sha256": tokenizer.sha256(),
    }
    shutil.copyfile(tokenizer.path, os.path.join(folder, names[-1]))
  if labels:
    names.append(LABELS_FILE)
    text = "".join(f"{label}\n" for label in labels)
    files.write_text(os.path.join(folder, LABELS_FILE), text)
  paths = [os.path.join(folder, name) for name in names]
  module.config.to_json_file(paths[0])
  files.write_json(paths[1], record, ensure_ascii=False)
  return paths


def _store_compactly(folder: str) -> None:
  """Stores 16-bit constants with 2 bytes per value.

  Freezing stores them as lists of integers, which take 2.5 bytes in the file
  and 4 in memory. The compact form halves the loading time of ALBERT base in
  bfloat16.
  """
  path = os.path.join(folder, "saved_model.pb")
  with open(path, "rb") as file:
    saved_model = saved_model_pb2.SavedModel.FromString(file.read())
  for function in saved_model.meta_graphs[0].graph_def.library.function:
    for node in function.node_def:
      tensor = node.attr["value"].tensor if node.op == "Const" else None
      if tensor and tensor.dtype in (types_pb2.DT_BFLOAT16, types_pb2.DT_HALF):
        shape = [dim.size for dim in tensor.tensor_shape.dim]
        # A list that is too short repeats its last number.
        if len(tensor.half_val) == np.prod(shape, dtype=np.int64):
          content = np.array(tensor.half_val, np.uint16).tobytes()
          tensor.tensor_content = content
          tensor.ClearField("half_val")
  files.write_bytes(path, saved_model.SerializeToString(deterministic=True))
  fingerprinting_utils.write_fingerprint(folder)


def _write_extra(
  folder: str,
  module: served_module.ServedModule,
  options: ExportOptions,
  signatures: Mapping[str, Any],
) -> None:
  """Writes TF Serving's files."""
  os.makedirs(folder)
  sizes = sorted(set(options.warmup_batch_sizes))
  files.write_text(
    os.path.join(folder, serving_files.MODELS_FILE),
    serving_files.models_config(options.model_name),
  )
  files.write_text(
    os.path.join(folder, serving_files.BATCHING_FILE),
    serving_files.batching_parameters(sizes, module.cls_id is not None),
  )
  lengths = {
    min(length, module.max_seq_length) for length in options.warmup_seq_lengths
  }
  requests = []
  for batch in sizes:
    for length in sorted(lengths):
      named = module.example_requests(signatures, batch, length)
      # TensorFlow prepares a graph for each name, even if signatures are equal.
      requests.append((DEFAULT_SIGNATURE, named[next(iter(signatures))]))
      requests += named.items()
  if requests:
    serving_files.write_warmup(
      os.path.join(folder, serving_files.WARMUP_FILE),
      options.model_name,
      requests,
    )
