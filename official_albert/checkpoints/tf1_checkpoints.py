"""Reads and writes google-research/albert checkpoints; reads its Hub modules.

Of a Hub module only the files in variables/ are read, not the graph.
"""

from __future__ import annotations

import dataclasses
import os
import re
from typing import Mapping, Sequence

import numpy as np

from official_albert import modeling
from official_albert.checkpoints import checkpoint_files, portable
from official_albert.checkpoints import names as checkpoint_names

CHECKPOINT_NAME = "model.ckpt-best"
_PROGRAM = "google-research/albert"


def read_tf1_checkpoint(
  path: str,
  head: str = "",
  include_optimizer: bool = False,
  config_file: str = "",
) -> portable.PortableCheckpoint:
  """Reads a checkpoint or the folder of a Hub module.

  Args:
    path: see `checkpoint_files.find_prefix`.
    head: a key of `names.HEADS`; "" detects it.
    include_optimizer: whether to include optimizer state.
    config_file: the default is the albert_config*.json beside the checkpoint;
      if there is none, the configuration is inferred from the shapes.

  Raises:
    ValueError, OSError: there is no valid checkpoint.
  """
  prefix = checkpoint_files.find_prefix(path)
  bundle = checkpoint_files.TensorBundle(prefix)
  # Names in a TF1 Hub module begin with "module/".
  stored = {
    name.removeprefix("module/"): value for name, value in bundle.values.items()
  }
  folders = checkpoint_files.folders_of(prefix)
  config_file = config_file or checkpoint_files.find_only_file(
    folders, checkpoint_files.CONFIG_FILE, "albert_config*.json"
  )
  if config_file:
    config = modeling.AlbertConfig.from_json_file(config_file)
    note = _dropout_note(config, config_file)
  else:
    config, note = infer_config(prefix, {n: v.shape for n, v in stored.items()})
  checkpoint_names.check_groups(config, _PROGRAM, prefix)
  result = portable.select(prefix, config, stored, head, include_optimizer)
  result.tokenizer = checkpoint_files.find_tokenizer(folders)
  result.notes += [note] if note else []
  return result


def write_tf1_checkpoint(
  checkpoint: portable.PortableCheckpoint, folder: str
) -> str:
  """Writes a folder and returns the checkpoint's prefix.

  Raises:
    ValueError: google-research/albert lacks the activation or the projection,
      or assigns layers to other groups.
    OSError: the folder cannot be written.
  """
  config, source = checkpoint.config, checkpoint.source
  wrong = "the converted model would compute something else."
  if config.hidden_act == "gelu_erf":
    raise ValueError(
      f"{source} has hidden_act gelu_erf, the exact GELU, but the gelu of "
      f"{_PROGRAM} is the tanh approximation: {wrong}"
    )
  if config.always_project_embedding:
    raise ValueError(
      f"{source} has a projection between equal widths, embedding_size and "
      f"hidden_size {config.hidden_size}, which {_PROGRAM} does not have: "
      f"{wrong}"
    )
  checkpoint_names.check_groups(config, _PROGRAM, source)
  prefix = os.path.join(folder, CHECKPOINT_NAME)
  tensors = dict(checkpoint.tensors)
  # The released folders have it, and the original's programs read it.
  tensors.setdefault(checkpoint_names.GLOBAL_STEP, np.int64(0))
  checkpoint_files.write_bundle(prefix, tensors)
  config.to_json_file(os.path.join(folder, checkpoint_files.CONFIG_FILE))
  if checkpoint.tokenizer:
    checkpoint.tokenizer.copy_to(folder)
  return prefix


def _dropout_note(config: modeling.AlbertConfig, path: str) -> str:
  # Early Hub modules have 0.1, the archives have 0 (google-research/albert
  # issues 23 and 78).
  if not (config.hidden_dropout_prob or config.attention_probs_dropout_prob):
    return ""
  return (
    f"{os.path.basename(path)} sets hidden_dropout_prob "
    f"{config.hidden_dropout_prob:g} and attention_probs_dropout_prob "
    f"{config.attention_probs_dropout_prob:g}, which are kept; v2 was trained "
    "without dropout, and early Hub modules may say otherwise."
  )


def infer_config(
  source: str, shapes: Mapping[str, Sequence[int]]
) -> tuple[modeling.AlbertConfig, str]:
  """Infers a configuration from shapes by TF1 names; also returns a note.

  Shapes do not determine the number of layers, the number of heads, the
  activation or the dropout rates. These come from the release with the same
  shapes.
  """
  advice = f"{source} has no configuration: give --albert_config_file."
  group = "bert/encoder/transformer/group_0/inner_group_0"
  try:
    vocab_size, embedding_size = shapes["bert/embeddings/word_embeddings"]
    sizes = shapes[f"{group}/ffn_1/intermediate/dense/kernel"]
    positions, _ = shapes["bert/embeddings/position_embeddings"]
    types, _ = shapes["bert/embeddings/token_type_embeddings"]
  except (KeyError, ValueError) as error:
    raise ValueError(advice) from error
  blocks = re.findall(r"/group_(\d+)/inner_group_(\d+)/", " ".join(shapes))
  is_chinese = vocab_size == modeling.PRESETS["albert_base_zh"].vocab_size
  for name, preset in modeling.PRESETS.items():
    if (
      [preset.hidden_size, preset.intermediate_size] == list(sizes)
      and preset.sharing == "all"
      and not name.endswith("_v1")
      and name.endswith("_zh") == is_chinese
    ):
      config = dataclasses.replace(
        preset,
        vocab_size=vocab_size,
        embedding_size=embedding_size,
        max_position_embeddings=positions,
        type_vocab_size=types,
        num_hidden_groups=max(int(group) for group, _ in blocks) + 1,
        inner_group_num=max(int(inner) for _, inner in blocks) + 1,
      )
      return config, (
        f"{source} has no configuration: {config.num_hidden_layers} layers, "
        f"{config.num_attention_heads} heads, {config.hidden_act} and no "
        f"dropout are assumed, as in {name}, which has the same shapes; "
        "--albert_config_file overrides this."
      )
  raise ValueError(advice)
