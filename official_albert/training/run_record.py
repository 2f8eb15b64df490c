"""The record of a run: albert_config.json and run.json beside the checkpoints.

A checkpoint without the settings that made it is worth little. The record is
compared when a run is started again, and written before the first step that is
trained; a start that trains nothing leaves it as it is.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import platform
import re
import shutil
import time
from importlib import metadata
from typing import Any, Mapping, Optional, Sequence

from official_albert import files, modeling

CONFIG_FILE = "albert_config.json"
RECORD_FILE = "run.json"

# What a setting of a run may do when the run is started again. It is the last
# part of a name that counts, as in `phases[1].gradient_accumulation_steps`.
#
# These change neither the steps that are done nor those to come: where results
# go, how often something is looked at, written or kept, when a run gives up.
FREE = frozenset(
  {
    "early_stopping_evaluations",
    "eval_batch_size",
    "eval_steps",
    "keep_checkpoint_max",
    "model_dir",
    "on_divergence",
    "profile_steps",
    # Names a set of settings, each of which is compared.
    "recipe",
    "save_checkpoints_steps",
    "steps_per_loop",
  }
)
# These depend on the machine that a run goes on with, and change rounding or
# dropout masks only: they are warned of.
OF_THE_MACHINE = frozenset(
  {
    "distribution",
    "gradient_accumulation_steps",
    # A folder of records may have moved; what is in it is compared.
    "input_dir",
    "num_replicas",
    "precision",
    "recompute_activations",
    "xla",
  }
)
# All others shape the result: rate, steps and the rest of the schedule, batch,
# optimizer, dropout, seed, data, initial weights, how the best checkpoint is
# chosen. A folder with checkpoints is not continued with other values, unless
# the user says so.

# What settings were before a version that knows them, where that is not "off".
_BEFORE = {"layerwise_lr_decay": 1.0, "best_is": "lowest"}
# Of many changes, and of a long value, a message shows the beginning.
_SHOWN_CHANGES, _SHOWN_CHARACTERS = 4, 60


def write_run(
  model_dir: str,
  albert_config: modeling.AlbertConfig,
  settings: Mapping[str, Any],
  data: Mapping[str, Any],
) -> None:
  """Writes both files, in place of those that may be there.

  Args:
    model_dir: the run's folder; made if missing.
    albert_config: the model.
    settings: how it is trained, as JSON values.
    data: the data's fingerprint, as JSON values.

  Raises:
    OSError: the folder cannot be made or written.
  """
  files.make_folder(model_dir)
  record = {
    "settings": settings,
    "data": data,
    "versions": _versions(),
    "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
  }
  record_path = os.path.join(model_dir, RECORD_FILE)
  albert_config.to_json_file(os.path.join(model_dir, CONFIG_FILE))
  files.write_json(record_path, record, indent=2, sort_keys=True)


def check(
  model_dir: str,
  albert_config: modeling.AlbertConfig,
  settings: Mapping[str, Any],
  data: Mapping[str, Any],
  step: int = 0,
  is_finished: bool = False,
  allow_changed_settings: bool = False,
) -> list[str]:
  """Compares what a run is to be with what is in its folder; writes nothing.

  A folder without checkpoints may hold anything: a start that failed before
  its first checkpoint binds nobody.

  Args:
    model_dir: the run's folder; it need not exist.
    albert_config: see `write`.
    settings: see `write`.
    data: see `write`; `tokenizer` in it has to stay what it was.
    step: that of the folder's newest checkpoint.
    is_finished: whether no step is left to train with these settings.
    allow_changed_settings: whether a run goes on with settings that shape the
      result and differ.

  Returns:
    A phrase for each setting that changed since the folder's last start and
    changes the steps to come; none if the run is finished.

  Raises:
    ValueError: the folder holds checkpoints of another configuration or
      another tokenizer; the settings move a border of phases that the run has
      passed; or a setting that shapes the result differs, and this is not
      allowed, or there is nothing left to train with it.
  """
  if not (step or os.path.exists(os.path.join(model_dir, "checkpoint"))):
    return []
  config_path = os.path.join(model_dir, CONFIG_FILE)
  if os.path.exists(config_path):
    before = modeling.AlbertConfig.from_json_file(config_path)
    for field in dataclasses.fields(before):
      old, new = getattr(before, field.name), getattr(albert_config, field.name)
      if old != new:
        raise ValueError(
          f"{model_dir} holds a run with {field.name} {old}, but the flags "
          f"ask for {new}: choose another model_dir, or the old setting."
        )
  if not os.path.exists(os.path.join(model_dir, RECORD_FILE)):
    return []
  record = read_run(model_dir)
  check_tokenizer(model_dir, record["data"], data)
  if not record["settings"]:
    return []  # Converted weights: nobody knows how they were trained.
  _check_borders(model_dir, record["settings"], settings, step)
  changes = _changes(record, settings, data)
  shaping = [
    change
    for name, change in changes.items()
    if _last_part(name) not in OF_THE_MACHINE
  ]
  if shaping and (is_finished or not allow_changed_settings):
    named = "; ".join(shaping[:_SHOWN_CHANGES])
    if len(shaping) > _SHOWN_CHANGES:
      named += f"; and {len(shaping) - _SHOWN_CHANGES} more"
    if is_finished:
      raise ValueError(
        f"the run in {model_dir} is finished at step {step:,}, with nothing "
        f"left to train, but settings differ from its own ({named}): give the "
        "old values, or another folder to train anew."
      )
    raise ValueError(
      f"{model_dir} holds a run at step {step:,} with other settings "
      f"({named}): give the old values, another folder, or "
      "--allow_changed_settings to go on with the new ones."
    )
  return [] if is_finished else list(changes.values())


def _changes(
  record: Mapping[str, Any],
  settings: Mapping[str, Any],
  data: Mapping[str, Any],
) -> dict[str, str]:
  """By the names of settings that differ from a record, what differs."""
  # As they are read: tuples are lists there.
  settings, data = json.loads(json.dumps([settings, data]))
  old = _flat({**_BEFORE, **record["settings"], "data": record["data"]})
  new = _flat({**settings, "data": data})
  changes = {}
  for name in sorted({*old, *new}):
    if _last_part(name) in FREE:
      continue
    # Compared before, and by more than equality.
    if ".tokenizer." in name:
      continue
    # What only one version records of settings was off, or as it is now.
    known = re.split(r"[.[]", name)[0] in {*settings, "data"}
    if name not in new and not known:
      continue
    if name not in old and ".settings." in name:
      continue
    # What an older version did not know was off.
    before, now = old.get(name) or None, new.get(name) or None
    if _last_part(name) == "init_checkpoint":
      before, now = map(_absolute, (before, now))
    if before != now:
      changes[name] = (
        f"{name} was {_shown(old.get(name))} at the last start and is now "
        f"{_shown(new.get(name))}"
      )
  return changes


def _flat(value: Any, name: str = "") -> dict[str, Any]:
  """The values in objects and lists of objects, by names such as a.b[0].c."""
  if isinstance(value, dict):
    parts = [(f"{name}.{key}" if name else key, v) for key, v in value.items()]
  elif isinstance(value, list) and any(isinstance(v, dict) for v in value):
    parts = [(f"{name}[{i}]", v) for i, v in enumerate(value)]
  else:
    return {name: value}
  flat = {}
  for part, inner in parts:
    flat.update(_flat(inner, part))
  return flat


def _last_part(name: str) -> str:
  return name.rsplit(".", 1)[-1]


def _absolute(path: Optional[str]) -> Optional[str]:
  return os.path.abspath(path) if path and "://" not in path else path


def _shown(value: Any) -> str:
  text = repr(value)
  if len(text) > _SHOWN_CHARACTERS:
    text = f"{text[:_SHOWN_CHARACTERS]}..."
  return text


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
  if files.sha256(source) != sha256:
    raise ValueError(
      f"{source} is not the tokenizer that the records were made with: make "
      "the folder again with tools.create_pretraining_data."
    )
  target = os.path.join(model_dir, os.path.basename(source))
  with files.replacing(target) as temporary:
    shutil.copyfile(source, temporary)


def combined_data(descriptions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
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


def read_run(model_dir: str) -> dict[str, Any]:
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
