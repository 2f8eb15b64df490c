"""The folder of an export: SavedModel, assets, and what TF Serving reads.

It is written under another name beside its place and renamed, so that a server
which watches the place never sees half of it.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import tempfile
from typing import Any, Mapping, Optional, Sequence

import tensorflow as tf

from official_albert import (
  checkpoints,
  distribution,
  files,
  tokenization,
  training,
)
from official_albert.serving import (
  EXPORT_PRECISIONS,
  SELECTIONS,
  compact_saved_model,
  served_module,
  serving_files,
)

EXPORT_FILE = "export.json"
LABELS_FILE = "labels.txt"
ASSETS, EXTRA = "assets", "assets.extra"
DEFAULT_SIGNATURE = "serving_default"
# What is put into paths and into files of quoted strings.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


@dataclasses.dataclass(frozen=True)
class ExportOptions:
  """How a model is exported.

  Attributes:
    signatures: one of `SELECTIONS`.
    precision: a key of `EXPORT_PRECISIONS`.
    model_name: what a server calls the model.
    warmup_batch_sizes: rows of the requests that a server sends itself first.
    warmup_seq_lengths: their tokens; what is longer than the model's
      max_seq_length is as long as that. If one of the two is empty, there is
      no warm-up.

  Raises (when made):
    ValueError: an unknown choice, a name that is none, or a number under 1.
  """

  signatures: str = "all"
  precision: str = "float32"
  model_name: str = "albert"
  warmup_batch_sizes: Sequence[int] = (1, 8)
  warmup_seq_lengths: Sequence[int] = (32, 128)

  def __post_init__(self):
    for name, known in (
      ("signatures", SELECTIONS),
      ("precision", tuple(EXPORT_PRECISIONS)),
    ):
      if getattr(self, name) not in known:
        raise ValueError(
          f"unknown {name} {getattr(self, name)!r}; choose one of "
          f"{', '.join(known)}."
        )
    if not _NAME.fullmatch(self.model_name):
      raise ValueError(
        f"model_name {self.model_name!r} must be of letters, digits, '_', '.' "
        "and '-', as it is part of a path and of a URL."
      )
    for name in ("warmup_batch_sizes", "warmup_seq_lengths"):
      for number in getattr(self, name):
        if number < 1:
          raise ValueError(f"{name} must be at least 1, got {number}.")

  def set_precision(self) -> None:
    """To be called before the model is made."""
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
  """Writes everything.

  Args:
    module: what is served; its model is frozen by it.
    export_dir: a folder that does not exist or is empty.
    options: how.
    task: the fine-tuned task, or the kind.
    checkpoint: where the weights are from, for the record.
    tokenizer: None if there is none.

  Raises:
    FileExistsError: `export_dir` is not empty.
    ValueError: the options do not fit the module.
    OSError: it cannot be written; nothing is left of it.
  """
  files.check_new_folder(export_dir, "export_dir")
  module.freeze(options.precision)
  signatures = module.signatures(options.signatures)
  # The first one: of texts if there are any, else of ids.
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
    # Saved as they are, Keras layers would add every function they have been
    # traced with, those of the training step too, which need XLA.
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
    compact_saved_model.compact(folder)
    _write_extra(os.path.join(folder, EXTRA), module, options, signatures)


def short_path(checkpoint: str) -> str:
  """The last two names of a path: whoever gets a model need not see more."""
  return "/".join(os.path.normpath(checkpoint).split(os.sep)[-2:])


def write_assets(
  folder: str,
  module: served_module.ServedModule,
  tokenizer: Optional[checkpoints.TokenizerFile],
  record: Mapping[str, Any],
) -> list[str]:
  """Writes configuration, record, tokenizer and labels.

  Args:
    folder: where to.
    module: what is served.
    tokenizer: None if there is none.
    record: what export.json holds besides what the module and the tokenizer
      say of themselves.

  Returns:
    The paths.

  Raises:
    OSError: one cannot be written, or the tokenizer not read.
  """
  names = [training.CONFIG_FILE, EXPORT_FILE]
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
  module.config.to_json_file(os.path.join(folder, training.CONFIG_FILE))
  path = os.path.join(folder, EXPORT_FILE)
  files.write_json(path, record, ensure_ascii=False)
  return [os.path.join(folder, name) for name in names]


def _write_extra(
  folder: str,
  module: served_module.ServedModule,
  options: ExportOptions,
  signatures: Mapping[str, Any],
) -> None:
  """Writes what TF Serving reads beside the graph."""
  os.makedirs(folder)
  for name, text in (
    (
      serving_files.MODELS_FILE,
      serving_files.models_config(options.model_name),
    ),
    (
      serving_files.BATCHING_FILE,
      serving_files.batching_parameters(
        options.warmup_batch_sizes, module.cls_id is not None
      ),
    ),
  ):
    files.write_text(os.path.join(folder, name), text)
  lengths = {
    min(length, module.max_seq_length) for length in options.warmup_seq_lengths
  }
  requests = []
  for batch in sorted(set(options.warmup_batch_sizes)):
    for length in sorted(lengths):
      named = module.example_requests(signatures, batch, length)
      # TensorFlow prepares a graph for each name, although two share one.
      requests.append((DEFAULT_SIGNATURE, named[next(iter(signatures))]))
      requests += named.items()
  if requests:
    serving_files.write_warmup(
      os.path.join(folder, serving_files.WARMUP_FILE),
      options.model_name,
      requests,
    )
