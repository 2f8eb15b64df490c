"""The virtual environment that the TPU's compiler lives in.

    python -m tools.tpu_compile.environment

makes it; `tools.compile_for_tpu` does that too, when it is first needed.

JAX and TensorFlow 2.15 want different releases of the same packages, so it is
not the project's own. An installation that was interrupted is started again
from nothing: the file `installing` in it is removed only at the end, after a
copy of the requirements was left that the next call compares.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
from typing import Callable, Optional, Sequence

from tools.cli import command_line

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".venv-tpu-compile"
REQUIREMENTS = ROOT / "requirements-tpu-compile.txt"
# The Pythons that this JAX has wheels for.
_OLDEST, _NEWEST = (3, 11), (3, 14)
_ASK_VERSION = "import ensurepip, sys, venv; print(*sys.version_info[:2])"

# Runs a command and returns its exit code and what it printed on stdout.
Run = Callable[[Sequence[str]], tuple[int, str]]


def run(command: Sequence[str]) -> tuple[int, str]:
  """Its exit code and its output; 127 if there is no such program."""
  try:
    done = subprocess.run(
      list(command), stdout=subprocess.PIPE, text=True, check=False
    )
  except OSError:
    return 127, ""
  return done.returncode, done.stdout


def python_of(folder: pathlib.Path) -> pathlib.Path:
  """The interpreter of an environment."""
  return folder / "bin" / "python"


def is_complete(
  folder: pathlib.Path, requirements: pathlib.Path = REQUIREMENTS
) -> bool:
  """Whether everything of `requirements` was installed into `folder`."""
  installed = folder / "installed"
  if not python_of(folder).exists() or not installed.exists():
    return False
  if (folder / "installing").exists():
    return False
  return installed.read_text("utf-8") == requirements.read_text("utf-8")


def make(
  folder: pathlib.Path = FOLDER,
  requirements: pathlib.Path = REQUIREMENTS,
  say: Callable[[str], None] = print,
  run: Run = run,
) -> pathlib.Path:
  """The environment's interpreter; makes the environment if it is not there.

  Args:
    folder: of the environment; may be missing. Anything else that is in the
      way is not touched.
    requirements: a file for pip.
    say: is told before something that takes minutes.
    run: runs commands.

  Raises:
    ValueError: `folder` holds something else.
    OSError: there is no Python for it, or pip could not install it.
  """
  if is_complete(folder, requirements):
    return python_of(folder)
  marker = folder / "installing"
  ours = marker.exists() or (folder / "installed").exists()
  if folder.exists() and not ours and any(folder.iterdir()):
    raise ValueError(
      f"{folder} is not an environment that this program made: name another "
      "folder, or remove it."
    )
  python = _find_python(run)
  if folder.exists():
    shutil.rmtree(folder)
  folder.mkdir(parents=True)
  marker.touch()
  say(
    f"Installing the packages of {requirements.name} into {folder} (JAX and "
    "the TPU's compiler: 1.3 GB, a few minutes)..."
  )
  if run([python, "-m", "venv", str(folder)])[0]:
    raise OSError(f"{python} could not make {folder}, see above.")
  pip = [str(python_of(folder)), "-m", "pip", "install", "--quiet"]
  pip += ["--disable-pip-version-check", "-r", str(requirements)]
  if run(pip)[0]:
    raise OSError(
      f"pip could not install {requirements.name}, see above: check the "
      "network and the free disk space, then give the same command again."
    )
  text = requirements.read_text("utf-8")
  (folder / "installed").write_text(text, "utf-8")
  marker.unlink()
  return python_of(folder)


def _find_python(run: Run) -> str:
  names = [f"python3.{minor}" for minor in range(_OLDEST[1], _NEWEST[1] + 1)]
  named: Optional[str] = os.environ.get("PYTHON")
  for name in [*([named] if named else []), sys.executable, "python3", *names]:
    # Asked by running it, since a name on the PATH may be a shim for nothing.
    code, text = run([name, "-c", _ASK_VERSION])
    if code == 0 and _OLDEST <= tuple(map(int, text.split())) <= _NEWEST:
      return name
  oldest, newest = (".".join(map(str, v)) for v in (_OLDEST, _NEWEST))
  raise OSError(
    f"no Python {oldest} to {newest} with the venv module was found, which "
    "the TPU's compiler needs: install one, or name it with the environment "
    "variable PYTHON."
  )


def main(argv: Sequence[str]) -> None:
  """Makes it where it is looked for."""
  del argv  # `command_line.run` has refused any.
  make()


if __name__ == "__main__":
  command_line.run(main)
