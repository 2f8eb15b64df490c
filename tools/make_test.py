"""Tests which Python `make` takes, and what it refuses."""

from __future__ import annotations

import pathlib
import shutil
import subprocess

import pytest

_ROOT = pathlib.Path(__file__).resolve().parents[1]


@pytest.fixture
def make(tmp_path):
  """Runs `make -n` where only the given versions of Python exist."""
  (tmp_path / "bin").mkdir()
  for name in ("Makefile", "requirements.txt", "requirements-dev.txt"):
    shutil.copy(_ROOT / name, tmp_path)
  shutil.copy(_ROOT / "pyproject.toml", tmp_path)
  for name in ("make", "sh", "expr", "nproc"):
    (tmp_path / "bin" / name).symlink_to(shutil.which(name))

  def run(*arguments: str, versions=(), venv="") -> subprocess.CompletedProcess:
    names = {f"bin/python{version}": version for version in versions}
    if venv:
      (tmp_path / ".venv" / "bin").mkdir(parents=True)
      names[".venv/bin/python"] = venv
    for name, version in names.items():
      # Answers the two questions of the Makefile.
      (tmp_path / name).write_text(
        f'#!/bin/sh\ncase $2 in *executable*) echo "$0";; *) echo {version};; '
        "esac\n"
      )
      (tmp_path / name).chmod(0o755)
    return subprocess.run(
      ["make", "-n", *arguments],
      cwd=tmp_path,
      env={"PATH": str(tmp_path / "bin")},
      capture_output=True,
      text=True,
    )

  return run


@pytest.mark.parametrize(
  "versions, chosen",
  [
    (("3.10", "3.12", "3.11", "3.13"), "3.11"),
    (("3.10", "3.13", "3.12"), "3.12"),
    (("3.9", "3.10"), "3.10"),
  ],
)
def test_the_first_supported_python_is_taken(make, versions, chosen):
  done = make("venv", versions=versions)
  assert done.returncode == 0, done.stderr
  assert f'bin/python{chosen}" -m venv .venv\n' in done.stdout


def test_other_versions_are_installed_beside(make):
  done = make("test-other-lane", versions=("3.11", "3.12"), venv="3.11")
  assert 'bin/python3.12" -m venv .venv-other\n' in done.stdout
  assert "requirements-dev.txt into .venv-other" in done.stdout


def test_a_python_that_is_missing_or_not_supported_is_named(make):
  assert 'test -n ""' in make("venv").stdout
  done = make("venv", "PYTHON=python3.9", versions=("3.9",))
  assert done.returncode == 2 and "PYTHON=python3.9 is not" in done.stderr
  done = make("venv", "PYTHON=python3.12", versions=("3.12",), venv="3.11")
  assert done.returncode == 2 and ".venv is not of the version" in done.stderr


def test_an_installation_is_finished_once(make, tmp_path):
  assert (
    "Installing requirements.txt" in make("venv", versions=("3.11",)).stdout
  )
  (tmp_path / ".venv").mkdir()
  (tmp_path / ".venv" / "requirements.txt").touch()
  assert "Installing" not in make("venv", versions=("3.11",)).stdout
