"""Model folders of Hugging Face: config.json, model.safetensors, tokenizer.

A pytorch_model.bin is a pickle, which can run what it likes; it is read only by
torch.load(weights_only=True), of a torch in which that is safe.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import re
from typing import Any, Callable, NamedTuple, Optional

import numpy as np

from official_albert import files, modeling
from official_albert.checkpoints import (
  hf_config,
  hf_tokenizer,
  safetensors_files,
)
from official_albert.checkpoints import names as checkpoint_names
from official_albert.checkpoints import portable as portable_checkpoint

WEIGHTS_FILE = "model.safetensors"
_BIN_FILE = "pytorch_model.bin"
# Before, weights_only could be fooled (CVE-2025-32434).
_SAFE_TORCH = (2, 6)
# Copies of tied weights, and a range of numbers.
_DECODER = "predictions.decoder.weight"
_DECODER_BIAS = "predictions.decoder.bias"
_BIAS = "predictions.bias"
_COPIES = {
  _DECODER: "albert.embeddings.word_embeddings.weight",
  _DECODER_BIAS: _BIAS,
}
_OUTPUT_BIAS = "cls/predictions/output_bias"
_BUFFERS = re.compile(r"embeddings\.(position_ids|token_type_ids)$")


def read(
  path: str,
  head: str = "",
  include_optimizer: bool = False,
  config_file: str = "",
) -> portable_checkpoint.PortableCheckpoint:
  """Reads a folder; for arguments see `tf1_checkpoints.read`.

  Raises:
    ValueError, OSError: it is not there, damaged, or does not fit its
      config.json; one sentence.
  """
  del config_file  # A folder without config.json is none of Hugging Face.
  if include_optimizer:
    raise ValueError(
      "a Hugging Face folder holds no optimizer state: leave out "
      "--include_optimizer."
    )
  values = hf_config.read(path)
  config_path = os.path.join(path, hf_config.HF_CONFIG_FILE)
  config = hf_config.from_hf(values, config_path)
  weights, shapes, get, dtypes, metadata = _open(path)
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
    config = _settle_projection(config, names, shapes, get)
  head = head or hf_config.head_of(values)
  given: dict[str, str] = {}
  transposed = set()
  for row in _all_rows(config, head):
    if row.hf in names:
      given[row.tf1] = names.pop(row.hf)
      if row.transposed:
        transposed.add(row.tf1)
  stored = {
    name: shapes[own][::-1] if name in transposed else shapes[own]
    for name, own in given.items()
  }
  notes: list[str] = []
  if config.hidden_act == "gelu_erf":
    notes.append(
      f"{config_path} says hidden_act {values['hidden_act']!r}, the exact "
      "GELU, which is gelu_erf here; Google's releases were trained with the "
      "tanh form: if the weights are of one, the file is wrong (transformers "
      "issue 2395), write gelu_new there."
    )
  stored.update({name: shapes[own] for name, own in names.items()})
  given.update(names)
  step = _step(metadata, weights, notes)
  if step is not None:
    stored[checkpoint_names.GLOBAL_STEP] = ()

  def load(name: str) -> np.ndarray:
    if name == checkpoint_names.GLOBAL_STEP:
      return np.array(step, np.int64)
    value = get(given[name])
    return value.T if name in transposed else value

  if head in ("pretraining", "squad1") and not checkpoint_names_there(
    head, stored
  ):
    head = ""
  result = portable_checkpoint.select(
    path, config, stored, load, head, given_names=given
  )
  result.notes += notes
  for name, dtype in dtypes.items():
    if name not in shapes and not _BUFFERS.search(name):
      result.unexpected[name] = f"no floating point, but {dtype}"
  if "F64" in dtypes.values():
    result.notes.append(f"float64 values of {weights} became float32.")
  for copy in copies:
    if _OUTPUT_BIAS not in result.tensors:
      result.unexpected[copy] = (
        f"not part of an encoder with head {result.head}"
      )
    elif not _same(copy, _COPIES[copy], shapes, get):
      _settle(copy, weights, result)
  result.tokenizer = hf_tokenizer.read(path, result.notes)
  result.labels = hf_config.labels_of(values)
  result.multi_label = hf_config.is_multi_label(values)
  if result.head == "classification":
    shapes = portable_checkpoint.shapes_of(result.tensors)
    classes = shapes["output_weights"][0]
    if result.labels and len(result.labels) != classes:
      raise ValueError(
        f"{path} has {classes} classes, but names {len(result.labels)} in "
        f"id2label of {hf_config.HF_CONFIG_FILE}: they belong to different "
        "models."
      )
  return result


def write(
  checkpoint: portable_checkpoint.PortableCheckpoint, folder: str
) -> str:
  """Writes the folder that from_pretrained takes; returns the weights' path.

  Raises:
    ValueError: transformers has no such head, or other groups.
    OSError: it cannot be written.
  """
  config, head = checkpoint.config, checkpoint.head
  if head not in hf_config.ARCHITECTURES:
    raise ValueError(
      f"Hugging Face has no model with the head {head}: give --head=none for "
      "the encoder alone."
    )
  shapes = portable_checkpoint.shapes_of(checkpoint.tensors)
  by_hf = {}
  for row in checkpoint.rows:
    if carries(head, row.tf1):
      # An AlbertModel is no part of another model there.
      name = row.hf[len("albert.") :] if head == "none" else row.hf
      by_hf[name] = row
  out = {
    name: shapes[row.tf1][::-1] if row.transposed else shapes[row.tf1]
    for name, row in by_hf.items()
  }
  made: dict[str, np.ndarray] = {}
  if not config.has_projection:
    # transformers always has the projection; this one changes no value.
    kernel, bias = (row.hf for row in checkpoint_names.PROJECTION)
    cut = len("albert.") if head == "none" else 0
    made[kernel[cut:]] = np.eye(config.hidden_size, dtype=np.float32)
    made[bias[cut:]] = np.zeros([config.hidden_size], np.float32)
    out.update({name: value.shape for name, value in made.items()})

  def get(name: str) -> np.ndarray:
    if name in made:
      return made[name]
    value = checkpoint.tensors[by_hf[name].tf1]
    return value.T if by_hf[name].transposed else value

  metadata = {"format": "pt"}
  if checkpoint_names.GLOBAL_STEP in checkpoint.tensors:
    metadata["global_step"] = str(checkpoint.step)
  path = os.path.join(folder, WEIGHTS_FILE)
  safetensors_files.write(path, out, get, metadata)
  classes = shapes.get("output_weights", (0,))[0]
  settings = hf_config.to_hf(
    config,
    head,
    checkpoint.labels,
    classes,
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


def carries(head: str, name: str) -> bool:
  """Whether a folder with this head has the weight of a TF1 name.

  Models whose heads look at single tokens have no pooler there.
  """
  pooler = checkpoint_names.is_pooler(name)
  return not (pooler and head in checkpoint_names.WITHOUT_POOLER)


def _all_rows(config, head: str) -> tuple[checkpoint_names.Row, ...]:
  heads = [head] if head in checkpoint_names.HEADS else []
  heads += ["pretraining", "squad1", "classification"]
  rows = {
    row.hf: row
    for name in reversed(heads)
    for row in checkpoint_names.HEADS[name]
    if row.hf
  }
  return (*checkpoint_names.encoder_rows(config), *rows.values())


def checkpoint_names_there(head: str, stored) -> bool:
  """Whether all of a head's weights are there."""
  return all(row.tf1 in stored for row in checkpoint_names.HEADS[head])


