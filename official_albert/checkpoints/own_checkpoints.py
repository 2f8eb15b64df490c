"""Checkpoints of this package, in folders as a run writes them.

A folder that `write` makes can be given as --init_checkpoint to run_pretraining
and run_finetuning, and to export_saved_model. With optimizer state,
run_pretraining resumes from it as --model_dir.
"""

from __future__ import annotations

import os
from typing import Any, Sequence

import numpy as np
import tensorflow as tf

from official_albert import modeling, training
from official_albert.checkpoints import (
  checkpoint_files,
  portable,
  tokenizer_files,
  variable_paths,
)
from official_albert.checkpoints import names as checkpoint_names

# TensorFlow's count of saves, which is not carried.
_SAVE_COUNTER = "save_counter/.ATTRIBUTES/VARIABLE_VALUE"
_TEXT_HEADS = ("classification", "regression")
# Heads of the tasks of run_finetuning that cannot be detected by the weights.
_TASK_HEADS = {"race": "multiple_choice", "stsb": "regression"}


def read(
  path: str,
  head: str = "",
  include_optimizer: bool = False,
  config_file: str = "",
) -> portable.PortableCheckpoint:
  """Reads a checkpoint of a run.

  For the arguments see `tf1_checkpoints.read_tf1_checkpoint`. Of an encoder
  whose layers share less than everything, `head` and optimizer state are not
  known; see `PortableCheckpoint.tensors`.

  Raises:
    ValueError, OSError: there is no checkpoint, it is damaged, or it does not
      fit its configuration.
  """
  prefix = checkpoint_files.find_prefix(path)
  bundle = checkpoint_files.TensorBundle(prefix)
  if not bundle.is_object_based:
    raise ValueError(
      f"{prefix} is not a checkpoint of this package, because its variables "
      "have names as in TF1: give --from=tf1."
    )
  folders = checkpoint_files.folders_of(prefix)
  config_file = config_file or checkpoint_files.find_only_file(
    folders, checkpoint_files.CONFIG_FILE
  )
  if not config_file:
    raise ValueError(
      f"no {checkpoint_files.CONFIG_FILE} beside {prefix}: give "
      "--albert_config_file."
    )
  config = modeling.AlbertConfig.from_json_file(config_file)
  record = _read_record(folders)
  tokenizer = tokenizer_files.find_tokenizer(
    folders, (record.get("tokenizer") or {}).get("lower_case", True)
  )
  by_own = _keys_by_path(bundle)
  if config.sharing != "all":
    tensors = portable.LazyTensors(
      {name: bundle.shapes[key] for name, key in by_own.items()},
      lambda name: bundle.get(by_own[name]),
    )
    return portable.PortableCheckpoint(
      prefix, config, tensors, "none", tokenizer
    )
  keys = _keys_by_tf1_name(config, by_own, bundle)
  stored = {name: bundle.shapes[key] for name, key in keys.items()}
  # The step of a run's best checkpoint is in a file beside it.
  best_step = checkpoint_files.step_of_best(prefix)
  if best_step is not None:
    stored[checkpoint_names.GLOBAL_STEP] = []

  def load(name: str) -> np.ndarray:
    if name == checkpoint_names.GLOBAL_STEP and name not in keys:
      return np.array(best_step, np.int64)
    return bundle.get(keys[name])

  task = record.get("task") or ""
  head = head or record.get("head") or _TASK_HEADS.get(task, "")
  result = portable.select(
    prefix, config, stored, load, head, include_optimizer, keys
  )
  result.tokenizer = tokenizer
  known = {*keys.values(), variable_paths.OBJECT_GRAPH, _SAVE_COUNTER}
  for key in sorted(set(bundle.shapes) - known):
    result.unexpected[key] = portable.RUN_STATE
  result.labels = tuple((record.get("settings") or {}).get("labels") or ())
  if result.head in _TEXT_HEADS:
    result.task = task
  return result


