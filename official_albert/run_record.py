"""The record of a run: albert_config.json and run.json beside the checkpoints.

A checkpoint without the settings that made it is worth little. The record is
written before the first step and compared when a run is resumed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import os
import platform
import time
from importlib import metadata
from typing import Any, Mapping, Sequence

from official_albert import config as config_lib
from official_albert import output_paths

CONFIG_FILE = "albert_config.json"
RECORD_FILE = "run.json"

# Settings that may change from one start to the next without changing what
# the steps that are already done would have been.
_FREE = {
  "eval_batch_size",
  "eval_steps",
  "best_is",
  "early_stopping_evaluations",
  "steps_per_loop",
  "save_checkpoints_steps",
  "keep_checkpoint_max",
  "profile_steps",
  # Says where settings are from; those that count stand beside it.
  "recipe",
  "model_dir",
  "init_checkpoint",
}
# What settings were before a version that knows them, where that is not "off".
_BEFORE = {"layerwise_lr_decay": 1.0}


def write(
  model_dir: str,
  albert_config: config_lib.AlbertConfig,
  settings: Mapping[str, Any],
  data: Mapping[str, Any],
  step: int = 0,
) -> list[str]:
  """Writes both files and returns what differs from the run before.

  Args:
    model_dir: the run's folder; made if missing.
    albert_config: the model.
    settings: how it is trained, as JSON values.
    data: the data's fingerprint, as JSON values; `tokenizer` in it has to
      stay what it was.
    step: that of the folder's newest checkpoint.

  Returns:
    A sentence for each setting that changed since the folder's last start.

  Raises:
    ValueError: the folder holds checkpoints of another configuration or
      another tokenizer, or the settings move a border of phases that the run
      has passed.
    OSError: the folder cannot be made or written.
  """
  output_paths.make_folder(model_dir)
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
  # As they will be read: tuples are lists there.
  settings, data = json.loads(json.dumps([settings, data]))
  record = {
    "settings": settings,
    "data": data,
    "versions": _versions(),
    "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
  }
  record_path = os.path.join(model_dir, RECORD_FILE)
  changes = []
  if resumes and os.path.exists(record_path):
    old_record = read(model_dir)
    check_tokenizer(model_dir, old_record["data"], data)
    _check_borders(model_dir, old_record["settings"], settings, step)
    old_data = dict(old_record["data"])
    if "settings" in data and "settings" in old_data:
      # What an older version did not record of its data was as it is now.
      old_data["settings"] = {**data["settings"], **old_data["settings"]}
    old = {**_BEFORE, **old_record["settings"], "data": old_data}
    new = {**settings, "data": record["data"]}
    for values in (old, new):
      if values.get("phases"):
        values["phases"] = list(map(_without_off, values["phases"]))
    changes = [
      f"{name} was {old.get(name)!r} at the last start and is now {new[name]!r}"
      for name in new
      # What an older version did not know was off.
      if name not in _FREE and (new[name] or None) != (old.get(name) or None)
    ]
  albert_config.to_json_file(config_path)
  temporary = record_path + ".tmp"
  with open(temporary, "w", encoding="utf-8") as file:
    json.dump(record, file, indent=2, sort_keys=True)
    file.write("\n")
  os.replace(temporary, record_path)
  return changes


def check_tokenizer(
  model_dir: str, recorded: Mapping[str, Any], data: Mapping[str, Any]
) -> None:
  """Refuses data whose ids mean other pieces than those of a run.

  Raises:
    ValueError: the tokenizers differ.
  """
  if _tokenizer(recorded) != _tokenizer(data):
    raise ValueError(
      f"{model_dir} was trained with another tokenizer than that of the "
      "data: its ids would mean other pieces; choose another model_dir."
    )


def copy_tokenizer(source: str, sha256: str, model_dir: str) -> None:
  """Puts the data's tokenizer into the run, which is all an export needs.

  Raises:
    ValueError: the file is not what the data was made with.
    OSError: it cannot be read, or not written.
  """
  with open(source, "rb") as file:
    model = file.read()
  if hashlib.sha256(model).hexdigest() != sha256:
    raise ValueError(
      f"{source} is not the tokenizer that the records were made with: make "
      "the folder again with tools.create_pretraining_data."
    )
  target = os.path.join(model_dir, os.path.basename(source))
  with open(f"{target}.tmp", "wb") as file:
    file.write(model)
  os.replace(f"{target}.tmp", target)


def data_of(descriptions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
  """One `data` for the descriptions of all phases."""
  if len(descriptions) == 1:
    return dict(descriptions[0])
  return {
    "tokenizer": descriptions[0]["tokenizer"],
    "max_seq_length": max(d["max_seq_length"] for d in descriptions),
    "phases": list(descriptions),
  }


def phase_ends(settings: Mapping[str, Any]) -> list[int]:
  """The step at which each phase of a recorded run ends."""
  phases = settings.get("phases") or [{"steps": settings["num_train_steps"]}]
  return list(itertools.accumulate(phase["steps"] for phase in phases))


def max_seq_length(record: Mapping[str, Any], step: int) -> int:
  """The longest sequences that the run had been trained on at `step`."""
  phases = record["data"].get("phases")
  if not phases:
    return record["data"]["max_seq_length"]
  begins = [0, *phase_ends(record["settings"])]
  return max(
    phase["max_seq_length"]
    for phase, begin in zip(phases, begins)
    if begin < max(step, 1)
  )


def _check_borders(
  model_dir: str, old: Mapping[str, Any], new: Mapping[str, Any], step: int
) -> None:
  if "num_train_steps" not in old or "num_train_steps" not in new:
    return
  before, after = (
    [border for border in phase_ends(settings)[:-1] if border < step]
    for settings in (old, new)
  )
  if before != after:
    raise ValueError(
      f"{model_dir} is at step {step:,} and has ended phases at the steps "
      f"{before}, but with the flags they would be {after}: keep the steps of "
      f"phases that are over, and end the one under way at step {step:,} or "
      "later."
    )


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


def _without_off(values: Mapping[str, Any]) -> dict[str, Any]:
  # What an older version did not know was off.
  return {name: value for name, value in values.items() if value}


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
