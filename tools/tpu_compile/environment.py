"""The virtual environment of the TPU's compiler.

    python -m tools.tpu_compile.environment

creates it; tools.compile_for_tpu does so too when it is first needed. It is
separate because JAX and TensorFlow 2.15 need different versions of the same
packages.
"""

from __future__ import annotations

import pathlib

from tools.cli import child_programs, command_line

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".venv-tpu-compile"
_REQUIREMENTS = ROOT / "requirements-tpu-compile.txt"
# The versions of Python that this JAX has wheels for.
_OLDEST, _NEWEST = (3, 11), (3, 14)


def make(folder: pathlib.Path = FOLDER) -> str:
  """Creates the environment if needed (1.3 GB); returns its interpreter."""
  return child_programs.make_environment(
    folder, _REQUIREMENTS, _OLDEST, _NEWEST
  )


def is_complete() -> bool:
  """Whether the environment has been created in `FOLDER`."""
  return child_programs.is_complete(FOLDER, _REQUIREMENTS)


if __name__ == "__main__":
  command_line.run(lambda argv: make())
