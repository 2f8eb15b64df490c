"""What a folder of results was made with, kept in a JSON file inside it."""

from __future__ import annotations

import json
import os
from typing import Any


def read(path: str) -> dict[str, Any]:
  """Returns the settings; {} if there is no such file.

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
