"""Tests of virtual environments with a made-up Python and pip."""

from __future__ import annotations

import sys

import pytest

from tools.cli import virtual_environment

# `-m venv DIR` copies it into DIR; `-m pip ...` records that it ran.
_PYTHON = """#!/bin/sh
case "$2" in
  venv) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
  pip) echo "$@" >>LOG; [ -e FAIL ] || exit 0
    echo "ERROR: no route to host" >&2; exit 1 ;;
  *) echo VERSION ;;
esac
"""


@pytest.fixture
def lab(tmp_path, monkeypatch):
  """A folder with requirements and a Python 3.12 named by PYTHON."""
  write_python(tmp_path, "3 12")
  monkeypatch.setenv("PYTHON", str(tmp_path / "python"))
  (tmp_path / "toy.txt").write_text("a==1\n")
  return tmp_path


def write_python(folder, version: str) -> None:
  text = _PYTHON.replace("LOG", str(folder / "log"))
  text = text.replace("FAIL", str(folder / "fail"))
  (folder / "python").write_text(text.replace("VERSION", version))
  (folder / "python").chmod(0o755)


def make(lab, folder="deep/venv", oldest=(3, 12), newest=(3, 13)) -> str:
  return virtual_environment.make(lab / folder, lab / "toy.txt", oldest, newest)


def pip_runs(lab) -> list[str]:
  return (lab / "log").read_text().splitlines()


def test_an_environment_is_created_once(lab, capsys):
  made = make(lab)
  assert made == str(lab / "deep" / "venv" / "bin" / "python")
  assert make(lab) == made
  (run,) = pip_runs(lab)
  assert run.startswith("-m pip install ") and run.endswith("/toy.txt")
  assert capsys.readouterr().out.count("Installing toy.txt") == 1


def test_an_interrupted_installation_starts_again(lab):
  (lab / "fail").touch()
  with pytest.raises(ValueError) as caught:
    make(lab)
  assert "toy.txt (ERROR: no route to host): check" in str(caught.value)
  assert "\n" not in str(caught.value)
  partial = lab / "deep" / "venv" / "half-a-package"
  partial.touch()
  (lab / "fail").unlink()
  make(lab)
  assert not partial.exists() and len(pip_runs(lab)) == 2


def test_changed_requirements_are_installed(lab):
  for text in ("a==1\n", "a==1\n", "a==2\n"):
    (lab / "toy.txt").write_text(text)
    make(lab)
  assert len(pip_runs(lab)) == 2


def test_environments_of_earlier_versions_are_kept(lab):
  made = make(lab)
  folder = lab / "deep" / "venv"
  (folder / "installed").rename(folder / "installed-requirements.txt")
  assert make(lab) == made
  assert len(pip_runs(lab)) == 1


def test_other_folders_are_left_alone(lab):
  (lab / "other").mkdir()
  (lab / "other" / "thesis.txt").touch()
  with pytest.raises(ValueError, match="other was not created by this program"):
    make(lab, "other")
  assert (lab / "other" / "thesis.txt").exists()


def test_the_version_of_python_must_fit(lab):
  with pytest.raises(ValueError, match="no Python 3.98 to 3.99 with the venv"):
    make(lab, oldest=(3, 98), newest=(3, 99))
  with pytest.raises(ValueError, match="no Python 3.99 with the venv"):
    make(lab, oldest=(3, 99), newest=(3, 99))
  # A Python that does not run is skipped.
  (lab / "python").write_text("no program")
  version = sys.version_info[:2]
  with pytest.raises(ValueError, match="pip could not install"):
    (lab / "toy.txt").write_text("--no-index\nno-such-package-at-all\n")
    make(lab, oldest=version, newest=version)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
