"""What a folder of results was made with, kept in a JSON file inside it."""

from __future__ import annotations

import json
import os
from typing import Any, Mapping


def read(path: str) -> dict[str, Any]:
  """What `write` wrote; {} if there is no such file.

  Raises:
    ValueError: it is something else.
    OSError: it cannot be read.
  """
  if not os.path.exists(path):
    return {}
  with open(path, "rb") as file:
    try:
      settings = json.load(file)
    except ValueError:
      settings = None
  if not isinstance(settings, dict):
    raise ValueError(
      f"{path} is not what this program wrote, so what its folder holds is not "
      "known: give another --output_dir, or remove the folder."
    )
  return settings


def write(path: str, settings: Mapping[str, Any]) -> None:
  """Writes JSON values, whole or not at all.

  Raises:
    OSError: it cannot be written.
  """
  with open(f"{path}.tmp", "w", encoding="utf-8") as file:
    json.dump(settings, file, indent=1)
  os.replace(f"{path}.tmp", path)
