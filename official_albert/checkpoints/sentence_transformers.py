"""Folders of sentence-transformers: an encoder, and how it makes a vector.

modules.json lists what computes the vectors of texts. What it and the files of
its modules say is obeyed or refused.

Source: base/model.py, base/modules/ and sentence_transformer/modules/ of
sentence-transformers 6.2, which also reads what versions 1 to 5 wrote.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Mapping

from typing_extensions import TypedDict

from official_albert import files, modeling
from official_albert.checkpoints import portable
from official_albert.settings import check_number

MODULES_FILE = "modules.json"
_MODEL_FILE, _CONFIG_FILE = "config_sentence_transformers.json", "config.json"
_SETFIT_FILE = "config_setfit.json"
# In the folder of the encoder; the second name is of early versions.
_ENCODER_FILES = ("sentence_bert_config.json", "sentence_albert_config.json")
# The keys with only one value here, of modules and of the model. All empty
# values count as one.
_FIXED: Mapping[str, Mapping[str, Any]] = {
  "Transformer": {
    "transformer_task": "feature-extraction",
    "modality_config": {
      "text": {"method": "forward", "method_output_name": "last_hidden_state"}
    },
    "module_output_name": "token_embeddings",
    **dict.fromkeys(["processing_kwargs", "tokenizer_name_or_path"]),
    **dict.fromkeys(["query_length", "document_length", "query_expansion"]),
    **dict.fromkeys(["model_args", "tokenizer_args", "config_args"]),
    **dict.fromkeys(["model_kwargs", "processor_kwargs", "config_kwargs"]),
  },
  "Pooling": {"include_prompt": True},
  "Normalize": dict.fromkeys(
    ["module_input_name", "module_output_name"], "sentence_embedding"
  ),
  "": {
    "model_type": "SentenceTransformer",
    "truncate_dim": None,
    "default_prompt_name": None,
  },
}
_MODULES = ("Transformer", "Pooling", "Normalize")
# The names before version 6, which it reads, too. A flag for each pooling.
_FLAGS = {
  "pooling_mode_cls_token": "cls",
  "pooling_mode_mean_tokens": "mean",
  "pooling_mode_max_tokens": "max",
}
_FLAG, _TYPE = "pooling_mode_", "sentence_transformers.models."


class _Module(TypedDict):
  type: str
  path: str


def encoder_folder(path: str) -> str:
  """Returns the folder of the encoder: `path`, or that of an early version."""
  within = os.path.join(path, "0_Transformer")
  needed = (path, MODULES_FILE), (within, _CONFIG_FILE)
  return within if all(files.exists(os.path.join(*x)) for x in needed) else path


def read(path: str, checkpoint: portable.PortableCheckpoint) -> None:
  """Reads what a folder says besides its encoder, which `checkpoint` is.

  Sets the pooling, the maximum length and the rules of the tokenizer. Notes
  tell how the library's other methods than `encode` differ.

  Raises:
    ValueError: a file is damaged, or says what this package does not compute.
  """
  file = os.path.join(path, MODULES_FILE)
  modules = files.read_json(file, list[_Module], "copy it again")
  types = [module["type"] for module in modules]
  is_theirs = all(x.startswith("sentence_transformers.") for x in types)
  names = tuple(x.rpartition(".")[2] if is_theirs else x for x in types)
  if names not in (_MODULES[:2], _MODULES):
    raise ValueError(
      f"{file} has the modules {', '.join(names) or 'none':.80}; supported are "
      f"{', '.join(_MODULES)} in this order, the last with or without"
    )
  paths = [module["path"] for module in modules]
  folders = [os.path.join(path, x) for x in paths]
  is_root = folders[0].rstrip("/") == checkpoint.source.rstrip("/")
  if not is_root or any(os.path.basename(x) != x for x in paths):
    raise ValueError(f"{file} has the paths {str(paths):.80}")
  encoder, pooling, *_ = map(_read_module, names, folders)
  modes = pooling.get("pooling_mode") or [
    _FLAGS.get(x, x) for x, y in pooling.items() if x.startswith(_FLAG) and y
  ]
  mode = modes[0] if isinstance(modes, list) and len(modes) == 1 else modes
  if mode not in ([], *_FLAGS.values()):
    raise ValueError(
      f"{os.path.join(folders[1], _CONFIG_FILE)} has pooling_mode "
      f"{mode!r:.80}; supported is one of {', '.join(_FLAGS.values())}"
    )
  checkpoint.pooling = modeling.Pooling(str(mode or "mean"), len(names) == 3)
  most = checkpoint.config.max_position_embeddings
  length = encoder.get("max_seq_length") or checkpoint.max_seq_length or most
  check_number(f"max_seq_length of {path}", length, least=1, whole=True)
  checkpoint.max_seq_length = min(length, most)
  tokenizer = checkpoint.tokenizer
  if tokenizer and encoder.get("do_lower_case"):
    rules = tokenizer.rules
    keep = rules.keep_accents
    if tokenizer.kind == "wordpiece" and not rules.lower_case and keep is None:
      keep = True  # Their lower case leaves accents.
    rules = dataclasses.replace(rules, lower_case=True, keep_accents=keep)
    checkpoint.tokenizer = dataclasses.replace(tokenizer, rules=rules)
  if files.exists(os.path.join(path, _SETFIT_FILE)):
    checkpoint.notes.append(
      f"the head of {path} is model_head.pkl of SetFit, a pickle, and not read."
    )
  file = os.path.join(path, _MODEL_FILE)
  model = _read(file, _FIXED[""])
  prompts = model.get("prompts")
  if isinstance(prompts, dict) and any(prompts.values()):
    checkpoint.notes.append(
      f"{file} has prompts, of which embed adds none: put them before texts "
      "yourself."
    )
  if (measure := model.get("similarity_fn_name") or "cosine") != "cosine":
    checkpoint.notes.append(
      f"{file} has similarity_fn_name {measure!r:.80}, but similarity returns "
      "cosines."
    )


def _read_module(name: str, folder: str) -> dict[str, Any]:
  options = _ENCODER_FILES if name == "Transformer" else (_CONFIG_FILE,)
  paths = [os.path.join(folder, option) for option in options]
  return _read(next(filter(files.exists, paths), paths[0]), _FIXED[name])


def _read(path: str, fixed: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the settings of a file, {} without it."""
  if not files.exists(path):
    return {}
  settings = files.read_json(path, dict[str, Any], "copy it again")
  for name, value in fixed.items():
    found = settings.get(name, value)
    if found != value and (found or value):
      raise ValueError(f"{path} has {name} {found!r:.80}, not {value!r}")
  return settings


