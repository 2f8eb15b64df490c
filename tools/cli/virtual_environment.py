"""Virtual environments for programs whose packages conflict with our own."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
from typing import Sequence

# A copy of the requirements, written last: an environment without it is not
# complete. Earlier versions used the second name.
_INSTALLED = ("installed", "installed-requirements.txt")
_INSTALLING = "installing"
_ASK_VERSION = "import ensurepip, sys, venv; print(*sys.version_info[:2])"


def python_of(folder: pathlib.Path) -> str:
  """Returns the path of an environment's interpreter."""
  return str(folder / "bin" / "python")


def is_complete(folder: pathlib.Path, requirements: pathlib.Path) -> bool:
  """Whether everything in `requirements` was installed into `folder`."""
  wanted = requirements.read_text("utf-8")
  return not (folder / _INSTALLING).exists() and any(
    (folder / name).exists() and (folder / name).read_text("utf-8") == wanted
    for name in _INSTALLED
  )


def make(
  folder: pathlib.Path,
  requirements: pathlib.Path,
  oldest: tuple[int, int],
  newest: tuple[int, int],
) -> str:
  """Creates an environment unless it is complete.

  An interrupted installation starts again from nothing.

  Args:
    folder: of the environment; may be missing.
    requirements: a file for pip.
    oldest: the first version of Python that the packages support.
    newest: the last one.

  Returns:
    The path of the environment's interpreter.

  Raises:
    ValueError: `folder` is something else, there is no such Python, or pip
      failed.
  """
  if is_complete(folder, requirements):
    return python_of(folder)
  ours = any((folder / name).exists() for name in (*_INSTALLED, _INSTALLING))
  if folder.exists() and not ours and any(folder.iterdir()):
    raise ValueError(
      f"{folder} was not created by this program: remove it, or choose another "
      "folder."
    )
  python = _find_python(oldest, newest)
  if folder.exists():
    shutil.rmtree(folder)
  folder.mkdir(parents=True)
  (folder / _INSTALLING).touch()
  print(
    f"Installing {requirements.name} into {folder}; this takes minutes...",
    flush=True,
  )
  _run([python, "-m", "venv", str(folder)], f"could not create {folder}")
  _run(
    [
      *(python_of(folder), "-m", "pip", "install", "--quiet"),
      *("--disable-pip-version-check", "-r", str(requirements)),
    ],
    f"pip could not install {requirements.name}",
  )
  shutil.copyfile(requirements, folder / _INSTALLED[0])
  (folder / _INSTALLING).unlink()
  return python_of(folder)


def _find_python(oldest: tuple[int, int], newest: tuple[int, int]) -> str:
  minors = range(oldest[1], newest[1] + 1)
  names = [sys.executable, "python3", *(f"python3.{minor}" for minor in minors)]
  for name in [*filter(None, [os.environ.get("PYTHON")]), *names]:
    # Runs it, as a name on the PATH may be a shim without an interpreter.
    try:
      done = subprocess.run(
        [name, "-c", _ASK_VERSION], capture_output=True, text=True
      )
    except OSError:
      continue
    if done.returncode == 0:
      version = tuple(map(int, done.stdout.split()))
      if oldest <= version <= newest:
        return name
  versions = " to ".join(
    dict.fromkeys(".".join(map(str, version)) for version in (oldest, newest))
  )
  raise ValueError(
    f"no Python {versions} with the venv module was found: install one, or set "
    "the environment variable PYTHON to its path."
  )


def _run(command: Sequence[str], failure: str) -> None:
  try:
    done = subprocess.run(
      command,
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
    )
    code, output = done.returncode, done.stdout.strip()
  except OSError as error:
    code, output = 1, str(error)
  if code:
    # pip prints the cause last, below its warnings.
    reason = output.splitlines()[-1] if output else f"exit code {code}"
    raise ValueError(
      f"{failure} ({reason}): check the network and the free disk space, then "
      "run the same command again."
    )
