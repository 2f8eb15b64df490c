"""HDF5 files of Keras: tf_model.h5 of transformers 4, and presets of KerasHub.

Weights get the names and the orientation of Hugging Face's safetensors.

Source: modeling_tf_utils.py and modeling_tf_albert.py of transformers 4.57;
saving_lib.py of Keras 3.15; albert_backbone.py of KerasHub 0.32.
"""

from __future__ import annotations

import os
import re
from typing import Any, Mapping, Optional

import h5py
import numpy as np
from typing_extensions import TypedDict

from official_albert import files, tokenization
from official_albert.checkpoints import tokenizer_file
from official_albert.settings import check_number

TF_FILE = "tf_model.h5"
PRESET_FILE = "model.weights.h5"
# The head of a preset of a task.
TASK_FILE = "task.weights.h5"
_PREPROCESSOR_FILE = "preprocessor.json"
_VOCABULARY = "assets/tokenizer/vocabulary.spm"
# How the last part of a variable's name ends in Hugging Face. A preset has
# numbers: the first variable of a LayerNormalization is gamma.
_ENDS = {
  **dict.fromkeys(("kernel", "gamma", "embeddings", "0"), "weight"),
  **dict.fromkeys(("beta", "1"), "bias"),
}
# The keys of Hugging Face's config.json, and the arguments of AlbertBackbone.
_ARGUMENTS = {
  "vocab_size": "vocabulary_size",
  "num_hidden_layers": "num_layers",
  "num_attention_heads": "num_heads",
  "num_hidden_groups": "num_groups",
  "inner_group_num": "num_inner_repetitions",
  "embedding_size": "embedding_dim",
  "hidden_size": "hidden_dim",
  "intermediate_size": "intermediate_dim",
  "hidden_dropout_prob": "dropout",
  "attention_probs_dropout_prob": "dropout",
  "max_position_embeddings": "max_sequence_length",
  "type_vocab_size": "num_segments",
}
# A layer of a preset: the group, the block in it, the rest.
_LAYER = re.compile(r"(?:group_(\d+)_inner_layer_(\d+)/)?(.*)", re.DOTALL)
_BLOCK = "encoder.albert_layer_groups.{}.albert_layers.{}."
_LAYERS = {
  "token_embedding": "embeddings.word_embeddings",
  "segment_embedding": "embeddings.token_type_embeddings",
  "position_embedding": "embeddings.position_embeddings",
  "embeddings_layer_norm": "embeddings.LayerNorm",
  "embedding_projection": "encoder.embedding_hidden_mapping_in",
  "self_attention_layer/query": f"{_BLOCK}attention.query",
  "self_attention_layer/key": f"{_BLOCK}attention.key",
  "self_attention_layer/value": f"{_BLOCK}attention.value",
  "self_attention_layer/attention_output": f"{_BLOCK}attention.dense",
  "self_attention_layer_norm": f"{_BLOCK}attention.LayerNorm",
  "feedforward_intermediate_dense": f"{_BLOCK}ffn",
  "feedforward_output_dense": f"{_BLOCK}ffn_output",
  "feedforward_layer_norm": f"{_BLOCK}full_layer_layer_norm",
  "pooled_dense": "pooler",
}

_Values = dict[str, np.ndarray]


class _Preprocessor(TypedDict, total=False):
  config: Optional[dict[str, Any]]


def read_tf_model(folder: str) -> _Values:
  """Returns the weights of a tf_model.h5, by TensorFlow's names.

  Raises:
    ValueError: the file is damaged.
  """
  return _read(os.path.join(folder, TF_FILE))[0]


def from_tensorflow(found: Mapping[str, np.ndarray]) -> _Values:
  """Returns the weights of a TFAlbert... class by Hugging Face's names."""
  values: _Values = {}
  for path, value in found.items():
    # LAYER/MODEL/LAYER/.../kernel:0, or without the model. A head repeats the
    # table of the encoder.
    parts = path.removesuffix(":0").split("/")
    layer = "albert" if "albert" in parts else parts[0]
    last = len(parts) - 1 - parts[::-1].index(layer)
    *parents, end = parts[last:]
    name = ".".join([*parents, _ENDS.get(end, end)]).replace("_._", ".")
    values[name] = value.T if end == "kernel" else value
  # The TensorFlow model adds this bias, and not the other one.
  if (bias := values.pop("predictions.decoder.bias", None)) is not None:
    values["predictions.bias"] = bias
  return values


