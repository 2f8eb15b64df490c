"""HDF5 files of Keras: tf_model.h5 of transformers 4, and presets of KerasHub.

Weights get the names and the orientation of Hugging Face's safetensors.

Source: modeling_tf_utils.py and modeling_tf_albert.py of transformers 4.57;
saving_lib.py of Keras 3.15; albert_backbone.py of KerasHub 0.32.
"""

from __future__ import annotations

import math
import os
import re
from typing import Any, Mapping, Optional

import h5py
import numpy as np

from official_albert import files, tokenization
from official_albert.checkpoints import tokenizer_file

TF_FILE = "tf_model.h5"
PRESET_FILE = "model.weights.h5"
_VOCABULARY = "assets/tokenizer/vocabulary.spm"
# How the last part of a variable's name in Keras ends in Hugging Face.
_ENDS = {
  "kernel": "weight",
  "gamma": "weight",
  "embeddings": "weight",
  "beta": "bias",
}
# The arguments of AlbertBackbone, and their keys in Hugging Face's config.json.
_ARGUMENTS = {
  "vocabulary_size": ["vocab_size"],
  "num_layers": ["num_hidden_layers"],
  "num_heads": ["num_attention_heads"],
  "num_groups": ["num_hidden_groups"],
  "num_inner_repetitions": ["inner_group_num"],
  "embedding_dim": ["embedding_size"],
  "hidden_dim": ["hidden_size"],
  "intermediate_dim": ["intermediate_size"],
  "dropout": ["hidden_dropout_prob", "attention_probs_dropout_prob"],
  "max_sequence_length": ["max_position_embeddings"],
  "num_segments": ["type_vocab_size"],
}
# The layers of a preset. {} is the block.
_LAYERS = {
  "token_embedding": "embeddings.word_embeddings",
  "segment_embedding": "embeddings.token_type_embeddings",
  "position_embedding": "embeddings.position_embeddings",
  "embeddings_layer_norm": "embeddings.LayerNorm",
  "embedding_projection": "encoder.embedding_hidden_mapping_in",
  "self_attention_layer/query": "{}.attention.query",
  "self_attention_layer/key": "{}.attention.key",
  "self_attention_layer/value": "{}.attention.value",
  "self_attention_layer/attention_output": "{}.attention.dense",
  "self_attention_layer_norm": "{}.attention.LayerNorm",
  "feedforward_intermediate_dense": "{}.ffn",
  "feedforward_output_dense": "{}.ffn_output",
  "feedforward_layer_norm": "{}.full_layer_layer_norm",
  "pooled_dense": "pooler",
}
_BLOCK = re.compile(r"group_(\d+)_inner_layer_(\d+)/")
_HF_BLOCK = "encoder.albert_layer_groups.{}.albert_layers.{}"

_Values = dict[str, np.ndarray]


def read_tf_model(folder: str) -> _Values:
  """Returns the weights of a tf_model.h5.

  Raises:
    ValueError: the file is damaged.
  """
  values: _Values = {}
  for path, value in _read(os.path.join(folder, TF_FILE))[0].items():
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
  settings = {
    key: config[argument]
    for argument, keys in _ARGUMENTS.items()
    for key in keys
    if argument in config
  }
  # KerasHub has one activation, the tanh form.
  settings |= {"hidden_act": "gelu_new", "model_type": "albert"}
  path, values = os.path.join(folder, PRESET_FILE), {}
  found, layers = _read(path)
  for place, value in found.items():
    parts = place.split("/")
    parents = ["/".join(parts[:i]) for i in range(1, len(parts) - 1)]
    layer = "/".join(layers[x] for x in parents if x in layers)
    block = _BLOCK.match(layer)
    hf_name = _LAYERS.get(_BLOCK.sub("", layer), layer)
    if block:
      hf_name = hf_name.format(_HF_BLOCK.format(*block.groups()))
    if ".attention." in hf_name:  # [H, N, H / N], [N, H / N, H] or [N, H / N]
      shape = (math.isqrt(value.size), -1) if value.ndim == 3 else (-1,)
      value = value.reshape(shape)
    if parts[-1] == "0" and "embeddings." not in hf_name:
      value = value.T
    # The first variable of a LayerNormalization is gamma.
    end = "weight" if parts[-1] == "0" else "bias"
    values[f"albert.{hf_name}.{end}"] = value
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
    sets: dict[str, h5py.Dataset] = {}

    def visit(place: str, node: Any) -> None:
      if isinstance(node, h5py.Dataset):
        sets[place] = node
      elif place.endswith("/vars") and isinstance(node.attrs.get("name"), str):
        names[place.removesuffix("/vars")] = node.attrs["name"]

    try:
      with h5py.File(local_path, "r") as file:
        file.visititems(visit)
        for place, node in sets.items():
          left -= node.nbytes
          if node.external or node.is_virtual or left < 0:
            raise ValueError(f"{place:.80} is not in it as it is")
          if node.dtype.kind == "f":
            values[place] = node[()].astype(np.float32)
    except Exception as error:  # h5py has several, without a common class.
      raise ValueError(
        f"{path} is damaged, truncated, or no HDF5 file of Keras "
        f"({str(error)[:120]}): copy it again."
      ) from error
  return values, names
