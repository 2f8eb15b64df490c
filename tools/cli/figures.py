"""Figures as PNG, drawn without a display."""

from __future__ import annotations

from typing import Any

import matplotlib

from official_albert import files

matplotlib.use("Agg")

from matplotlib import pyplot


def save(figure, path: str, dpi: int = 110, **options: Any) -> None:
  """Writes a PNG, complete or not at all, and closes the figure."""
  try:
    with files.replacing(path) as temporary:
      figure.savefig(temporary, format="png", dpi=dpi, **options)
  finally:
    pyplot.close(figure)
