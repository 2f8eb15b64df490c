"""Programs that other programs start: command lines, virtual environments.

It uses only the standard library, because some of these programs run in
environments whose packages conflict with those of this project.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any, Callable, Sequence

# A copy of the requirements; empty until the environment is complete.
_INSTALLED = "installed"
_ASK_VERSION = "import ensurepip, sys, venv; print(*sys.version_info[:2])"


# Before the name of a program in a command for the user.
PREFIX = (
  "albert " if "official_albert.programs" in sys.modules else "python -m tools."
)


def command(module: str, *arguments: str) -> list[str]:
  """Returns the command line of a module, with this interpreter."""
  return [sys.executable, "-m", module, *arguments]


def json_object(text: str) -> dict[str, Any]:
  """Parses a JSON object; raises ValueError for anything else."""
  value = json.loads(text)
  if not isinstance(value, dict):
    raise ValueError(f"{text!r} is not a JSON object.")
  return value


def arguments(starter: str, *kinds: Callable[[str], Any]) -> list[Any]:
  """Returns the arguments of this process as values.

  Exits with 1 if they are not the expected ones.

  Args:
    starter: the program that starts this one, such as "benchmark".
    *kinds: a function for each argument, which returns its value or raises
      ValueError.
  """
  try:
    return [kind(x) for kind, x in zip(kinds, sys.argv[1:], strict=True)]
  except ValueError:
    sys.exit(
      f"error: start tools.{starter} instead, which starts this program."
    )


def is_complete(folder: pathlib.Path, requirements: pathlib.Path) -> bool:
  """Returns whether everything in `requirements` is installed in `folder`."""
  installed = folder / _INSTALLED
  return (
    installed.exists() and installed.read_bytes() == requirements.read_bytes()
  )


def make_environment(
  folder: pathlib.Path,
  requirements: pathlib.Path,
  oldest: tuple[int, int],
  newest: tuple[int, int],
) -> str:
  """Creates an environment unless it is complete; returns its interpreter.

  An interrupted installation starts over. `oldest` and `newest` are the
  versions of Python that the packages in the file `requirements` support.

  Raises:
    ValueError: `folder` is something else, PYTHON has another version, or pip
      failed.
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
  base_python = _find_python(oldest, newest)
  shutil.rmtree(folder, ignore_errors=True)
  folder.mkdir(parents=True)
  (folder / _INSTALLED).touch()
  print(
    f"Installing {requirements.name} into {folder}; this takes minutes...",
    flush=True,
  )
  _run([base_python, "-m", "venv", str(folder)], f"could not create {folder}")
  _run(
    [
      *(python, "-m", "pip", "install", "--quiet"),
      *("--disable-pip-version-check", "-r", str(requirements)),
    ],
    f"pip could not install {requirements.name}",
  )
  (folder / _INSTALLED).write_bytes(requirements.read_bytes())
  return python


def _find_python(oldest: tuple[int, int], newest: tuple[int, int]) -> str:
  """Returns the interpreter named by PYTHON, by default this one."""
  python = os.environ.get("PYTHON") or sys.executable
  version: tuple[int, ...] = ()
  with contextlib.suppress(OSError, subprocess.CalledProcessError):
    command = [python, "-c", _ASK_VERSION]
    shown = subprocess.check_output(command, stderr=subprocess.DEVNULL)
    version = tuple(map(int, shown.split()))
  if not oldest <= version <= newest:
    first, last = (".".join(map(str, x)) for x in (oldest, newest))
    raise ValueError(
      f"{python} is not a Python {first} to {last} with the venv module: set "
      "the environment variable PYTHON to the path of one."
    )
  return python


def _run(command: Sequence[str], failure: str) -> None:
  done = subprocess.run(
    command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
  )
  if done.returncode:
    # pip prints the cause last, below its warnings.
    lines = done.stdout.strip().splitlines()
    reason = lines[-1] if lines else f"exit code {done.returncode}"
    raise ValueError(
      f"{failure} ({reason}): check the network and the free disk space, then "
      "run the same command again."
    )
