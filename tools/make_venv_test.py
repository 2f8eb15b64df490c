"""Tests make_venv.sh with fake Pythons: no network, no installation."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

_SCRIPT = pathlib.Path(__file__).absolute().with_name("make_venv.sh")
# Runs the real Python, but reports VERSION; its pip logs its arguments.
_PYTHON = """#!/bin/sh
case "$1 $2" in
  "-m venv") mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
  "-m pip") echo "$@" >>pip.log; exit ${PIP_EXIT:-0} ;;
  *ensurepip*) exit HAS_VENV ;;
  *) exec REAL -c "import sys; sys.version_info = VERSION; exec(sys.argv[1])" \\
    "$2" ;;
esac
"""
_SHIM = "#!/bin/sh\necho 'pyenv: python3.11: command not found' >&2\nexit 127\n"


def make_python(
  path: pathlib.Path, version: tuple = (3, 10, 4), venv: bool = True
) -> None:
  text = _PYTHON.replace("REAL", sys.executable)
  text = text.replace("VERSION", str(version))
  write_program(path, text.replace("HAS_VENV", "0" if venv else "1"))


def write_program(path: pathlib.Path, text: str) -> None:
  path.write_text(text)
  path.chmod(0o755)


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
  """A project folder; PATH is its `programs`."""
  (tmp_path / "requirements.txt").write_text("a==1\n")
  (tmp_path / "requirements-dev.txt").write_text("-r requirements.txt\nb==2\n")
  programs = tmp_path / "programs"
  programs.mkdir()
  for name in ("cat", "cp", "mkdir", "rm", "sh"):
    (programs / name).symlink_to(shutil.which(name))
  return tmp_path


def run(
  folder: pathlib.Path, file: str = "requirements.txt", **environment: str
) -> subprocess.CompletedProcess:
  return subprocess.run(
    ["sh", str(_SCRIPT), file],
    cwd=folder,
    env={"PATH": str(folder / "programs"), **environment},
    executable=str(folder / "programs" / "sh"),
    capture_output=True,
    text=True,
  )


def pip_runs(folder: pathlib.Path) -> int:
  log = folder / "pip.log"
  return len(log.read_text().splitlines()) if log.exists() else 0


def version_of(folder: pathlib.Path) -> str:
  """The version that the Python in .venv reports."""
  text = (folder / ".venv" / "bin" / "python").read_text()
  return text.split("version_info = ")[1].split(";")[0]


def test_makes_it_once(folder):
  make_python(folder / "programs" / "python3")
  assert run(folder).returncode == 0
  assert "-r requirements.txt" in (folder / "pip.log").read_text()
  assert run(folder).stdout == ""
  assert pip_runs(folder) == 1


@pytest.mark.parametrize("version", [(3, 9, 18), (3, 12, 0), (2, 7, 18)])
def test_other_versions_and_broken_shims_are_skipped(folder, version):
  make_python(folder / "programs" / "python3", version)
  write_program(folder / "programs" / "python3.11", _SHIM)
  make_python(folder / "programs" / "python3.10", (3, 10, 0))
  assert run(folder).returncode == 0
  assert version_of(folder) == "(3, 10, 0)"


def test_the_named_python_comes_first(folder):
  make_python(folder / "programs" / "python3", (3, 10, 1))
  make_python(folder / "mine", (3, 11, 9))
  assert run(folder, PYTHON=str(folder / "mine")).returncode == 0
  assert version_of(folder) == "(3, 11, 9)"


def assert_refused(folder, message, **environment):
  result = run(folder, **environment)
  assert result.returncode == 1
  assert result.stderr.startswith("error: ") and message in result.stderr
  assert result.stderr.count("\n") == 1


def test_unusable_pythons_are_refused(folder):
  write_program(folder / "programs" / "python3.11", _SHIM)
  make_python(folder / "programs" / "python3", (3, 12, 0))
  assert_refused(folder, "No Python 3.10 or 3.11 found")
  make_python(folder / "programs" / "python3", venv=False)
  assert_refused(folder, "python3 has no venv module")
  assert not (folder / ".venv").exists()


def test_an_interrupted_installation_is_repeated(folder):
  make_python(folder / "programs" / "python3")
  message = "pip could not install requirements.txt"
  assert_refused(folder, message, PIP_EXIT="1")
  half = folder / ".venv" / "half-a-package"
  half.write_text("")
  assert run(folder).returncode == 0
  assert not half.exists()
  assert pip_runs(folder) == 2


def test_changed_requirements_are_installed(folder):
  make_python(folder / "programs" / "python3")
  assert run(folder, "requirements-dev.txt").returncode == 0
  kept = folder / ".venv" / "kept"
  kept.write_text("")
  (folder / "requirements.txt").write_text("a==3\n")
  # An archive may bring an older time stamp.
  os.utime(folder / "requirements.txt", (1, 1))
  assert run(folder, "requirements-dev.txt").returncode == 0
  assert run(folder, "requirements-dev.txt").returncode == 0
  assert pip_runs(folder) == 2
  assert kept.exists()


def test_a_venv_of_another_version_is_kept(folder):
  make_python(folder / "programs" / "python3")
  (folder / ".venv" / "bin").mkdir(parents=True)
  make_python(folder / ".venv" / "bin" / "python", (3, 12, 1))
  assert_refused(folder, ".venv holds another Python")
  assert version_of(folder) == "(3, 12, 1)"


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