class _Weights(NamedTuple):
  """The file of weights, opened.

  Attributes:
    path: of the file.
    shapes: of what is of floating point, by name.
    get: gives such a value as <float32>.
    dtypes: of everything, as safetensors writes them.
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
    file = safetensors_files.SafetensorsFile(path)
    shapes = {n: s for n, s in file.shapes.items() if file.is_float(n)}
    dtypes = {name: file.dtype(name) for name in file.shapes}
    return _Weights(path, shapes, file.get, dtypes, file.metadata)
  if os.path.exists(f"{path}.index.json"):
    raise ValueError(
      f"{folder} holds its weights in several files, which no ALBERT needs: "
      "save it with transformers' save_pretrained(max_shard_size='50GB')."
    )
  path = os.path.join(folder, _BIN_FILE)
  if not os.path.exists(path):
    raise FileNotFoundError(
      f"{folder} holds neither {WEIGHTS_FILE} nor {_BIN_FILE}."
    )
  state = _load_bin(path)
  floats = {n: v for n, v in state.items() if v.is_floating_point()}
  dtypes = {n: str(v.dtype).rpartition(".")[2] for n, v in state.items()}
  return _Weights(
    path,
    {name: tuple(value.shape) for name, value in floats.items()},
    lambda name: floats[name].float().numpy(),
    {n: "F64" if d == "float64" else d for n, d in dtypes.items()},
    {},
  )


def _step(
  metadata: dict[str, str], path: str, notes: list[str]
) -> Optional[int]:
  """The training step; None if nothing or nonsense is said of it."""
  text = metadata.get("global_step")
  if text is None:
    return None
  # Of more digits, int() refuses to read some; int64 has no room for others.
  if re.fullmatch(r"[0-9]{1,18}", text):
    return int(text)
  notes.append(
    f"{path} says global_step {text[:40]!r}, which is no step: it is taken as "
    "not known."
  )
  return None


def _load_bin(path: str) -> dict[str, Any]:
  """The tensors of a pickle, without running any of it."""
  advice = (
    f"{path} is a pickle, which only torch 2.6 or newer reads safely: install "
    "it (pip install torch), or save the model as model.safetensors."
  )
  try:
    # Not required, so no import that a list of packages has to know.
    torch = importlib.import_module("torch")
    version = tuple(map(int, re.findall(r"\d+", torch.__version__)[:2]))
  except ImportError as error:
    raise ValueError(advice) from error
  if version < _SAFE_TORCH:
    raise ValueError(advice)
  try:
    state = torch.load(path, map_location="cpu", weights_only=True)
    return {n: value for n, value in state.items() if torch.is_tensor(value)}
  except Exception as error:  # Of many kinds, none of them meant for a user.
    raise ValueError(
      f"{path} holds something else than tensors, or is damaged; nothing of it "
      "was run."
    ) from error


def _same(copy: str, original: str, shapes, get) -> bool:
  name = original if original in shapes else original[len("albert.") :]
  if shapes.get(copy) != shapes.get(name):
    return False
  return np.array_equal(get(copy), get(name))


def _settle(
  copy: str, path: str, result: portable_checkpoint.PortableCheckpoint
) -> None:
  """Says which of two differing tensors is taken, or that neither can be."""
  original = _COPIES[copy]
  if copy != _DECODER_BIAS:
    raise ValueError(
      f"{copy} differs from {original} in {path}: in ALBERT they are one."
    )
  # transformers ties them when it loads: the model computes with `original`.
  result.unexpected[copy] = f"differs from {original}, which is taken"
  result.notes.append(
    f"{copy} and {original} differ in {path}: {original} is taken, as in "
    "transformers, which ties the other to it."
  )


def _settle_projection(
  config: modeling.AlbertConfig, names: dict[str, str], shapes, get
) -> modeling.AlbertConfig:
  """Keeps a projection E -> H where E is H, unless it changes nothing.

  Args:
    config: the encoder, without that projection.
    names: the file's names by Hugging Face's; one that changes nothing is
      taken out.
    shapes: by the file's names.
    get: a value by the file's name.
  """
  given = [names[row.hf] for row in checkpoint_names.PROJECTION
           if row.hf in names]  # fmt: skip
  size = config.hidden_size
  nothing = {2: np.eye(size), 1: np.zeros([size])}
  if all(
    np.array_equal(get(own), nothing.get(len(shapes[own]))) for own in given
  ):
    for row in checkpoint_names.PROJECTION:
      names.pop(row.hf, None)
    return config
  return dataclasses.replace(config, always_project_embedding=True)
