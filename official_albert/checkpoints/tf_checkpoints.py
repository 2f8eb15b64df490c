"""TensorFlow's checkpoints: of google-research/albert and of this package.

tensor_bundle.py reads their files; hf_checkpoints.py has the folders of Hugging
Face.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
from typing import Any, Mapping, Optional

import numpy as np
import tensorflow as tf

from official_albert import files, modeling, runs, tokenization
from official_albert.checkpoints import names as checkpoint_names
from official_albert.checkpoints import portable, tensor_bundle, tokenizer_file

# The state of tf.compat.v1.train's optimizers, which is never carried.
_OTHER_SLOTS = ("/Adam", "/Adam_1", "/Momentum")
# How the names of the TF Model Garden begin, which TF Hub's TF2 modules have,
# and the TF1 names. A longer beginning comes before a shorter one.
_BLOCK = "bert/encoder/transformer/group_0/inner_group_0/"
_MODEL_GARDEN = {
  "word_embeddings/embeddings": "bert/embeddings/word_embeddings",
  "position_embedding/embeddings": "bert/embeddings/position_embeddings",
  "type_embeddings/embeddings": "bert/embeddings/token_type_embeddings",
  "embeddings/layer_norm/": "bert/embeddings/LayerNorm/",
  "embedding_projection/": "bert/encoder/embedding_hidden_mapping_in/",
  "transformer/self_attention/attention_output/": (
    f"{_BLOCK}attention_1/output/dense/"
  ),
  "transformer/self_attention/": f"{_BLOCK}attention_1/self/",
  "transformer/self_attention_layer_norm/": f"{_BLOCK}LayerNorm/",
  "transformer/intermediate/": f"{_BLOCK}ffn_1/intermediate/dense/",
  "transformer/output/": f"{_BLOCK}ffn_1/intermediate/output/dense/",
  "transformer/output_layer_norm/": f"{_BLOCK}LayerNorm_1/",
  "pooler_transform/": "bert/pooler/dense/",
  "bert/cls/predictions/output_bias/bias": "cls/predictions/output_bias",
  "bert/cls/": "cls/",
}


def read(
  path: str,
  checkpoint: str = "",
  config_file: str = "",
  head: str = "",
  include_optimizer: bool = False,
  default_config: Optional[modeling.AlbertConfig] = None,
) -> portable.PortableCheckpoint:
  """Reads a checkpoint of google-research/albert, of a Hub module or of a run.

  Only the variables of a SavedModel are read, not its graph. For the arguments
  see `loading.open`.
  """
  prefix = runs.find_prefix(path, checkpoint)
  if include_optimizer and not checkpoint and files.is_dir(path):
    prefix = runs.find_prefix(path, runs.LATEST)  # The best has only weights.
  found, read_names = tensor_bundle.read_bundle(prefix)
  is_own = any(map(portable.path_of, found))
  if read_names and not is_own:
    found = _of_model_garden(found, read_names())
    if not found:
      raise ValueError(
        f"{prefix} holds no weights by the names of a checkpoint, because it "
        "is of an export, a preprocessor, a model that Keras saved, or another "
        "program: give the run or the checkpoint that it was made from."
      )
  if checkpoint and not is_own:
    raise ValueError(
      f"{prefix} is not the folder of a run, so there are no checkpoints to "
      "choose from: leave --checkpoint out."
    )
  folders = runs.folders_of(prefix)
  if files.is_dir(path):  # `checkpoint` may be somewhere else.
    folders.append(path)
  config_file = config_file or tokenizer_file.find_only_file(
    folders, runs.CONFIG_FILE, "albert_config*.json"
  )
  if not config_file and not default_config:
    raise ValueError(
      f"no {runs.CONFIG_FILE} beside {prefix}: put it there, or give "
      "--albert_config_file."
    )
  config = default_config
  if config_file:
    config = modeling.AlbertConfig.from_json_file(config_file)
  elif not any("encoder/adapters/" in str(portable.path_of(x)) for x in found):
    config = dataclasses.replace(config, adapter_rank=0)  # The model gets new.
  folder = runs.recorded_folder(folders)
  record: Mapping[str, Any] = runs.read_run(folder) if folder else {}
  data = record.get("data", {})
  step = 0
  with contextlib.suppress(ValueError):  # "model.ckpt-best" of others.
    step = runs.step_of(prefix)
  depth = runs.trained_layers(record.get("settings", {}), step)
  all_layers = config.num_hidden_layers
  config = config.at_depth(depth or all_layers)
  stored = _by_tf1_name(found, is_own, config, prefix)
  scale = stored.pop(portable.TARGET_SCALE, None)
  for name in [x for x in stored if x.endswith(_OTHER_SLOTS)]:
    del stored[name]
  if not include_optimizer:
    is_slot = checkpoint_names.is_slot
    stored = {name: x for name, x in stored.items() if not is_slot(name)}
  result = portable.select(prefix, config, stored, head or data.get("head", ""))
  if include_optimizer and len(result.slots) < 2 * len(result.rows):
    raise ValueError(
      f"{prefix} holds {len(result.slots)} of the {2 * len(result.rows)} "
      "optimizer slots of its variables: convert it without "
      "--include_optimizer."
    )
  _include_scale(result, scale)
  if config.num_hidden_layers < all_layers:
    result.notes.append(
      f"{prefix} is of a phase that applied {depth} layers, and so does this "
      f"model; a later phase would apply {all_layers}."
    )
  is_best = os.path.basename(os.path.dirname(prefix)) == runs.BEST_FOLDER
  if is_best and step:  # It has only weights, but its name has the step.
    result.tensors[checkpoint_names.GLOBAL_STEP] = np.int64(step)
  result.tokenizer = tokenizer_file.find_tokenizer(
    folders, tokenization.TextRules.of(data.get("tokenizer") or {})
  )
  result.labels = tuple((data.get("settings") or {}).get("labels") or ())
  if result.head == (data.get("head") or portable.detect_head(stored)):
    result.task = data.get("task", "")
  result.max_seq_length = data.get("max_seq_length", 0)
  if result.head == "embedding":
    result.pooling = modeling.Pooling.of(data.get("settings") or {})
  if os.path.basename(folder) != runs.ASSETS:
    result.folder, result.record = folder, record
  result.format = "official_albert" if is_own else "tf1"
  return result


def _of_model_garden(
  found: Mapping[str, portable.Array], names: Mapping[str, str]
) -> dict[str, portable.Array]:
  """Returns the values by TF1 names; {} if they are of another program."""
  values: dict[str, portable.Array] = {}
  for key, name in names.items():
    start = next(filter(name.startswith, _MODEL_GARDEN), "")
    if not start or key not in found:
      continue
    value = found[key]
    if "/self_attention/" in name:  # The heads are dimensions of their own.
      value = np.asarray(value)
      width = math.isqrt(value.size)
      value = value.reshape([width, -1] if name.endswith("kernel") else [-1])
    values[_MODEL_GARDEN[start] + name.removeprefix(start)] = value
  return values


def _by_tf1_name(
  found: Mapping[str, portable.Array],
  is_own: bool,
  config: modeling.AlbertConfig,
  prefix: str,
) -> dict[str, portable.Array]:
  """Returns values by TF1 names; those without one have attribute paths.

  Raises:
    ValueError: google-research/albert has no such model.
  """
  if not is_own:
    checkpoint_names.check_groups(config, prefix)
    # Names in a module of TF Hub begin with "module/".
    return {n.removeprefix("module/"): value for n, value in found.items()}
  values = {
    path: value
    for key, value in found.items()
    if (path := portable.path_of(key))
  }
  if not any(path.startswith("albert/") for path in values):
    values = {f"albert/{path}": value for path, value in values.items()}
  stored = {}
  for row in checkpoint_names.rows(config, *checkpoint_names.HEADS):
    if row.own in values:
      stored[row.tf1] = values.pop(row.own)
      for suffix, slot in checkpoint_names.SLOTS.items():
        key = portable.key_of(row.own, slot)
        if key in found:
          stored[f"{row.tf1}/{suffix}"] = found[key]
  if portable.ITERATIONS in found:
    stored[checkpoint_names.GLOBAL_STEP] = found[portable.ITERATIONS]
  return {**stored, **values}


def _include_scale(
  checkpoint: portable.PortableCheckpoint, scale: Optional[portable.Array]
) -> None:
  """Puts the scale of a regression's targets into the weights of its head."""
  tensors, names = checkpoint.tensors, ("output_weights", "output_bias")
  if scale is None or not set(names) <= set(tensors):
    return
  mean_and_log_std: Any = np.asarray(scale)
  if mean_and_log_std.any() and checkpoint.slots:
    raise ValueError(
      f"{checkpoint.source} is a regression whose optimizer knows only "
      "standardized targets: leave out --include_optimizer."
    )
  weights, bias = (np.asarray(tensors[name]) for name in names)
  checkpoint.scaled_head = dict(zip(names, (weights, bias)))
  checkpoint.scaled_head[portable.TARGET_SCALE] = mean_and_log_std
  folded = modeling.fold_target_scale(weights, bias, mean_and_log_std)
  tensors.update(zip(names, folded))


