"""Model folders of Hugging Face: config.json, model.safetensors, tokenizer.

pytorch_model.bin is a pickle, which can run code. It is read only by
torch.load(weights_only=True), and only by versions in which that is safe.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import re
import struct
from typing import Any, Callable, Mapping, NamedTuple, Optional, Sequence

import numpy as np
import safetensors
import tensorflow  # noqa: F401  It registers NumPy's dtype bfloat16.

from official_albert import files, modeling
from official_albert.checkpoints import hf_config, hf_tokenizer, portable
from official_albert.checkpoints import names as checkpoint_names

WEIGHTS_FILE = "model.safetensors"
_BIN_FILE = "pytorch_model.bin"
# Older versions of weights_only can be fooled (CVE-2025-32434).
_SAFE_TORCH = (2, 6)
_FLOATS = ("F64", "F32", "F16", "BF16")
# Copies of tied weights.
_DECODER = "predictions.decoder.weight"
_DECODER_BIAS = "predictions.decoder.bias"
_BIAS = "predictions.bias"
_COPIES = {
  _DECODER: "albert.embeddings.word_embeddings.weight",
  _DECODER_BIAS: _BIAS,
}
_OUTPUT_BIAS = "cls/predictions/output_bias"
# Constants that are saved with a model.
_BUFFERS = re.compile(r"embeddings\.(position_ids|token_type_ids)$")


def read(
  path: str,
  head: str = "",
  include_optimizer: bool = False,
  config_file: str = "",
) -> portable.PortableCheckpoint:
  """Reads a folder; for the arguments see `tf1_checkpoints`.

  Raises:
    ValueError, OSError: a file is missing or damaged, or the weights do not
      fit config.json.
  """
  del config_file  # A folder of Hugging Face has a config.json of its own.
  if include_optimizer:
    raise ValueError(
      "a Hugging Face folder holds no optimizer state: leave out "
      "--include_optimizer."
    )
  values = hf_config.read(path)
  config_path = os.path.join(path, hf_config.HF_CONFIG_FILE)
  config = hf_config.from_hf(values, config_path)
  weights = _open(path)
  shapes, get = weights.shapes, weights.get
  # The file's names by those of a model with an `albert`.
  names = {
    name: name
    for name in shapes
    if name not in _COPIES and not _BUFFERS.search(name)
  }
  copies = [name for name in _COPIES if name in shapes]
  if _DECODER_BIAS in copies and _BIAS not in names:
    copies.remove(_DECODER_BIAS)
    names[_BIAS] = _DECODER_BIAS
  if not any(name.startswith("albert.") for name in names):
    names = {f"albert.{name}": name for name in names}  # An AlbertModel.
  if config.embedding_size == config.hidden_size:
    config = _resolve_projection(config, names, weights)
  head = head or hf_config.head_of(values)
  given: dict[str, str] = {}
  transposed = set()
  for row in _all_rows(config, head):
    if row.hf in names:
      given[row.tf1] = names.pop(row.hf)
      if row.transposed:
        transposed.add(row.tf1)
  given.update(names)
  stored = {
    name: shapes[own][::-1] if name in transposed else shapes[own]
    for name, own in given.items()
  }
  notes: list[str] = []
  if config.hidden_act == "gelu_erf":
    notes.append(
      f"{config_path} has hidden_act {values['hidden_act']!r}, the exact GELU, "
      "which is gelu_erf here. Google's releases were trained with the tanh "
      "form: if these weights are of a release, the file is wrong "
      "(transformers issue 2395), so write gelu_new there."
    )
  step = _step(weights, notes)
  if step is not None:
    stored[checkpoint_names.GLOBAL_STEP] = ()

  def load(name: str) -> np.ndarray:
    if name == checkpoint_names.GLOBAL_STEP:
      return np.array(step, np.int64)
    value = get(given[name])
    return value.T if name in transposed else value

  # The architecture may name a head that was not saved.
  if head in ("pretraining", "squad1") and not checkpoint_names.has_head(
    head, stored
  ):
    head = ""
  result = portable.select(path, config, stored, load, head, given_names=given)
  result.notes += notes
  for name, dtype in weights.dtypes.items():
    if name not in shapes and not _BUFFERS.search(name):
      result.unexpected[name] = f"not floating point, but {dtype}"
  if "F64" in weights.dtypes.values():
    result.notes.append(f"float64 values of {weights.path} became float32.")
  for copy in copies:
    if _OUTPUT_BIAS in result.tensors:
      _check_copy(copy, weights, result)
    else:
      result.unexpected[copy] = (
        f"not part of an encoder with head {result.head}"
      )
  result.tokenizer = hf_tokenizer.read(path, result.notes)
  result.labels = hf_config.labels_of(values)
  result.multi_label = hf_config.is_multi_label(values)
  if result.head == "classification" and result.labels:
    classes = stored["output_weights"][0]
    if len(result.labels) != classes:
      raise ValueError(
        f"{path} has {classes} classes, but names {len(result.labels)} in "
        f"id2label of {hf_config.HF_CONFIG_FILE}: they belong to different "
        "models."
      )
  return result


def write(checkpoint: portable.PortableCheckpoint, folder: str) -> str:
  """Writes a folder for `from_pretrained`; returns the weights' path.

  Raises:
    ValueError: transformers has no such head, or would use other groups.
    OSError: it cannot be written.
  """
  config, head = checkpoint.config, checkpoint.head
  if head not in hf_config.ARCHITECTURES:
    raise ValueError(
      f"Hugging Face has no model with the head {head}: give --head=none for "
      "the encoder alone."
    )
  # In an AlbertModel, names do not begin with "albert.".
  cut = len("albert.") if head == "none" else 0
  by_hf = {
    row.hf[cut:]: row
    for row in checkpoint.rows
    if not checkpoint_names.may_lack(head, row.tf1)
  }
  shapes = portable.shapes_of(checkpoint.tensors)
  out = {
    name: shapes[row.tf1][::-1] if row.transposed else shapes[row.tf1]
    for name, row in by_hf.items()
  }
  made: dict[str, np.ndarray] = {}
  if not config.has_projection:
    # transformers always has a projection; this one changes no value.
    kernel, bias = (row.hf[cut:] for row in checkpoint_names.PROJECTION)
    made[kernel] = np.eye(config.hidden_size, dtype=np.float32)
    made[bias] = np.zeros([config.hidden_size], np.float32)
    out.update({name: value.shape for name, value in made.items()})

  def get(name: str) -> np.ndarray:
    if name in made:
      return made[name]
    value = checkpoint.tensors[by_hf[name].tf1]
    return value.T if by_hf[name].transposed else value

  metadata = {"format": "pt"}  # Required by transformers.
  if checkpoint_names.GLOBAL_STEP in checkpoint.tensors:
    metadata["global_step"] = str(checkpoint.step)
  path = os.path.join(folder, WEIGHTS_FILE)
  _write_safetensors(path, out, get, metadata)
  settings = hf_config.to_hf(
    config,
    head,
    checkpoint.labels,
    shapes.get("output_weights", (0,))[0],
    hf_tokenizer.special_ids(checkpoint.tokenizer),
  )
  config_path = os.path.join(folder, hf_config.HF_CONFIG_FILE)
  files.write_json(config_path, settings, indent=2, sort_keys=True)
  if checkpoint.tokenizer:
    obstacle = hf_tokenizer.write(
      checkpoint.tokenizer, folder, config.max_position_embeddings
    )
    if obstacle:
      checkpoint.notes.append(
        f"no {hf_tokenizer.FAST_FILE} was written: {obstacle}; transformers "
        "may give other ids, see README.md in the folder."
      )
  return path


def _all_rows(config, head: str) -> tuple[checkpoint_names.Row, ...]:
  """Returns rows by which to translate names; those of `head` come first."""
  heads = [head] if head in checkpoint_names.HEADS else []
  heads += ["pretraining", "squad1", "classification"]
  rows = {
    row.hf: row
    for name in reversed(heads)
    for row in checkpoint_names.HEADS[name]
    if row.hf
  }
  return (*checkpoint_names.encoder_rows(config), *rows.values())


class _Weights(NamedTuple):
  """An open file of weights.

  Attributes:
    path: of the file.
    shapes: of the floating point values, by name.
    get: returns such a value as <float32>.
    dtypes: of all values by name, as in safetensors: F32, BF16, I64.
    metadata: strings by name.
  """

  path: str
  shapes: dict[str, tuple[int, ...]]
  get: Callable[[str], np.ndarray]
  dtypes: dict[str, str]
  metadata: dict[str, str]


def _open(folder: str) -> _Weights:
  path = os.path.join(folder, WEIGHTS_FILE)
  if os.path.exists(path):
    return _open_safetensors(path)
  if os.path.exists(f"{path}.index.json"):
    raise ValueError(
      f"{folder} holds its weights in several files, which is not supported: "
      "save it with transformers' save_pretrained(max_shard_size='50GB')."
    )
  path = os.path.join(folder, _BIN_FILE)
  if not os.path.exists(path):
    raise FileNotFoundError(
      f"{folder} holds neither {WEIGHTS_FILE} nor {_BIN_FILE}."
    )
  return _open_bin(path)


def _open_safetensors(path: str) -> _Weights:
  """Opens the file; the library compares its header with its size."""
  try:
    file = safetensors.safe_open(path, framework="numpy")
    names = file.keys()
    slices = {name: file.get_slice(name) for name in names}
    dtypes = {name: value.get_dtype() for name, value in slices.items()}
  except Exception as error:  # SafetensorError has no useful base class.
    raise ValueError(
      f"{path} is damaged or truncated ({error}): copy it again."
    ) from error
  return _Weights(
    path,
    {
      name: tuple(value.get_shape())
      for name, value in slices.items()
      if dtypes[name] in _FLOATS
    },
    lambda name: np.asarray(file.get_tensor(name), np.float32),
    dtypes,
    file.metadata() or {},
  )


def _open_bin(path: str) -> _Weights:
  """Opens a pickle of tensors without running any of its code."""
  advice = (
    f"{path} is a pickle, which only torch 2.6 or newer reads safely: install "
    "it (pip install torch), or save the model as model.safetensors."
  )
  try:
    # Not a requirement of this package.
    torch = importlib.import_module("torch")
    version = tuple(map(int, re.findall(r"\d+", torch.__version__)[:2]))
  except ImportError as error:
    raise ValueError(advice) from error
  if version < _SAFE_TORCH:
    raise ValueError(advice)
  try:
    state = torch.load(path, map_location="cpu", weights_only=True)
    state = {n: value for n, value in state.items() if torch.is_tensor(value)}
  except Exception as error:  # torch documents no classes of errors.
    raise ValueError(
      f"{path} holds something other than tensors, or is damaged; no code of "
      "it was run."
    ) from error
  dtypes = {n: str(v.dtype).rpartition(".")[2] for n, v in state.items()}
  return _Weights(
    path,
    {n: tuple(v.shape) for n, v in state.items() if v.is_floating_point()},
    lambda name: state[name].float().numpy(),
    {n: "F64" if d == "float64" else d for n, d in dtypes.items()},
    {},
  )


def _write_safetensors(
  path: str,
  shapes: Mapping[str, Sequence[int]],
  get: Callable[[str], np.ndarray],
  metadata: Mapping[str, str],
) -> None:
  """Writes float32 values one at a time; the library needs all at once.

  The format is a length, a JSON header and the values
  (github.com/huggingface/safetensors).
  """
  header: dict[str, Any] = {"__metadata__": dict(metadata)}
  offset = 0
  for name in sorted(shapes):
    end = offset + 4 * int(np.prod(shapes[name], dtype=np.int64))
    header[name] = {
      "dtype": "F32",
      "shape": list(shapes[name]),
      "data_offsets": [offset, end],
    }
    offset = end
  text = json.dumps(header, separators=(",", ":")).encode()
  text += b" " * (-len(text) % 8)  # Values are aligned.
  with open(path, "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text)
    for name in sorted(shapes):
      file.write(np.asarray(get(name), "<f4", order="C").data)


def _step(weights: _Weights, notes: list[str]) -> Optional[int]:
  """Returns the training step; None if the file has none."""
  text = weights.metadata.get("global_step")
  if text is None:
    return None
  if re.fullmatch(r"[0-9]{1,18}", text):  # What int64 can hold.
    return int(text)
  notes.append(
    f"{weights.path} has global_step {text[:40]!r}, which is not a step and is "
    "ignored."
  )
  return None


def _check_copy(
  copy: str, weights: _Weights, result: portable.PortableCheckpoint
) -> None:
  """Compares a copy of a tied weight with the original.

  Raises:
    ValueError: the word table and its copy differ.
  """
  original = _COPIES[copy]
  name = original.removeprefix("albert.")
  name = original if original in weights.shapes else name
  if weights.shapes[copy] == weights.shapes.get(name) and np.array_equal(
    weights.get(copy), weights.get(name)
  ):
    return
  if copy != _DECODER_BIAS:
    raise ValueError(
      f"{copy} differs from {original} in {weights.path}: in ALBERT they are "
      "the same weights."
    )
  # transformers ties them on loading: the model computes with `original`.
  result.unexpected[copy] = f"differs from {original}, which is used"
  result.notes.append(
    f"{copy} and {original} differ in {weights.path}: {original} is used, as "
    "in transformers."
  )


def _resolve_projection(
  config: modeling.AlbertConfig, names: dict[str, str], weights: _Weights
) -> modeling.AlbertConfig:
  """Drops a projection E -> H with E = H if it is the identity.

  Args:
    config: the encoder, without that projection.
    names: the file's names by Hugging Face's; an identity is removed.
    weights: the file.

  Returns:
    The configuration, with the projection unless it is the identity.
  """
  size = config.hidden_size
  identity = {2: np.eye(size), 1: np.zeros([size])}
  rows = [row.hf for row in checkpoint_names.PROJECTION if row.hf in names]
  for name in rows:
    value = weights.get(names[name])
    if not np.array_equal(value, identity.get(value.ndim)):
      return dataclasses.replace(config, always_project_embedding=True)
  for name in rows:
    del names[name]
  return config
