"""The environment with commands made up: no network, nothing is installed."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from tools.tpu_compile import environment as tpu_venv


class Machine:
  """Python 3.10 by its own name, and 3.12 by another; pip may fail."""

  def __init__(self, versions=None, pip=0):
    self.versions = versions or {sys.executable: "3 10", "python3.12": "3 12"}
    self.pip = pip
    self.commands = []

  def run(self, command):
    if command[1] == "-c":
      version = self.versions.get(command[0])
      return (0, f"{version}\n") if version else (127, "")
    self.commands.append(command)
    if command[2] == "venv":
      python = tpu_venv.python_of(pathlib.Path(command[3]))
      python.parent.mkdir(parents=True)
      python.touch()
      return 0, ""
    if self.pip is KeyboardInterrupt:
      raise KeyboardInterrupt
    return self.pip, ""


@pytest.fixture
def requirements(tmp_path):
  path = tmp_path / "requirements-x.txt"
  path.write_text("jax==1\n")
  return path


@pytest.fixture(autouse=True)
def no_named_python(monkeypatch):
  monkeypatch.delenv("PYTHON", raising=False)


def make(folder, requirements, machine):
  said = []
  python = tpu_venv.make(folder, requirements, said.append, machine.run)
  assert python == folder / "bin" / "python"
  return said


def test_makes_it_once(tmp_path, requirements):
  machine, folder = Machine(), tmp_path / "a" / "b"
  assert "requirements-x.txt" in make(folder, requirements, machine)[0]
  assert machine.commands[0][0] == "python3.12"
  assert machine.commands[1][-2:] == ["-r", str(requirements)]
  assert make(folder, requirements, machine) == []
  assert len(machine.commands) == 2


@pytest.mark.parametrize("pip, error", [(1, OSError), (KeyboardInterrupt,) * 2])
def test_an_interrupted_installation_is_started_again(
  tmp_path, requirements, pip, error
):
  folder = tmp_path / "venv"
  with pytest.raises(error):
    make(folder, requirements, Machine(pip=pip))
  assert not tpu_venv.is_complete(folder, requirements)
  (folder / "half-a-package").touch()
  make(folder, requirements, Machine())
  assert tpu_venv.is_complete(folder, requirements)
  assert not (folder / "half-a-package").exists()


def test_changed_requirements_are_installed(tmp_path, requirements):
  machine, folder = Machine(), tmp_path / "venv"
  make(folder, requirements, machine)
  requirements.write_text("jax==2\n")
  assert not tpu_venv.is_complete(folder, requirements)
  make(folder, requirements, machine)
  assert len(machine.commands) == 4


def test_another_folder_is_not_touched(tmp_path, requirements):
  (tmp_path / "mine.txt").touch()
  with pytest.raises(ValueError, match="not an environment that this program"):
    make(tmp_path, requirements, Machine())
  assert (tmp_path / "mine.txt").exists()


@pytest.mark.parametrize("version", ["2 7", "3 10", "3 15"])
def test_no_python_is_said_in_a_sentence(tmp_path, requirements, version):
  machine, folder = Machine({"python3": version}), tmp_path / "venv"
  with pytest.raises(OSError, match="no Python 3.11 to 3.14 .* PYTHON"):
    make(folder, requirements, machine)
  assert not folder.exists()


def test_the_named_python_comes_first(tmp_path, requirements, monkeypatch):
  machine = Machine({sys.executable: "3 11", "/my/python": "3 13"})
  monkeypatch.setenv("PYTHON", "/my/python")
  make(tmp_path / "venv", requirements, machine)
  assert machine.commands[0][0] == "/my/python"


@pytest.mark.parametrize(
  "arguments, code, out, error",
  [
    (["--help"], 0, "python -m tools.tpu_compile.environment", ""),
    (["--folder=x"], 2, "", "tpu_venv: error: there is no flag --folder; "),
    (["x"], 2, "", "tpu_venv: error: unexpected argument 'x'"),
    ([], 1, "", "not an environment that this program made"),
  ],
)
def test_only_the_bare_command_goes_to_work(
  tmp_path, arguments, code, out, error
):
  # A copy of it has its environment elsewhere, with something in the way.
  path = tmp_path / "tools" / "tpu_compile" / "tpu_venv.py"
  path.parent.mkdir(parents=True)
  shutil.copy(tpu_venv.__file__, path)
  (tmp_path / tpu_venv.FOLDER.name).mkdir()
  (tmp_path / tpu_venv.FOLDER.name / "mine.txt").touch()
  done = subprocess.run(
    [sys.executable, str(path), *arguments],
    env={**os.environ, "PYTHONPATH": str(tpu_venv.ROOT)},
    capture_output=True,
    text=True,
  )
  assert done.returncode == code
  assert out in done.stdout and bool(out) == bool(done.stdout)
  assert error in done.stderr and bool(error) == bool(done.stderr)


def test_run():
  assert tpu_venv.run([sys.executable, "-c", "print(3)"]) == (0, "3\n")
  assert tpu_venv.run(["no-such-program"]) == (127, "")


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
