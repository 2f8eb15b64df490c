"""Folders of this package: what a run leaves, and what programs start from.

A folder that `write` makes is taken by --init_checkpoint of run_pretraining and
run_finetuning, by export_saved_model, and with optimizer state by --model_dir
of run_pretraining, which then goes on.
"""

from __future__ import annotations

import os
import shutil
from typing import Any, Optional

import numpy as np
import tensorflow as tf

from official_albert import modeling, tokenization, training
from official_albert.checkpoints import checkpoint_files, variable_paths
from official_albert.checkpoints import names as checkpoint_names
from official_albert.checkpoints import portable as portable_checkpoint

# How often TensorFlow has saved: of no meaning elsewhere.
_SAVE_COUNTER = "save_counter/.ATTRIBUTES/VARIABLE_VALUE"
# Heads by the tasks of run_finetuning whose weights do not say it.
_TEXT_HEADS = ("classification", "regression")
_TASK_HEADS = {"race": "multiple_choice", "stsb": "regression"}


def read(
  path: str,
  head: str = "",
  include_optimizer: bool = False,
  config_file: str = "",
) -> portable_checkpoint.PortableCheckpoint:
  """Reads a checkpoint of a run; for arguments see `tf1_checkpoints.read`.

  Raises:
    ValueError, OSError: it is not there, damaged, or does not fit its
      configuration; one sentence.
  """
  prefix = checkpoint_files.find_prefix(path)
  bundle = checkpoint_files.TensorBundle(prefix)
  if variable_paths.OBJECT_GRAPH not in bundle.shapes:
    raise ValueError(
      f"{prefix} is no checkpoint of this package: it names its variables as "
      "TF1 does; give --from=tf1."
    )
  config = find_config(prefix, config_file)
  folders = checkpoint_files.folders_of(prefix)
  record = _read_record(folders)
  paths = {variable_paths.path_of(key): key for key in bundle.shapes}
  paths.pop(None, None)
  # Of an encoder alone, the way begins below `albert`.
  alone = not any(name.startswith("albert/") for name in paths)
  by_own = {
    f"albert/{name}" if alone else name: key for name, key in paths.items()
  }
  keys: dict[str, str] = {}
  every = (
    *checkpoint_names.encoder_rows(config),
    *(row for rows in checkpoint_names.HEADS.values() for row in rows),
  )
  for row in every:
    if row.own in by_own:
      keys[row.tf1] = by_own.pop(row.own)
      for slot, name in checkpoint_names.SLOTS.items():
        key = variable_paths.key_of(row.own, name)
        if key in bundle.shapes:
          keys[f"{row.tf1}/{slot}"] = key
  if variable_paths.ITERATIONS in bundle.shapes:
    keys[checkpoint_names.GLOBAL_STEP] = variable_paths.ITERATIONS
  keys.update(by_own)  # Of no use here, and named in the report.
  stored = {name: bundle.shapes[key] for name, key in keys.items()}
  # A run's best checkpoint has its step in a file beside it.
  step = checkpoint_files.step_of_best(prefix)
  if step is not None:
    stored[checkpoint_names.GLOBAL_STEP] = []

  def load(name: str) -> np.ndarray:
    if name == checkpoint_names.GLOBAL_STEP and name not in keys:
      return np.array(step, np.int64)
    return bundle.get(keys[name])

  if not head:
    head = record.get("head") or _TASK_HEADS.get(record.get("task", ""), "")
  result = portable_checkpoint.select(
    prefix,
    config,
    stored,
    load,
    head,
    include_optimizer,
    keys,
  )
  result.tokenizer = _tokenizer_of(record, folders)
  known = {*keys.values(), variable_paths.OBJECT_GRAPH, _SAVE_COUNTER}
  for key in sorted(set(bundle.shapes) - known):
    result.unexpected[key] = portable_checkpoint.RUN_STATE
  result.labels = tuple(record.get("settings", {}).get("labels") or ())
  if result.head in _TEXT_HEADS:
    result.task = record.get("task", "")
  return result


def find_config(prefix: str, config_file: str = "") -> modeling.AlbertConfig:
  """The configuration of a checkpoint: the one beside it, or `config_file`.

  Raises:
    ValueError, OSError: there is none, or more than one, or it is damaged.
  """
  config_file = config_file or checkpoint_files.find_only_file(
    checkpoint_files.folders_of(prefix), checkpoint_files.CONFIG_FILE
  )
  if not config_file:
    raise ValueError(
      f"no {checkpoint_files.CONFIG_FILE} beside {prefix}: give "
      "--albert_config_file."
    )
  return modeling.AlbertConfig.from_json_file(config_file)