def read_preset(
  folder: str, preset: Mapping[str, Any]
) -> tuple[dict[str, Any], _Values]:
  """Returns the settings, as in Hugging Face's config.json, and the weights.

  `preset` is the content of config.json.

  Raises:
    ValueError: the preset is of another model, or damaged.
  """
  name, config = preset["class_name"], preset.get("config")
  if name != "AlbertBackbone" or not isinstance(config, dict):
    raise ValueError(
      f"{folder} is a preset of KerasHub for {name!r:.80}; only AlbertBackbone "
      "is read."
    )
  if "'mode'" in str(config.get("dtype")):  # Such as int8, also of one layer.
    raise ValueError(
      f"{folder} has a quantized dtype: save the preset before quantize."
    )
  settings = {k: config[x] for k, x in _ARGUMENTS.items() if x in config}
  # KerasHub has one activation, the tanh form.
  settings |= {"hidden_act": "gelu_new", "model_type": "albert"}
  values: _Values = {}
  found, layers = _read(os.path.join(folder, PRESET_FILE))
  for place, value in found.items():
    parts = place.split("/")  # .../vars/0
    parents = ["/".join(parts[:i]) for i in range(1, len(parts) - 1)]
    end = parts[-1]
    path = "/".join(layers[x] for x in parents if x in layers)
    *block, layer = _LAYER.fullmatch(path).groups()  # type: ignore[union-attr]
    name = _LAYERS[layer].format(*block) if layer in _LAYERS else path
    if ".attention." in name and value.size:
      if end == "1":  # [N, H / N]
        value = value.reshape(-1)
      elif value.ndim == 3 and name.endswith("dense"):  # [N, H / N, H]
        value = value.reshape(-1, value.shape[-1])
      elif value.ndim == 3:  # [H, N, H / N]
        value = value.reshape(len(value), -1)
    is_kernel = end == "0" and "embeddings." not in name
    name = f"albert.{name}.{_ENDS.get(end, end)}"
    values[name] = value.T if is_kernel else value
  return settings, values


def preset_tokenizer(folder: str) -> Optional[tokenizer_file.TokenizerFile]:
  """Returns the tokenizer of a preset, or None if there is none.

  KerasHub runs the SentencePiece model alone, which may lower-case by itself.
  """
  path = os.path.join(folder, _VOCABULARY)
  rules = tokenization.TextRules(lower_case=False, keep_accents=True)
  if not files.exists(path):
    return None
  return tokenizer_file.TokenizerFile(path, "sentencepiece", rules)


def max_length(folder: str) -> int:
  """Returns the maximum tokens of a text, or 0 if a preset does not say it.

  Raises:
    ValueError: it is negative or no integer.
  """
  path = os.path.join(folder, _PREPROCESSOR_FILE)
  if not files.exists(path):
    return 0
  settings = files.read_json(path, _Preprocessor, "copy it again")
  length = (settings.get("config") or {}).get("sequence_length") or 0
  check_number(f"sequence_length of {path}", length, least=0, whole=True)
  return length


def _read(path: str) -> tuple[_Values, dict[str, str]]:
  """Returns the floating-point values of a file, and the names of its layers.

  Both have paths within the file as keys.

  Raises:
    ValueError: the file is damaged, has values in other files, or values that
      are larger than the file.
  """
  values: _Values = {}
  names: dict[str, str] = {}
  with files.local_copy(path) as local_path:
    left = os.path.getsize(local_path)

    def visit(place: str, node: Any) -> None:
      nonlocal left
      if isinstance(name := node.attrs.get("name"), str):
        names[place.removesuffix("/vars")] = name
      if not isinstance(node, h5py.Dataset):
        return
      left -= node.nbytes
      if node.external or node.is_virtual or left < 0:
        raise ValueError(f"{place:.80} is not in it as it is")
      if node.dtype.kind == "f":
        values[place] = node[()].astype(np.float32)
      elif node.attrs.get("dtype") == "bfloat16":  # h5py has no such type.
        values[place] = node[()].view("bfloat16").astype(np.float32)

    try:
      with h5py.File(local_path, "r") as file:
        file.visititems(visit)
    except Exception as error:  # h5py has several, without a common class.
      raise ValueError(
        f"{path} is damaged, truncated, or no HDF5 file of Keras "
        f"({str(error)[:120]}): copy it again."
      ) from error
  return values, names
