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

import dataclasses
import os
import tempfile
from typing import Any, Mapping, NamedTuple, Optional, Sequence

import numpy as np
import tensorflow as tf

from official_albert import checkpoints, files, runs, tokenization
from official_albert.serving import served_module
from official_albert.settings import EXPORT_PRECISIONS, SELECTIONS

EXPORT_FILE = "export.json"
LABELS_FILE = "labels.txt"
ASSETS, EXTRA = "assets", "assets.extra"
DEFAULT_SIGNATURE = "serving_default"
WARMUP_FILE = "tf_serving_warmup_requests"
# TF Serving reads no more of them.
MAX_WARMUP_REQUESTS = 1000


@dataclasses.dataclass(frozen=True)
class ExportOptions:
  """How a model is exported.

  Attributes:
    signatures: one of `SELECTIONS`.
    precision: a key of `EXPORT_PRECISIONS`.
    warmup_batch_sizes: the batch sizes of TF Serving's warm-up requests.
      Without sizes or lengths, the model has no warm-up.
    warmup_seq_lengths: the lengths of these requests in tokens, limited to
      max_seq_length.

  Raises:
    ValueError: there is no such choice, or a number is less than 1.
  """

  signatures: str = "all"
  precision: str = "float32"
  warmup_batch_sizes: Sequence[int] = (1, 8)
  warmup_seq_lengths: Sequence[int] = (32, 128)

  def __post_init__(self):
    for name, choices in (
      ("signatures", SELECTIONS),
      ("precision", EXPORT_PRECISIONS),
    ):
      if getattr(self, name) not in choices:
        raise ValueError(
          f"{name} is {getattr(self, name)!r}, but must be one of "
          f"{', '.join(choices)}."
        )
    for name in ("warmup_batch_sizes", "warmup_seq_lengths"):
      for number in getattr(self, name):
        if number < 1:
          raise ValueError(f"{name} must be at least 1, got {number}.")


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

  def open_tokenizer(self) -> Optional[tokenization.Tokenizer]:
    """Returns the tokenizer in Python."""
    layer = getattr(self.module, "text_layer", None)
    if layer or not self.tokenizer:
      return layer and layer.tokenizer
    return self.tokenizer.open()


def write_saved_model(
  source: Source, export_dir: str, options: ExportOptions
) -> None:
  """Writes the folder of an export of a model, which this freezes.

  Raises:
    FileExistsError: `export_dir` is not empty.
    ValueError: the options do not fit the module.
    OSError: the folder cannot be written; nothing is left behind.
  """
  module = source.module
  files.check_new_folder(export_dir, "export_dir")
  module.freeze(options.precision)
  signatures = module.signatures(options.signatures)
  default = next(iter(signatures))
  with (
    files.new_folder(export_dir) as folder,
    tempfile.TemporaryDirectory() as asset_folder,
  ):
    record = {
      "precision": options.precision,
      "columns": dict(source.columns),
      "signatures": list(signatures),
      DEFAULT_SIGNATURE: default,
    }
    assets = write_assets(asset_folder, source, record)
    # Not the module itself: its Keras layers would also save the functions of
    # the training step, which need XLA.
    root = tf.Module(name="export")
    root.weights = module.traced.weights
    root.assets = [tf.saved_model.Asset(path) for path in assets]
    if options.signatures != "ids":
      root.text_layer = module.text_layer
    tf.saved_model.save(
      root,
      folder,
      signatures={DEFAULT_SIGNATURE: signatures[default], **signatures},
      options=tf.saved_model.SaveOptions(experimental_custom_gradients=False),
    )
    _write_extra(os.path.join(folder, EXTRA), module, options, signatures)


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


def _write_extra(
  folder: str,
  module: served_module.ServedModule,
  options: ExportOptions,
  signatures: Mapping[str, Any],
) -> None:
  """Writes the warm-up of TF Serving, unless it has no requests."""
  lengths = {min(n, module.max_seq_length) for n in options.warmup_seq_lengths}
  requests = []
  for batch in sorted(set(options.warmup_batch_sizes)):
    for length in sorted(lengths):
      named = module.example_requests(signatures, batch, length)
      # TensorFlow prepares a graph for each name, even if signatures are equal.
      requests.append((DEFAULT_SIGNATURE, named[next(iter(signatures))]))
      requests += named.items()
  if requests:
    files.make_folder(folder)
    write_warmup(os.path.join(folder, WARMUP_FILE), requests)


def _field(number: int, value: bytes) -> bytes:
  """Encodes a field of bytes: key, length, value; numbers as varints."""
  head = bytearray()
  for rest in (number << 3 | 2, len(value)):
    while rest > 0x7F:
      head.append(rest & 0x7F | 0x80)
      rest >>= 7
    head.append(rest)
  return bytes(head) + value


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


def write_warmup(
  path: str, requests: Sequence[tuple[str, Mapping[str, Any]]]
) -> None:
  """Writes requests, pairs of signature and inputs, as a TFRecord.

  Raises:
    ValueError: there are more requests than TF Serving reads.
  """
  if len(requests) > MAX_WARMUP_REQUESTS:
    raise ValueError(
      f"the warm-up would have {len(requests):,} requests, and TF Serving "
      f"reads {MAX_WARMUP_REQUESTS:,}: give fewer batch sizes or lengths."
    )
  with tf.io.TFRecordWriter(path) as writer:
    for signature, inputs in requests:
      writer.write(prediction_log(signature, inputs))