def find_tokenizer(prefix: str) -> Optional[portable_checkpoint.TokenizerFile]:
  """The tokenizer beside a checkpoint, None where there is none.

  Raises:
    ValueError: the record of the run, which says whether it lower-cases, is
      damaged.
  """
  folders = checkpoint_files.folders_of(prefix)
  return _tokenizer_of(_read_record(folders), folders)


def write(
  checkpoint: portable_checkpoint.PortableCheckpoint, folder: str
) -> str:
  """Writes checkpoint, configuration, record and tokenizer.

  Args:
    checkpoint: what to write.
    folder: an empty one.

  Returns:
    The checkpoint's prefix.

  Raises:
    OSError: it cannot be written.
  """
  config = checkpoint.config
  data: dict[str, Any] = {
    "head": checkpoint.head,
    "max_seq_length": config.max_position_embeddings,
  }
  if checkpoint.labels or checkpoint.task:
    data["settings"] = {"labels": list(checkpoint.labels) or None}
  if checkpoint.task:
    data["task"] = checkpoint.task
  if checkpoint.tokenizer:
    data["tokenizer"] = {
      "kind": checkpoint.tokenizer.kind,
      "lower_case": checkpoint.tokenizer.lower_case,
      "sha256": checkpoint.tokenizer.sha256(),
      "vocab_size": config.vocab_size,
    }
  training.write_run(folder, config, {}, data)
  if checkpoint.tokenizer:
    name = tokenization.TOKENIZER_FILES[checkpoint.tokenizer.kind]
    shutil.copyfile(checkpoint.tokenizer.path, os.path.join(folder, name))
  rows = checkpoint.rows
  variables = {
    row.own: tf.Variable(
      checkpoint.tensors[row.tf1],
      # The optimizer knows by the name what it decays.
      name=row.tf1,
      dtype=tf.float32,
    )
    for row in rows
  }
  parts = {"model": variable_paths.tree(variables)}
  if checkpoint.slots:
    # It loads tensorflow-addons, which only optimizer state is worth.

    # A schedule of its own, so that no rate is stored.
    rate = training.WarmupPolynomialDecay(0.1, 1, 0)
    optimizer = training.make_optimizer("lamb", rate)
    optimizer._create_all_weights(list(variables.values()))
    optimizer.iterations.assign(checkpoint.step)
    for row in rows:
      for slot, name in checkpoint_names.SLOTS.items():
        optimizer.get_slot(variables[row.own], name).assign(
          checkpoint.tensors[f"{row.tf1}/{slot}"]
        )
    # Where the data was, no other format says.
    examples_seen = tf.Variable(np.int64(0))
    parts.update(optimizer=optimizer, examples_seen=examples_seen)
  elif checkpoint_names.GLOBAL_STEP in checkpoint.tensors:
    step = tf.Module()
    step.iter = tf.Variable(np.int64(checkpoint.step))
    parts["optimizer"] = step
  return training.CheckpointManager(folder, 1, **parts).save(checkpoint.step)


def _tokenizer_of(
  record: dict[str, Any], folders: list[str]
) -> Optional[portable_checkpoint.TokenizerFile]:
  lower_case = record.get("tokenizer", {}).get("lower_case", True)
  return checkpoint_files.find_tokenizer(folders, lower_case)


def _read_record(folders: list[str]) -> dict[str, Any]:
  for folder in folders:
    path = os.path.join(folder, training.RECORD_FILE)
    if os.path.exists(path):
      data = _object(_object(training.read_run(folder), "", path), "data", path)
      for name in ("tokenizer", "settings"):
        _object(data, name, path)
      _check_types(data, path)
      return data
  return {}


def _object(values: Any, name: str, path: str) -> dict[str, Any]:
  """The object of that name in another, {} if it is not there; or all of it."""
  value = values.get(name, {}) if name else values
  if not isinstance(value, dict):
    raise ValueError(
      f"{path} must hold a JSON object{name and f' as {name}'}, not "
      f"{str(value)[:40]!r}: it is not what a run writes."
    )
  return value


def _check_types(data: dict[str, Any], path: str) -> None:
  labels = data.get("settings", {}).get("labels") or []
  is_list = isinstance(labels, list)
  fits = {
    "head": isinstance(data.get("head") or "", str),
    "task": isinstance(data.get("task") or "", str),
    "labels": is_list and all(isinstance(label, str) for label in labels),
  }
  for name, fit in fits.items():
    if not fit:
      raise ValueError(
        f"{path} says {name} of another type than a run writes: it was changed."
      )
