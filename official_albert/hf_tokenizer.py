"""Tokenizer files as transformers wants them: for AlbertTokenizer(Fast).

The Chinese models' WordPiece is that of BertTokenizer there.
"""

from __future__ import annotations

import json
import os
import shutil
from typing import Any, Mapping, Optional

from official_albert import portable_checkpoint

_SETTINGS = "tokenizer_config.json"
_FILES = {"sentencepiece": "spiece.model", "wordpiece": "vocab.txt"}
_CLASSES = {"sentencepiece": "AlbertTokenizer", "wordpiece": "BertTokenizer"}
_SPECIAL: Mapping[str, dict[str, Any]] = {
  "sentencepiece": {
    "bos_token": "[CLS]",
    "cls_token": "[CLS]",
    "eos_token": "[SEP]",
    "mask_token": {
      "content": "[MASK]",
      "lstrip": True,
      "normalized": False,
      "rstrip": False,
      "single_word": False,
    },
    "pad_token": "<pad>",
    "sep_token": "[SEP]",
    "unk_token": "<unk>",
  },
  "wordpiece": {
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
    "pad_token": "[PAD]",
    "sep_token": "[SEP]",
    "unk_token": "[UNK]",
  },
}


def special_ids(
  tokenizer: Optional[portable_checkpoint.TokenizerFile],
) -> dict[str, int]:
  """Of padding, beginning and end, for config.json."""
  first, last = 2, 3
  if tokenizer and tokenizer.kind == "wordpiece":
    with open(tokenizer.path, encoding="utf-8") as file:
      pieces = [line.rstrip("\n") for line in file]
    try:
      first, last = pieces.index("[CLS]"), pieces.index("[SEP]")
    except ValueError as error:
      raise ValueError(
        f"{tokenizer.path} has no [CLS] or no [SEP]: it is no vocabulary of a "
        "BERT or ALBERT."
      ) from error
  return {"pad_token_id": 0, "bos_token_id": first, "eos_token_id": last}


def read(
  folder: str, notes: list[str]
) -> Optional[portable_checkpoint.TokenizerFile]:
  """The tokenizer in a folder; None if there is none that can be carried.

  Args:
    folder: of a Hugging Face model.
    notes: what does not mean the same here is added to it.

  Raises:
    ValueError: its settings are not valid JSON.
  """
  settings: dict[str, Any] = {}
  path = os.path.join(folder, _SETTINGS)
  if os.path.exists(path):
    with open(path, encoding="utf-8") as file:
      try:
        settings = json.load(file)
        lower_case = bool(settings.get("do_lower_case", True))
      except (ValueError, AttributeError) as error:
        raise ValueError(f"{path} is not a valid JSON object.") from error
  lower_case = bool(settings.get("do_lower_case", True))
  for name, default in (("keep_accents", False), ("remove_space", True)):
    if settings.get(name, default) != default:
      notes.append(
        f"{_SETTINGS} says {name} {settings[name]}, which this package's "
        "tokenizer does not do: some texts will have other pieces."
      )
  for kind, name in _FILES.items():
    path = os.path.join(folder, name)
    if os.path.exists(path):
      return portable_checkpoint.TokenizerFile(path, kind, lower_case)
  if os.path.exists(os.path.join(folder, "tokenizer.json")):
    notes.append(
      "tokenizer.json is not carried: this package needs spiece.model or "
      "vocab.txt."
    )
  return None


def write(
  tokenizer: portable_checkpoint.TokenizerFile, folder: str, max_length: int
) -> None:
  """Writes the tokenizer and what says how to open it.

  Args:
    tokenizer: which.
    folder: of the model.
    max_length: longest sequence of the model.

  Raises:
    OSError: it cannot be written.
  """
  kind = tokenizer.kind
  shutil.copyfile(tokenizer.path, os.path.join(folder, _FILES[kind]))
  settings = {
    "tokenizer_class": _CLASSES[kind],
    "do_lower_case": tokenizer.lower_case,
    "model_max_length": max_length,
    **{
      name: value if isinstance(value, str) else value["content"]
      for name, value in _SPECIAL[kind].items()
    },
  }
  if kind == "sentencepiece":
    settings.update(keep_accents=False, remove_space=True)
  for name, values in (
    (_SETTINGS, settings),
    ("special_tokens_map.json", _SPECIAL[kind]),
  ):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
      json.dump(values, file, indent=2, sort_keys=True)
      file.write("\n")
