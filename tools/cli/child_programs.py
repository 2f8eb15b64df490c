"""Programs that other programs start: command lines, virtual environments.

It uses only the standard library, because some of these programs run in
environments whose packages conflict with those of this project.
"""

from __future__ import annotations

import pathlib
import sys

# Before the name of a program in a command for the user.
PREFIX = (
  "albert " if "official_albert.programs" in sys.modules else "python -m tools."
)


def command(module: str, *arguments: str) -> list[str]:
  """Returns the command line of a module, with this interpreter."""
  return [sys.executable, "-m", module, *arguments]


def find_environment(
  folder: pathlib.Path, requirements: pathlib.Path, version: str
) -> str:
  """Returns the interpreter of a virtual environment.

  Raises:
    ValueError: there is none; the message has the commands that make it, with
      `version` of Python.
  """
  python = folder / "bin" / "python"
  if not python.exists():
    raise ValueError(
      f"there is no virtual environment {folder}: make it by `python{version} "
      f"-m venv {folder}` and `{python} -m pip install -r {requirements}`."
    )
  return str(python)
