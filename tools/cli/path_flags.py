"""Flags for paths, and other flags that programs define alike.

Paths are local or gs:// addresses; others are refused while the flags are
parsed, before any work. `path_flags_test.py` finds flags for paths that are
defined without this module.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Collection, Mapping, Optional

from absl import flags

from official_albert import files
from official_albert.settings import HUBS, check_number, derived_kind

# Flags belong to the module that calls this one; `--help` groups them by it.
flags.disclaim_key_flags()
# Paths that several programs take.
_SHARED = {
  "checkpoint": "Checkpoint of a run: latest, best, or a prefix; by default "
  "the best if there is one, else the latest.",
  "task_module": "File of Python that registers a task of your own; "
  "docs/own_task.md has one.",
}


class PathParser(flags.ArgumentParser):
  """Parses one or more paths in one string."""

  syntactic_help = ""

  def parse(self, argument: str) -> str:
    argument = super().parse(argument)
    if not argument.startswith(HUBS):
      files.check_path(argument)
    return argument


def define(
  name: str, default: Optional[str], text: str
) -> flags.FlagHolder[str]:
  """Defines a flag like `flags.DEFINE_string`."""
  more: Any = {"serializer": flags.ArgumentSerializer()}
  flag = flags.DEFINE(PathParser(), name, default, text, **more)
  if default is None:  # As $FOLDER is, if the shell has no such variable.
    message = "the path is empty"
    flags.register_validator(name, lambda value: value != "", message)
  return flag


def define_shared(name: str) -> flags.FlagHolder[str]:
  """Defines a flag of `_SHARED`."""
  return define(name, "", _SHARED[name])


def define_num_hidden_layers() -> flags.FlagHolder[int]:
  """Defines --num_hidden_layers, the depth at which a trained model is used."""
  return flags.DEFINE_integer(
    "num_hidden_layers",
    0,
    "How many times the shared layers are applied; 0: as many as the model was "
    "trained with. Needs layers that share everything in one group.",
  )


def define_settings(
  settings: type, skip: Collection[str] = (), **defaults: Any
) -> dict[str, flags.FlagHolder]:
  """Defines a flag for each field of a dataclass that has a help text.

  Fields in `skip` have none, such as those of the class it extends. `defaults`
  replace those of the fields, and may be text instead of a number.
  A number that is out of its field's range is refused like other bad flags.
  """
  defined = {}
  for field in dataclasses.fields(settings):
    name, text = field.name, field.metadata.get("help")
    if not text or name in skip:
      continue
    default = defaults.get(name, field.default)
    if choices := field.metadata["choices"]:
      defined[name] = flags.DEFINE_enum(name, default, choices, text)
    else:
      kind = type(field.default if default is None else default)
      if kind is type(None):  # Depends on other settings; the text says how.
        kind = derived_kind(settings, name)
      make: Any = {
        bool: flags.DEFINE_bool,
        int: flags.DEFINE_integer,
        float: flags.DEFINE_float,
        str: define if field.metadata["is_path"] else flags.DEFINE_string,
      }[kind]
      defined[name] = make(name, default, text)
      if kind in (int, float):
        limits = {**field.metadata["limits"], "whole": kind is int}
        check = functools.partial(_is_within, name, default, limits)
        flags.register_validator(name, check)
  return defined


def _is_within(
  name: str, default: Any, limits: Mapping[str, Any], value: Any
) -> bool:
  """Validates the value of a setting's flag; the default always passes."""
  if value not in (None, default):
    check_number(name, value, **limits)
  return True
