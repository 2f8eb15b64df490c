"""Reads and writes this package's checkpoints, in the layout of a run folder.

run_pretraining, run_finetuning and export_saved_model accept a folder from
`write` as --init_checkpoint. If it holds optimizer state, run_pretraining can
resume from it as --model_dir.
"""

from __future__ import annotations

import os
from typing import Any, Sequence

import numpy as np
import tensorflow as tf

from official_albert import modeling, training
from official_albert.checkpoints import checkpoint_files, loading, portable
from official_albert.checkpoints import names as checkpoint_names

# TensorFlow's count of saves, which is not converted.
_SAVE_COUNTER = "save_counter/.ATTRIBUTES/VARIABLE_VALUE"
# Heads of run_finetuning's tasks that the weights alone do not identify.
_TASK_HEADS = {"race": "multiple_choice", "stsb": "regression"}


def read(
  path: str,
  head: str = "",
  include_optimizer: bool = False,
  config_file: str = "",
) -> portable.PortableCheckpoint:
  """Reads a checkpoint of a run.

  See `tf1_checkpoints.read_tf1_checkpoint` for the arguments. If the layers of
  a group do not share all weights, head and optimizer state stay unknown.

  Raises:
    ValueError, OSError: there is no valid checkpoint.
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
  recorded_head, task, lower_case, labels = _read_record(folders)
  tokenizer = checkpoint_files.find_tokenizer(folders, lower_case)
  values = {loading.path_of(key): value for key, value in bundle.values.items()}
  values.pop(None, None)
  if not any(path.startswith("albert/") for path in values):
    values = {f"albert/{path}": value for path, value in values.items()}
  if config.sharing != "all":
    return portable.PortableCheckpoint(
      prefix, config, portable.LazyTensors(values), "none", tokenizer
    )
  stored = _by_tf1_name(config, values, bundle)
  # Only the name of a run's best checkpoint tells its step.
  best_step = checkpoint_files.step_of_best(prefix)
  if best_step is not None:
    stored[checkpoint_names.GLOBAL_STEP] = checkpoint_files.StoredValue(
      "step", (), lambda: np.array(best_step, np.int64)
    )
  head = head or recorded_head or _TASK_HEADS.get(task, "")
  result = portable.select(prefix, config, stored, head, include_optimizer)
  result.tokenizer = tokenizer
  known = {value.name for value in stored.values()} | {_SAVE_COUNTER}
  for key in sorted(set(bundle.values) - known):
    result.unexpected[key] = portable.RUN_STATE
  result.labels = labels
  if result.head in ("classification", "regression"):
    result.task = task
  return result


def _by_tf1_name(
  config: modeling.AlbertConfig,
  values: dict[str, checkpoint_files.StoredValue],
  bundle: checkpoint_files.TensorBundle,
) -> dict[str, checkpoint_files.StoredValue]:
  """Renames values to TF1 names; values without one keep their paths."""
  heads = [row for rows in checkpoint_names.HEADS.values() for row in rows]
  stored = {}
  for row in (*checkpoint_names.encoder_rows(config), *heads):
    if row.own in values:
      stored[row.tf1] = values.pop(row.own)
      for suffix, slot in checkpoint_names.SLOTS.items():
        key = loading.key_of(row.own, slot)
        if key in bundle.values:
          stored[f"{row.tf1}/{suffix}"] = bundle.values[key]
  if loading.ITERATIONS in bundle.values:
    stored[checkpoint_names.GLOBAL_STEP] = bundle.values[loading.ITERATIONS]
  return {**stored, **values}


def write(checkpoint: portable.PortableCheckpoint, folder: str) -> str:
  """Writes a folder and returns the checkpoint's prefix.

  Raises:
    ValueError: the layers of a group do not share all weights.
    OSError: the folder cannot be written.
  """
  config, tokenizer = checkpoint.config, checkpoint.tokenizer
  rows = checkpoint.rows
  data: dict[str, Any] = {
    "head": checkpoint.head,
    "max_seq_length": config.max_position_embeddings,
  }
  if checkpoint.labels or checkpoint.task:
    data["settings"] = {"labels": list(checkpoint.labels) or None}
  if checkpoint.task:
    data["task"] = checkpoint.task
  if tokenizer:
    data["tokenizer"] = {
      "kind": tokenizer.kind,
      "lower_case": tokenizer.lower_case,
      "sha256": tokenizer.sha256(),
      "vocab_size": config.vocab_size,
    }
  training.write_run(folder, config, {}, data)
  if tokenizer:
    tokenizer.copy_to(folder)
  variables = {
    row.own: tf.Variable(
      checkpoint.tensors[row.tf1],
      name=row.tf1,  # The optimizer selects the weights to decay by name.
      dtype=tf.float32,
    )
    for row in rows
  }
  parts = {"model": loading.tree(variables)}
  if checkpoint.slots:
    # With a schedule, the optimizer stores no learning rate.
    rate = training.WarmupPolynomialDecay(0.1, 1, 0)
    optimizer = training.make_optimizer("lamb", rate)
    optimizer._create_all_weights(list(variables.values()))
    optimizer.iterations.assign(checkpoint.step)
    for row in rows:
      for suffix, slot in checkpoint_names.SLOTS.items():
        value = checkpoint.tensors[f"{row.tf1}/{suffix}"]
        optimizer.get_slot(variables[row.own], slot).assign(value)
    # Other formats do not store the position in the training data.
    examples_seen = tf.Variable(np.int64(0))
    parts.update(optimizer=optimizer, examples_seen=examples_seen)
  elif checkpoint_names.GLOBAL_STEP in checkpoint.tensors:
    step = tf.Module()
    step.iter = tf.Variable(np.int64(checkpoint.step))
    parts["optimizer"] = step
  return training.CheckpointManager(folder, 1, **parts).save(checkpoint.step)


def _read_record(
  folders: Sequence[str],
) -> tuple[str, str, bool, Sequence[str]]:
  """Returns head, task, lower_case and labels of the nearest run.json."""
  paths = [os.path.join(folder, training.RECORD_FILE) for folder in folders]
  path = next(filter(os.path.exists, paths), "")
  record = training.read_run(os.path.dirname(path)) if path else {}
  try:
    data = record.get("data", {})
    settings, tokenizer = (
      data.get("settings") or {},
      data.get("tokenizer") or {},
    )
    return (
      str(data.get("head") or ""),
      str(data.get("task") or ""),
      tokenizer.get("lower_case", True),
      tuple(settings.get("labels") or ()),
    )
  except (AttributeError, TypeError) as error:
    raise ValueError(
      f"{path} has values of other types than a run writes ({error}): restore "
      "the file."
    ) from error
