"""Checkpoints of google-research/albert, and the variables of its Hub modules.

A Hub module's graph is never loaded: only its variables/ are read by name.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
from typing import Mapping, Sequence

import numpy as np

from official_albert import modeling, tokenization
from official_albert.checkpoints import checkpoint_files
from official_albert.checkpoints import names as checkpoint_names
from official_albert.checkpoints import portable as portable_checkpoint

CHECKPOINT_NAME = "model.ckpt-best"
_MODULE = "module/"


def read_tf1_checkpoint(
  path: str,
  head: str = "",
  include_optimizer: bool = False,
  config_file: str = "",
) -> portable_checkpoint.PortableCheckpoint:
  """Reads a checkpoint or the folder of a Hub module.

  Args:
    path: see `checkpoint_files.find_prefix`.
    head: a key of `checkpoint_names.HEADS`; "" to look.
    include_optimizer: whether to carry its state.
    config_file: by default the albert_config*.json beside the checkpoint, else
      what its shapes say.

  Raises:
    ValueError, OSError: it is not there, damaged, or does not fit its
      configuration; one sentence.
  """
  prefix = checkpoint_files.find_prefix(path)
  bundle = checkpoint_files.TensorBundle(prefix)
  given = {
    name[len(_MODULE) :] if name.startswith(_MODULE) else name: name
    for name in bundle.shapes
    if bundle.is_weight(name)
  }
  stored = {name: bundle.shapes[own] for name, own in given.items()}
  folders = checkpoint_files.folders_of(prefix)
  config_file = config_file or checkpoint_files.find_only_file(
    folders, checkpoint_files.CONFIG_FILE, "albert_config*.json"
  )
  if config_file:
    config = modeling.AlbertConfig.from_json_file(config_file)
    note = _dropout_note(config, config_file)
  else:
    config, note = infer_config(prefix, stored)
  _check_groups(config, prefix)
  result = portable_checkpoint.select(
    prefix,
    config,
    stored,
    lambda name: bundle.get(given[name]),
    head,
    include_optimizer,
    given,
  )
  result.tokenizer = checkpoint_files.find_tokenizer(folders)
  result.notes += [note] if note else []
  return result


def write_tf1_checkpoint(
  checkpoint: portable_checkpoint.PortableCheckpoint, folder: str
) -> str:
  """Writes checkpoint, configuration and tokenizer into an empty folder.

  Returns:
    The checkpoint's prefix.

  Raises:
    ValueError: the original has no such activation or projection, or would
      apply the groups in another order.
    OSError: it cannot be written.
  """
  _check_expressible(checkpoint.config, checkpoint.source)
  _check_groups(checkpoint.config, checkpoint.source)
  prefix = os.path.join(folder, CHECKPOINT_NAME)
  tensors = {name: checkpoint.tensors[name] for name in checkpoint.tensors}
  # The releases have it, and the original's programs look for it.
  tensors.setdefault(checkpoint_names.GLOBAL_STEP, np.int64(0))
  checkpoint_files.write_bundle(prefix, tensors)
  checkpoint.config.to_json_file(
    os.path.join(folder, checkpoint_files.CONFIG_FILE)
  )
  if checkpoint.tokenizer:
    name = tokenization.TOKENIZER_FILES[checkpoint.tokenizer.kind]
    shutil.copyfile(checkpoint.tokenizer.path, os.path.join(folder, name))
  return prefix


def _check_expressible(config: modeling.AlbertConfig, source: str) -> None:
  if config.hidden_act == "gelu_erf":
    raise ValueError(
      f"{source} has hidden_act gelu_erf, the exact GELU, but the gelu of "
      "google-research/albert is the tanh approximation: it cannot be "
      "converted without computing something else."
    )
  if config.always_project_embedding:
    raise ValueError(
      f"{source} has a projection between equal widths, embedding_size and "
      f"hidden_size {config.hidden_size}, which google-research/albert does "
      "not have: it cannot be converted without computing something else."
    )


def _check_groups(config: modeling.AlbertConfig, source: str) -> None:
  for layer in range(config.num_hidden_layers):
    theirs = int(layer / config.num_hidden_layers * config.num_hidden_groups)
    if theirs != config.group_of_layer(layer):
      raise ValueError(
        f"{source} has {config.num_hidden_groups} groups for "
        f"{config.num_hidden_layers} layers, for which google-research/albert "
        f"rounds layer {layer} to group {theirs} and this package to "
        f"{config.group_of_layer(layer)}: it cannot be converted without "
        "computing something else."
      )


def _dropout_note(config: modeling.AlbertConfig, path: str) -> str:
  """Configurations of one release differ in their dropouts; see the README.

  The early Hub modules say 0.1 where the archives say 0 (google-research/albert
  issues 23 and 78).
  """
  return (
    f"{os.path.basename(path)} says hidden_dropout_prob "
    f"{config.hidden_dropout_prob:g} and attention_probs_dropout_prob "
    f"{config.attention_probs_dropout_prob:g}, which are kept; v2 was trained "
    "without, and early Hub modules may say otherwise."
    if config.hidden_dropout_prob or config.attention_probs_dropout_prob
    else ""
  )


_GROUP = re.compile(r"/group_(\d+)/inner_group_(\d+)/")


def infer_config(
  source: str, shapes: Mapping[str, Sequence[int]]
) -> tuple[modeling.AlbertConfig, str]:
  """Infers a configuration from shapes; also returns what was assumed.

  Shapes do not determine how often shared layers are applied, the number of
  heads, the activation or the dropouts: those are taken from the release that
  has the same shapes.

  Args:
    source: for messages.
    shapes: by TF1 names.

  Raises:
    ValueError: no release has these shapes.
  """
  advice = f"{source} has no configuration: give --albert_config_file."
  try:
    vocab_size, embedding_size = shapes["bert/embeddings/word_embeddings"]
    block = "bert/encoder/transformer/group_0/inner_group_0"
    hidden, intermediate = shapes[f"{block}/ffn_1/intermediate/dense/kernel"]
    positions, _ = shapes["bert/embeddings/position_embeddings"]
    types, _ = shapes["bert/embeddings/token_type_embeddings"]
  except (KeyError, ValueError) as error:
    raise ValueError(advice) from error
  blocks = [
    tuple(map(int, m.groups())) for m in map(_GROUP.search, shapes) if m
  ]
  for name, preset in modeling.PRESETS.items():
    same = (preset.hidden_size, preset.intermediate_size) == (
      hidden,
      intermediate,
    )
    chinese = vocab_size == modeling.PRESETS["albert_base_zh"].vocab_size
    if same and preset.sharing == "all" and name.endswith("_v1") == 0:
      if name.endswith("_zh") != chinese:
        continue
      config = dataclasses.replace(
        preset,
        vocab_size=vocab_size,
        embedding_size=embedding_size,
        max_position_embeddings=positions,
        type_vocab_size=types,
        num_hidden_groups=max(group for group, _ in blocks) + 1,
        inner_group_num=max(inner for _, inner in blocks) + 1,
      )
      return config, (
        f"{source} has no configuration: {config.num_hidden_layers} layers, "
        f"{config.num_attention_heads} heads, {config.hidden_act} and no "
        f"dropout are assumed, as in {name}, which has the same shapes; "
        "--albert_config_file says otherwise."
      )
  raise ValueError(advice)
