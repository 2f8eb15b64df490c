"""Programs that other programs start: command lines, virtual environments.

Only the standard library is used: some of these programs run in environments
that have none of this project's packages, because those would conflict.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any, Callable, Optional, Sequence

# A copy of the requirements, written last: an environment without it is not
# complete.
_INSTALLED = "installed"
_INSTALLING = "installing"
_ASK_VERSION = "import ensurepip, sys, venv; print(*sys.version_info[:2])"


def json_object(text: str) -> dict[str, Any]:
  """Parses a JSON object; raises ValueError for anything else."""
  value = json.loads(text)
  if not isinstance(value, dict):
    raise ValueError(f"{text!r} is not a JSON object.")
  return value


def arguments(
  starter: str,
  *kinds: Callable[[str], Any],
  argv: Optional[Sequence[str]] = None,
) -> list[Any]:
  """Returns the arguments as values; exits with 2 if they are not as expected.

  Args:
    starter: the program that starts this one, such as "tools.benchmark".
    *kinds: for each argument, what makes a value of it or raises ValueError.
    argv: the arguments; by default those of this process.
  """
  given = sys.argv[1:] if argv is None else argv
  try:
    if len(given) == len(kinds):
      return [kind(text) for kind, text in zip(kinds, given)]
  except ValueError:
    pass
  program = os.path.splitext(os.path.basename(sys.argv[0]))[0]
  print(
    f"{program}: error: start {starter} instead, which starts this program.",
    file=sys.stderr,
  )
  sys.exit(2)


def is_complete(folder: pathlib.Path, requirements: pathlib.Path) -> bool:
  """Returns whether everything in `requirements` is installed in `folder`."""
  installed = folder / _INSTALLED
  return not (folder / _INSTALLING).exists() and (
    installed.exists() and installed.read_bytes() == requirements.read_bytes()
  )


def make_environment(
  folder: pathlib.Path,
  requirements: pathlib.Path,
  oldest: tuple[int, int],
  newest: tuple[int, int],
) -> str:
  """Creates an environment unless it is complete; returns its interpreter.

  An interrupted installation starts over.

  Args:
    folder: the folder of the environment; created if missing.
    requirements: a requirements file for pip.
    oldest: the oldest version of Python that the packages support.
    newest: the newest one.

  Raises:
    ValueError: `folder` is something else, there is no such Python, or pip
      failed.
  """
  python = str(folder / "bin" / "python")
  if is_complete(folder, requirements):
    return python
  if folder.exists():
    ours = any((folder / name).exists() for name in (_INSTALLED, _INSTALLING))
    if not ours and any(folder.iterdir()):
      raise ValueError(
        f"{folder} was not created by this program: remove it, or choose "
        "another folder."
      )
  base_python = _find_python(oldest, newest)
  shutil.rmtree(folder, ignore_errors=True)
  folder.mkdir(parents=True)
  (folder / _INSTALLING).touch()
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
  shutil.copyfile(requirements, folder / _INSTALLED)
  (folder / _INSTALLING).unlink()
  return python


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
  wanted = ".".join(map(str, oldest))
  if newest != oldest:
    wanted += f" to {'.'.join(map(str, newest))}"
  raise ValueError(
    f"no Python {wanted} with the venv module was found: install one, or set "
    "the environment variable PYTHON to its path."
  )


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