def _keys_by_path(bundle: checkpoint_files.TensorBundle) -> dict[str, str]:
  """Returns the keys of weights by path in a model with an `albert`."""
  paths = {variable_paths.path_of(key): key for key in bundle.shapes}
  paths.pop(None, None)
  if any(path.startswith("albert/") for path in paths):
    return paths
  return {f"albert/{path}": key for path, key in paths.items()}


def _keys_by_tf1_name(
  config: modeling.AlbertConfig,
  by_own: dict[str, str],
  bundle: checkpoint_files.TensorBundle,
) -> dict[str, str]:
  """Returns the checkpoint's keys by TF1 names; others keep their paths."""
  heads = (row for rows in checkpoint_names.HEADS.values() for row in rows)
  by_own, keys = dict(by_own), {}
  for row in (*checkpoint_names.encoder_rows(config), *heads):
    if row.own in by_own:
      keys[row.tf1] = by_own.pop(row.own)
      for suffix, slot in checkpoint_names.SLOTS.items():
        key = variable_paths.key_of(row.own, slot)
        if key in bundle.shapes:
          keys[f"{row.tf1}/{suffix}"] = key
  if variable_paths.ITERATIONS in bundle.shapes:
    keys[checkpoint_names.GLOBAL_STEP] = variable_paths.ITERATIONS
  return {**keys, **by_own}


def write(checkpoint: portable.PortableCheckpoint, folder: str) -> str:
  """Writes checkpoint, configuration, record and tokenizer.

  Args:
    checkpoint: what to write.
    folder: an empty one.

  Returns:
    The checkpoint's prefix.

  Raises:
    ValueError: the layers share less than everything.
    OSError: it cannot be written.
  """
  config, rows = checkpoint.config, checkpoint.rows
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
    checkpoint.tokenizer.copy_to(folder)
  variables = {
    row.own: tf.Variable(
      checkpoint.tensors[row.tf1],
      # The optimizer chooses what to decay by name.
      name=row.tf1,
      dtype=tf.float32,
    )
    for row in rows
  }
  parts = {"model": variable_paths.tree(variables)}
  if checkpoint.slots:
    # With a schedule, the optimizer stores no learning rate.
    rate = training.WarmupPolynomialDecay(0.1, 1, 0)
    optimizer = training.make_optimizer("lamb", rate)
    optimizer._create_all_weights(list(variables.values()))
    optimizer.iterations.assign(checkpoint.step)
    for row in rows:
      for suffix, slot in checkpoint_names.SLOTS.items():
        optimizer.get_slot(variables[row.own], slot).assign(
          checkpoint.tensors[f"{row.tf1}/{suffix}"]
        )
    # Other formats do not record the position in the data.
    examples_seen = tf.Variable(np.int64(0))
    parts.update(optimizer=optimizer, examples_seen=examples_seen)
  elif checkpoint_names.GLOBAL_STEP in checkpoint.tensors:
    step = tf.Module()
    step.iter = tf.Variable(np.int64(checkpoint.step))
    parts["optimizer"] = step
  return training.CheckpointManager(folder, 1, **parts).save(checkpoint.step)


def _read_record(folders: Sequence[str]) -> dict[str, Any]:
  """Returns the `data` of the nearest run.json; {} if there is none."""
  for folder in folders:
    path = os.path.join(folder, training.RECORD_FILE)
    if os.path.exists(path):
      record = training.read_run(folder)
      data = record.get("data", {}) if isinstance(record, dict) else record
      _check_types(data, path)
      return data
  return {}


def _check_types(data: Any, path: str) -> None:
  """Refuses a run.json that was edited."""
  wrong = "" if isinstance(data, dict) else "data"
  if not wrong:
    kinds = {"tokenizer": dict, "settings": dict, "head": str, "task": str}
    for name, kind in kinds.items():
      if not isinstance(data.get(name) or kind(), kind):
        wrong = name
  if not wrong:
    labels = (data.get("settings") or {}).get("labels") or []
    if not (
      isinstance(labels, list) and all(isinstance(x, str) for x in labels)
    ):
      wrong = "labels"
  if wrong:
    raise ValueError(
      f"{path} holds {wrong} of another type than a run writes: restore the "
      "file."
    )
