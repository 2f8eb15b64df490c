"""Model folders of Hugging Face: config.json and model.safetensors.

pytorch_model.bin is a pickle, which can run code, and is refused.

Source: github.com/huggingface/safetensors.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
from typing import Any

import numpy as np
import safetensors.numpy
import tensorflow  # noqa: F401  It registers NumPy's dtype bfloat16.

from official_albert import files, modeling
from official_albert.checkpoints import (
  hf_config,
  hf_tokenizer,
  hf_tokenizer_reader,
  portable,
  tensor_bundle,
)
from official_albert.checkpoints import names as checkpoint_names

_WEIGHTS_FILE = "model.safetensors"
# The largest models have about a thousand variables.
_MAX_NAMES = 50_000

# Files with which transformers or sentence-transformers compute other outputs.
_ADAPTER_FILE, _MODULES_FILE = "adapter_config.json", "modules.json"
# Copies of tied weights. transformers 4 computes with the originals, 5 with the
# copies if they differ.
_BIAS, _BIAS_COPY = "predictions.bias", "predictions.decoder.bias"
_COPIES = {
  "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
  _BIAS_COPY: _BIAS,
}
# Constants that Hugging Face saves with the weights.
_BUFFERS = re.compile(r"embeddings\.(position_ids|token_type_ids)$")

_Values = dict[str, tensor_bundle.LazyArray]


def read(path: str, head: str = "") -> portable.PortableCheckpoint:
  """Reads a folder, with a head of `names.HEADS`; "" detects it.

  Raises:
    ValueError, OSError: a file is missing or damaged, or the weights do not
      fit config.json.
  """
  config_path = os.path.join(path, hf_config.CONFIG_FILE)
  settings = files.read_json(config_path, dict[str, Any], "copy it again")
  config = hf_config.config_of(settings, config_path)
  if files.exists(os.path.join(path, _ADAPTER_FILE)):
    raise ValueError(
      f"{path} has an adapter ({_ADAPTER_FILE}), which changes the weights: "
      "merge it by merge_and_unload of PEFT, and save the whole model."
    )
  notes, problem = [], ""
  if files.exists(os.path.join(path, _MODULES_FILE)):
    notes.append(
      f"{path} is of sentence-transformers: the pooling and the layers that "
      f"{_MODULES_FILE} names are not applied, so choose the pooling yourself."
    )
  values = {n: x for n, x in _open(path).items() if not _BUFFERS.search(n)}
  if not any(name.startswith("albert.") for name in values):
    values = {f"albert.{name}": value for name, value in values.items()}
  if _BIAS_COPY in values:
    values.setdefault(_BIAS, values[_BIAS_COPY])
  copies = [x for x in _COPIES if x in values and _COPIES[x] in values]
  differing = [
    copy
    for copy in copies
    if not np.array_equal(values.pop(copy), values[_COPIES[copy]])
  ]
  if differing:
    notes.append(
      f"{files.quote(*differing)} differ from what they copy, which is used, "
      "as in transformers 4; version 5 uses the copies."
    )
  if not settings.get("tie_word_embeddings", True) and (
    differing or not copies
  ):
    problem = f"{config_path} has tie_word_embeddings false"
  if config.embedding_size == config.hidden_size:
    config = _resolve_projection(config, values)
  stored = {}
  for row in checkpoint_names.all_rows(config):
    if row.hf in values:
      value = values.pop(row.hf)
      stored[row.tf1] = _transposed(value) if row.transposed else value
  if values:
    notes.append(
      f"the weights {files.quote(*sorted(values))} are of no model here: they "
      "have no part in its outputs."
    )
  stored.update(values)
  try:
    chosen, labels = hf_config.head_of(config_path, stored, head)
    if problem and chosen in ("pretraining", "masked_lm"):
      raise hf_config.NoHead(problem)
    problem = ""
  except hf_config.NoHead as error:
    problem, chosen, labels = str(error), "none", ()
    if head not in ("", "none"):
      raise ValueError(f"{problem}; --head=none reads the rest.") from error
  result = portable.select(path, config, stored, chosen)
  result.format = "hf"
  step = settings.get(checkpoint_names.GLOBAL_STEP)
  if type(step) is int and 0 <= step < 2**63:
    result.tensors[checkpoint_names.GLOBAL_STEP] = np.int64(step)
  result.notes += notes
  if config.hidden_act == "gelu_erf":
    result.notes.append(
      f"{config_path} has hidden_act {settings['hidden_act']!r}, the exact "
      "GELU. Google's releases were trained with the tanh form: write gelu_new "
      "there if these weights are of one (transformers issue 2395)."
    )
  result.tokenizer = hf_tokenizer_reader.read(path, result.notes)
  if result.tokenizer and not result.tokenizer.problem:
    result.notes.append(
      f"texts are tokenized with {os.path.basename(result.tokenizer.path)} by "
      "the rules of this package; transformers may give other ids, see "
      "docs/checkpoints.md"
    )
  result.labels = labels
  if problem:
    result.head_problem = problem
    result.notes.append(f"{problem}; only the encoder is used.")
  return result


def _transposed(value: tensor_bundle.LazyArray) -> tensor_bundle.LazyArray:
  return tensor_bundle.LazyArray(
    value.name, value.shape[::-1], lambda: value.read().T
  )


def _identity(
  row: checkpoint_names.Row, config: modeling.AlbertConfig
) -> np.ndarray:
  """Returns the kernel or the bias of an identity projection."""
  size = config.hidden_size
  return np.eye(size) if row.transposed else np.zeros(size)


def _resolve_projection(
  config: modeling.AlbertConfig, values: _Values
) -> modeling.AlbertConfig:
  """Removes a projection E -> E that is the identity; else enables it."""
  rows = [row for row in checkpoint_names.PROJECTION if row.hf in values]
  for row in rows:
    value = values[row.hf]
    # The shape first, because a wrong configuration may fill the memory.
    if {*value.shape} != {config.hidden_size} or not np.array_equal(
      value, _identity(row, config)
    ):
      return dataclasses.replace(config, always_project_embedding=True)
  for row in rows:
    del values[row.hf]
  return config


def write(checkpoint: portable.PortableCheckpoint, folder: str) -> str:
  """Writes a folder for `from_pretrained`; returns the weights' path.

  The head of the checkpoint must be in `hf_config.ARCHITECTURES`.

  Raises:
    ValueError: transformers would assign layers to other groups.
    OSError: it cannot be written.
  """
  config, head = checkpoint.config, checkpoint.head
  arrays: dict[checkpoint_names.Row, portable.Array] = {
    row: checkpoint.tensors[row.tf1]
    for row in checkpoint.rows
    if not checkpoint_names.may_lack(head, row.tf1)
  }
  if not config.has_projection:
    # transformers always has a projection, so write an identity.
    for row in checkpoint_names.PROJECTION:
      arrays[row] = _identity(row, config)
  # In an AlbertModel, names do not begin with "albert.".
  cut = len("albert.") if head == "none" else 0
  values = {}
  for row, array in arrays.items():
    array = np.asarray(array, np.float32)
    values[row.hf[cut:]] = np.ascontiguousarray(
      array.T if row.transposed else array
    )
  path = os.path.join(folder, _WEIGHTS_FILE)
  try:
    # transformers requires the metadata.
    safetensors.numpy.save_file(values, path, {"format": "pt"})
  except safetensors.SafetensorError as error:
    raise OSError(
      f"{_WEIGHTS_FILE} cannot be written ({error}): make room and give the "
      "same command again."
    ) from error
  settings = hf_config.settings_of(
    config, head, checkpoint.labels, checkpoint.classes
  )
  if checkpoint_names.GLOBAL_STEP in checkpoint.tensors:
    settings[checkpoint_names.GLOBAL_STEP] = checkpoint.step
  if checkpoint.tokenizer:
    tokenizer = checkpoint.tokenizer.open()
    settings.update(
      pad_token_id=tokenizer.pad_id,
      bos_token_id=tokenizer.cls_id,
      eos_token_id=tokenizer.sep_id,
    )
    hf_tokenizer.write(
      checkpoint.tokenizer, folder, config.max_position_embeddings
    )
  config_path = os.path.join(folder, hf_config.CONFIG_FILE)
  files.write_json(config_path, settings, indent=2, sort_keys=True)
  return path


def _open(folder: str) -> _Values:
  """Returns the floating-point values of a folder."""
  path = os.path.join(folder, _WEIGHTS_FILE)
  if not files.exists(path):
    raise FileNotFoundError(
      f"{folder} has no {_WEIGHTS_FILE}: save pickles (pytorch_model.bin) and "
      "weights in several files again, by save_pretrained of transformers with "
      'safe_serialization=True and max_shard_size="50GB".'
    )
  # The file stays open for its values, even if it is a temporary copy.
  with files.local_copy(path) as local_path:
    try:
      file = safetensors.safe_open(local_path, framework="numpy")
      names = file.keys()
      if len(names) > _MAX_NAMES:
        raise ValueError(f"it has {len(names):,} tensors")
      slices = {name: file.get_slice(name) for name in names}
    except Exception as error:  # SafetensorError is a plain Exception.
      raise ValueError(
        f"{path} is damaged or truncated ({str(error)[:120]}): copy it again."
      ) from error

  def read(name: str) -> np.ndarray:
    try:
      return np.asarray(file.get_tensor(name), np.float32)
    except Exception as error:  # For example a number of 8 bits.
      raise ValueError(
        f"{name} in {path} cannot be read ({error}): save the model in float32 "
        "or bfloat16."
      ) from error

  return {
    name: tensor_bundle.LazyArray(
      name, tuple(part.get_shape()), functools.partial(read, name)
    )
    for name, part in slices.items()
    if "F" in part.get_dtype()  # F32, BF16, ...
  }
