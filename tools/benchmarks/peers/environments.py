"""Virtual environments of the peers, made from requirements/*.txt when needed.

An installation that was interrupted is started again from nothing: a copy of
the requirements is left in the environment at the end, and compared.
"""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys
from typing import Optional

REQUIREMENTS_DIR = pathlib.Path(__file__).resolve().parent / "requirements"
_MARK = "installed-requirements.txt"
# The only Python that the releases in all of requirements/ have packages for.
_VERSION = (3, 11)


def make(name: str, peers_dir: str, python: Optional[str] = None) -> str:
  """The interpreter of a peer's environment, which is made if need be.

  Args:
    name: of a file in requirements/, without ".txt".
    peers_dir: where the environments are.
    python: the interpreter to make it from; see `find_python`.

  Returns:
    Path of the environment's interpreter.

  Raises:
    ValueError: there is no Python 3.11, or pip failed.
  """
  requirements = REQUIREMENTS_DIR / f"{name}.txt"
  # No name that other programs have: what is there is made anew.
  folder = pathlib.Path(peers_dir).expanduser().absolute()
  folder = folder / f"official_albert_{name}"
  interpreter = folder / "bin" / "python"
  wanted = requirements.read_text(encoding="utf-8")
  mark = folder / _MARK
  if mark.exists() and mark.read_text(encoding="utf-8") == wanted:
    return str(interpreter)
  python = python or find_python()
  shutil.rmtree(folder, ignore_errors=True)
  folder.parent.mkdir(parents=True, exist_ok=True)
  print(f"Installing {requirements.name} into {folder} ...", flush=True)
  _run([python, "-m", "venv", str(folder)], f"could not make {folder}")
  _run(
    [
      str(interpreter),
      *"-m pip install --quiet --disable-pip-version-check -r".split(),
      str(requirements),
    ],
    f"pip could not install {requirements}",
  )
  mark.write_text(wanted, encoding="utf-8")
  return str(interpreter)


def find_python() -> str:
  """This interpreter if it is a Python 3.11, else the one on the PATH.

  Raises:
    ValueError: there is none.
  """
  if sys.version_info[:2] == _VERSION:
    return sys.executable
  name = "python{}.{}".format(*_VERSION)
  found = shutil.which(name)
  if not found:
    raise ValueError(
      f"the peers need {name}, which is not on the PATH: install it, or name "
      "fewer --systems."
    )
  return found


def _run(command: list[str], failure: str) -> None:
  try:
    done = subprocess.run(
      command,
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
      check=False,
    )
    code, said = done.returncode, done.stdout.strip()
  except OSError as error:
    code, said = 1, str(error)
  if code:
    # pip tells the cause last, below its warnings.
    reason = said.splitlines()[-1] if said else f"exit code {code}"
    raise ValueError(
      f"{failure} ({reason}): check the network and the free disk space, then "
      "run the same command again."
    )