def write_tf1(checkpoint: portable.PortableCheckpoint, folder: str) -> str:
  """Writes a folder and returns the checkpoint's prefix.

  Raises:
    ValueError: google-research/albert lacks the activation or the projection,
      or assigns layers to other groups.
    OSError: the folder cannot be written.
  """
  config, source = checkpoint.config, checkpoint.source
  problem = ""
  if config.hidden_act == "gelu_erf":
    problem = "hidden_act gelu_erf, the exact GELU"
  elif config.always_project_embedding:
    problem = "a projection between equal embedding_size and hidden_size"
  if problem:
    raise ValueError(
      f"{source} has {problem}, which google-research/albert does not have: "
      "the converted model would compute something else."
    )
  checkpoint_names.check_groups(config, source)
  prefix = os.path.join(folder, "model.ckpt-best")
  # The released folders have a step, and the original's programs read it.
  tensors = {checkpoint_names.GLOBAL_STEP: np.int64(0), **checkpoint.carried}
  tensor_bundle.write_bundle(prefix, tensors)
  config.to_json_file(os.path.join(folder, runs.CONFIG_FILE))
  if checkpoint.tokenizer:
    checkpoint.tokenizer.copy_to(folder)
  return prefix


def write_own(checkpoint: portable.PortableCheckpoint, folder: str) -> str:
  """Writes a folder like that of a run and returns the checkpoint's prefix.

  run_pretraining, run_finetuning and export_saved_model accept the folder as
  --init_checkpoint. If it holds optimizer state, run_pretraining can resume
  from it as --model_dir.

  Raises:
    OSError: the folder cannot be written.
  """
  config, tokenizer = checkpoint.config, checkpoint.tokenizer
  settings: dict[str, Any] = {"labels": list(checkpoint.labels) or None}
  if checkpoint.task:  # Its settings change the answers.
    settings |= (checkpoint.record.get("data") or {}).get("settings") or {}
  if checkpoint.pooling:
    settings |= dataclasses.asdict(checkpoint.pooling)
  data: dict[str, Any] = {
    "head": checkpoint.head,
    "max_seq_length": checkpoint.max_seq_length,
    "settings": settings,
  }
  if checkpoint.task:
    data["task"] = checkpoint.task
  if tokenizer:
    data["tokenizer"] = tokenizer.record(config.vocab_size)
    tokenizer.copy_to(folder)
  runs.write_run(folder, config, {}, data)
  variables = {
    row: tf.Variable(np.asarray(checkpoint.tensors[row.tf1]), dtype=tf.float32)
    for row in checkpoint.rows
  }
  model = portable.tree({row.own: x for row, x in variables.items()})
  parts = {"model": model}
  if checkpoint.slots:
    # It has the variables of LAMB as a run saves them, with the weight decay. A
    # schedule replaces the learning rate, which is not saved then.
    optimizer = tf.keras.optimizers.legacy.Adam(lambda: 0.0)
    optimizer._set_hyper("weight_decay", 0.01)
    optimizer._create_all_weights(list(variables.values()))
    optimizer.iterations.assign(checkpoint.step)
    for row, variable in variables.items():
      for suffix, slot in checkpoint_names.SLOTS.items():
        value = np.asarray(checkpoint.tensors[f"{row.tf1}/{suffix}"])
        optimizer.get_slot(variable, slot).assign(value)
    # Other formats do not store the position in the training data.
    examples_seen = tf.Variable(np.int64(0))
    parts.update(optimizer=optimizer, examples_seen=examples_seen)
  elif checkpoint_names.GLOBAL_STEP in checkpoint.tensors:
    step = tf.Variable(np.int64(checkpoint.step))
    parts["optimizer"] = tf.train.Checkpoint(iter=step)
  return tf.train.CheckpointManager(
    tf.train.Checkpoint(**parts),
    folder,
    max_to_keep=1,
    checkpoint_name=runs.CHECKPOINT_NAME,
  ).save(checkpoint_number=checkpoint.step)