def write(
  checkpoint: portable.PortableCheckpoint, folder: str, length: int
) -> None:
  """Writes the files around an encoder, which versions 2 to 6 read.

  `length` is the maximum number of tokens of a text.

  Raises:
    ValueError: sentence-transformers has no such pooling.
  """
  pooling = checkpoint.pooling or modeling.Pooling()
  if pooling.pooling not in _FLAGS.values():
    raise ValueError(
      f"sentence-transformers has no pooling {pooling.pooling!r}: --head=none "
      "writes the encoder alone."
    )
  paths = ["", "1_Pooling", *["2_Normalize"] * pooling.normalize]
  contents = {
    MODULES_FILE: [
      {"idx": i, "name": str(i), "path": path, "type": f"{_TYPE}{name}"}
      for i, (path, name) in enumerate(zip(paths, _MODULES))
    ],
    _ENCODER_FILES[0]: {"max_seq_length": length, "do_lower_case": False},
    _MODEL_FILE: {"similarity_fn_name": "cosine"},
    f"{paths[1]}/{_CONFIG_FILE}": {
      "word_embedding_dimension": checkpoint.config.hidden_size,
      **{flag: mode == pooling.pooling for flag, mode in _FLAGS.items()},
    },
  }
  for path in paths[1:]:  # That of Normalize stays empty.
    files.make_folder(os.path.join(folder, path))
  for name, content in contents.items():
    files.write_json(os.path.join(folder, name), content, indent=2)
