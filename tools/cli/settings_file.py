"""The settings of a folder of results, in a JSON file inside it."""

from __future__ import annotations

import json
import os
from typing import Any


def read(path: str) -> dict[str, Any]:
  """Returns the settings; {} if there is no such file.

  Raises:
    ValueError: the file was not written by this program.
  """
  if not os.path.exists(path):
    return {}
  try:
    with open(path, "rb") as file:
      return dict(json.load(file).items())
  except (ValueError, AttributeError):
    raise ValueError(
      f"{path} is not what this program wrote, so what its folder holds is not "
      "known: give another --output_dir, or remove the folder."
    ) from None
