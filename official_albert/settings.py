"""Dataclass fields with the help, choices and range of their flags.

tools/cli/path_flags.py generates the flags. Loads only the standard library, as
data workers use it too.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Optional, Sequence


def setting(
  default: Any,
  help_text: str,
  choices: Sequence[str] = (),
  least: Optional[float] = None,
  most: float = 2**31 - 1,
) -> Any:
  """Returns a dataclass field; without `least`, its range is not checked."""
  metadata = {
    "help": help_text,
    "choices": tuple(choices),
    "range": None if least is None else (least, most),
  }
  return dataclasses.field(default=default, metadata=metadata)


def check(settings: Any) -> None:
  """Raises ValueError if a field made by `setting` is out of range."""
  for field in dataclasses.fields(settings):
    name, value = field.name, getattr(settings, field.name)
    choices, limits = map(field.metadata.get, ("choices", "range"))
    if choices and value not in choices:
      raise ValueError(
        f"{name} is {value!r:.40}, but must be one of {', '.join(choices)}."
      )
    if limits and not limits[0] <= value <= limits[1]:
      raise ValueError(
        f"{name} is {value!r:.80}, but must be from {limits[0]} to {limits[1]}."
      )
