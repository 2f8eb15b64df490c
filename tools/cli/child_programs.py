"""Programs that other programs start: command lines, virtual environments.

It uses only the standard library, because some of these programs run in
environments whose packages conflict with those of this project.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

# A copy of the requirements; empty until the environment is complete.
_INSTALLED = "installed"

# Before the name of a program in a command for the user.
PREFIX = (
  "albert " if "official_albert.programs" in sys.modules else "python -m tools."
)


def command(module: str, *arguments: str) -> list[str]:
  """Returns the command line of a module, with this interpreter."""
  return [sys.executable, "-m", module, *arguments]


def is_complete(folder: pathlib.Path, requirements: pathlib.Path) -> bool:
  """Returns whether everything in `requirements` is installed in `folder`."""
  installed = folder / _INSTALLED
  return (
    installed.exists() and installed.read_bytes() == requirements.read_bytes()
  )


def make_environment(
  folder: pathlib.Path, requirements: pathlib.Path, versions: str
) -> str:
  """Creates an environment unless it is complete; returns its interpreter.

  An interrupted installation starts over. `versions` are those of Python that
  the packages in the file `requirements` support, such as "3.10 to 3.12".

  Raises:
    ValueError: `folder` is something else, or the installation has failed.
  """
  if not requirements.is_file():
    raise ValueError(
      f"{requirements.name} is not part of the installed package: start this "
      "program in a clone of the repository."
    )
  python = str(folder / "bin" / "python")
  if is_complete(folder, requirements):
    return python
  if not (folder / _INSTALLED).exists() and any(folder.glob("*")):
    raise ValueError(
      f"{folder} was not created by this program: remove it, or choose another "
      "folder."
    )
  shutil.rmtree(folder, ignore_errors=True)
  folder.mkdir(parents=True)
  (folder / _INSTALLED).touch()
  print(
    f"Installing {requirements.name} into {folder}; this takes minutes...",
    flush=True,
  )
  base_python = os.environ.get("PYTHON") or sys.executable
  pip = [python, "-m", "pip", "install", "--disable-pip-version-check"]
  for command in (
    [base_python, "-m", "venv", str(folder)],
    [*pip, "--quiet", "-r", str(requirements)],
  ):
    try:
      subprocess.run(command, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
      raise ValueError(
        f"{' '.join(command)} failed, see above: check the network and the "
        f"free disk space, or set PYTHON to a Python {versions} with the venv "
        "module, then run the same command again."
      ) from error
  (folder / _INSTALLED).write_bytes(requirements.read_bytes())
  return python
