"""The record of a run: albert_config.json and run.json beside the checkpoints.

A checkpoint without the settings that made it is worth little. The record is
written before the first step and compared when a run is resumed.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import time
from importlib import metadata
from typing import Any, Mapping

from official_albert import config as config_lib

CONFIG_FILE = "albert_config.json"
RECORD_FILE = "run.json"

# Settings that may change from one start to the next without changing what
# the steps that are already done would have been.
_FREE = {
  "eval_batch_size",
  "eval_steps",
  "steps_per_loop",
  "save_checkpoints_steps",
  "keep_checkpoint_max",
  "model_dir",
  "init_checkpoint",
}


def write(
  model_dir: str,
  albert_config: config_lib.AlbertConfig,
  settings: Mapping[str, Any],
  data: Mapping[str, Any],
) -> list[str]:
  """Writes both files and returns what differs from the run before.

  Args:
    model_dir: the run's folder; made if missing.
    albert_config: the model.
    settings: how it is trained, as JSON values.
    data: the data's fingerprint, as JSON values; `tokenizer` in it has to
      stay what it was.

  Returns:
    A sentence for each setting that changed since the folder's last start.

  Raises:
    ValueError: the folder holds checkpoints of another configuration or
      another tokenizer.
    OSError: the folder cannot be made or written.
  """
  os.makedirs(model_dir, exist_ok=True)
  config_path = os.path.join(model_dir, CONFIG_FILE)
  # A start that failed before its first checkpoint binds nobody.
  resumes = os.path.exists(os.path.join(model_dir, "checkpoint"))
  if resumes and os.path.exists(config_path):
    before = config_lib.AlbertConfig.from_json_file(config_path)
    for field in dataclasses.fields(before):
      old, new = getattr(before, field.name), getattr(albert_config, field.name)
      if old != new:
        raise ValueError(
          f"{model_dir} holds a run with {field.name} {old}, but the flags "
          f"ask for {new}: choose another model_dir, or the old setting."
        )
  record = {
    "settings": dict(settings),
    "data": dict(data),
    "versions": _versions(),
    "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
  }
  record_path = os.path.join(model_dir, RECORD_FILE)
  changes = []
  if resumes and os.path.exists(record_path):
    old_record = read(model_dir)
    if _tokenizer(old_record["data"]) != _tokenizer(record["data"]):
      raise ValueError(
        f"{model_dir} was trained with another tokenizer than that of the "
        "data: its ids would mean other pieces; choose another model_dir."
      )
    old = {**old_record["settings"], "data": old_record["data"]}
    new = {**settings, "data": record["data"]}
    changes = [
      f"{name} was {old.get(name)!r} at the last start and is now {new[name]!r}"
      for name in new
      if name not in _FREE and new[name] != old.get(name)
    ]
  albert_config.to_json_file(config_path)
  temporary = record_path + ".tmp"
  with open(temporary, "w", encoding="utf-8") as file:
    json.dump(record, file, indent=2, sort_keys=True)
    file.write("\n")
  os.replace(temporary, record_path)
  return changes


def read(model_dir: str) -> dict[str, Any]:
  """The record that `write` left in `model_dir`.

  Raises:
    FileNotFoundError: the folder is not that of a run.
    ValueError: the file is not valid JSON.
  """
  path = os.path.join(model_dir, RECORD_FILE)
  if not os.path.exists(path):
    raise FileNotFoundError(
      f"{path} does not exist: {model_dir} is not the folder of a run."
    )
  with open(path, encoding="utf-8") as file:
    try:
      return json.load(file)
    except ValueError as error:
      raise ValueError(f"{path} is not valid JSON: {error}.") from error


def _tokenizer(data: Mapping[str, Any]) -> dict[str, Any]:
  # Runs did not say the kind while there was only this one.
  return {"kind": "sentencepiece", **data.get("tokenizer", {})}


def _versions() -> dict[str, str]:
  names = ("tensorflow", "tensorflow-text", "tensorflow-addons", "numpy")
  versions = {"python": platform.python_version()}
  for name in names:
    try:
      versions[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
      versions[name] = "not installed"
  return versions
