"""Tests make_venv.sh with fake Pythons and uv: no network, no installation."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

_SCRIPT = pathlib.Path(__file__).absolute().with_name("make_venv.sh")
# Runs the real Python, but reports VERSION. Its pip logs its arguments, except
# those of installing uv, which is the file `uv` of the project folder.
_PYTHON = """#!/bin/sh
case "$1 $2" in
  "-m venv") mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
  "-m pip")
    case "$*" in
      *" config list") echo "$PIP_SETTINGS" ;;
      *" uv") [ -e uv ] && cp uv "${0%/*}" ;;
      *) echo "$@" >>pip.log; exit ${PIP_EXIT:-0} ;;
    esac ;;
  *ensurepip*) exit HAS_VENV ;;
  *) code="import sys; sys.version_info = VERSION; exec(sys.argv[1])"
    exec REAL -I -S -c "$code" "$2" ;;
esac
"""
_SHIM = "#!/bin/sh\necho 'pyenv: python3.11: command not found' >&2\nexit 127\n"
# Its own Python is `managed`. Its pip logs its arguments where pip's does.
_UV = """#!/bin/sh
case "$1" in
  --version) exit 0 ;;
  venv)
    while [ $# -gt 2 ]; do
      [ "$1" != --python ] || found=$2
      shift
    done
    [ "$found" != 3.11 ] && [ "$found" != 3.12 ] || found=./managed
    found=$(command -v "$found") || exit 2
    mkdir -p "$2/bin" && cp "$found" "$2/bin/python" ;;
  pip) echo "uv $@" >>pip.log; exit ${UV_EXIT:-0} ;;
esac
"""


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
  for name in ("cat", "cp", "mkdir", "readlink", "rm", "sh"):
    (programs / name).symlink_to(shutil.which(name))
  return tmp_path


def run(
  folder: pathlib.Path, arguments: str = "requirements.txt", **environment: str
) -> subprocess.CompletedProcess:
  return subprocess.run(
    ["sh", str(_SCRIPT), *arguments.split()],
    cwd=folder,
    env={"PATH": str(folder / "programs"), **environment},
    executable=str(folder / "programs" / "sh"),
    capture_output=True,
    text=True,
  )


def pip_runs(folder: pathlib.Path) -> int:
  log = folder / "pip.log"
  return len(log.read_text().splitlines()) if log.exists() else 0


def version_of(folder: pathlib.Path, venv: str = ".venv") -> str:
  """The version that the Python in `venv` reports."""
  text = (folder / venv / "bin" / "python").read_text()
  return text.split("version_info = ")[1].split(";")[0]


@pytest.mark.parametrize(
  "version, sentence",
  [
    ((3, 10, 4), "Using Python 3.10 (PATH): TensorFlow 2.15, the pinned lane."),
    ((3, 11, 7), "Using Python 3.11 (PATH): TensorFlow 2.15, the pinned lane."),
    ((3, 12, 1), "Using Python 3.12 (PATH): TensorFlow 2.20, the newer lane."),
    ((3, 13, 0), "Using Python 3.13 (PATH): TensorFlow 2.20, the newer lane."),
  ],
)
def test_makes_it_once_and_every_run_names_the_lane(folder, version, sentence):
  make_python(folder / "programs" / "python3", version)
  sentence = sentence.replace("PATH", str(folder / ".venv" / "bin" / "python"))
  first = run(folder)
  assert first.returncode == 0
  assert first.stdout.startswith(f"{sentence}\nInstalling the packages")
  assert "-r requirements.txt" in (folder / "pip.log").read_text()
  assert run(folder).stdout == sentence + "\n"
  assert pip_runs(folder) == 1


def test_python_3_11_comes_before_3_12_3_13_and_3_10(folder):
  programs = folder / "programs"
  for minor in (10, 13, 12, 11):
    make_python(programs / f"python3.{minor}", (3, minor, 2))
    assert run(folder).returncode == 0
    assert version_of(folder) == f"(3, {minor}, 2)"
    shutil.rmtree(folder / ".venv")


@pytest.mark.parametrize("minor, chosen", [(10, 12), (11, 11)])
def test_python3_has_the_rank_of_its_version(folder, minor, chosen):
  programs = folder / "programs"
  make_python(programs / "python3.13", (3, 13, 1))
  make_python(programs / "python3", (3, 12, 1))
  make_python(programs / "python", (3, minor, 1))
  run(folder)
  assert version_of(folder) == f"(3, {chosen}, 1)"


@pytest.mark.parametrize("version", [(3, 9, 18), (3, 14, 0), (2, 7, 18)])
def test_other_versions_and_broken_shims_are_skipped(folder, version):
  make_python(folder / "programs" / "python3", version)
  write_program(folder / "programs" / "python3.11", _SHIM)
  make_python(folder / "programs" / "python3.10", (3, 10, 0))
  assert run(folder).returncode == 0
  assert version_of(folder) == "(3, 10, 0)"


def test_the_named_python_comes_first(folder):
  make_python(folder / "programs" / "python3", (3, 11, 1))
  make_python(folder / "mine", (3, 13, 9))
  assert run(folder, PYTHON=str(folder / "mine")).returncode == 0
  assert version_of(folder) == "(3, 13, 9)"


def assert_refused(
  folder, message, arguments="requirements.txt", **environment
):
  result = run(folder, arguments, **environment)
  missing = message.startswith("No Python")
  assert result.returncode == (3 if missing else 1)
  assert result.stderr.startswith("error: ") and message in result.stderr
  assert result.stderr.count("\n") == 1


def test_unusable_pythons_are_refused(folder):
  write_program(folder / "programs" / "python3.11", _SHIM)
  make_python(folder / "programs" / "python3", (3, 14, 0))
  assert_refused(folder, "No Python 3.10 to 3.13 found")
  make_python(folder / "programs" / "python3", venv=False)
  assert_refused(folder, "python3 has no venv module")
  make_python(folder / "programs" / "python3.12", (3, 12, 0))
  for name in ("python3.11", "python3.9"):  # A shim and none at all.
    message = f"PYTHON={name} is not the command or path of a Python 3.10 to"
    assert_refused(folder, message, PYTHON=name)
  assert not (folder / ".venv").exists()


def test_an_interrupted_installation_is_repeated(folder):
  make_python(folder / "programs" / "python3")
  message = "requirements.txt could not be installed"
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


def test_the_packages_of_the_clone_are_importable_everywhere(folder):
  make_python(folder / "programs" / "python3")
  run(folder)
  site = folder / ".venv" / "lib" / "python3.10" / "site-packages"
  site.mkdir(parents=True)
  for name in ("requirements.txt", "requirements-dev.txt"):
    assert run(folder, name).returncode == 0
    (path,) = site.glob("*.pth")
    assert path.read_text() == f"{folder}\n"
    path.unlink()


def test_a_venv_of_another_version_is_kept(folder):
  make_python(folder / "programs" / "python3")
  (folder / ".venv" / "bin").mkdir(parents=True)
  make_python(folder / ".venv" / "bin" / "python", (3, 14, 1))
  assert_refused(folder, ".venv holds another Python than 3.10 to 3.13")
  make_python(folder / ".venv" / "bin" / "python", (3, 12, 1))
  message = ".venv holds Python 3.12, and PYTHON=python3 is another version"
  assert_refused(folder, message, PYTHON="python3")
  assert version_of(folder) == "(3, 12, 1)" and pip_runs(folder) == 0
  make_python(folder / "programs" / "python3", (3, 12, 4))
  assert run(folder, PYTHON="python3").returncode == 0
  assert version_of(folder) == "(3, 12, 1)" and pip_runs(folder) == 1


def test_another_folder(folder):
  make_python(folder / "programs" / "python3")
  (folder / "mine").mkdir()
  (folder / "mine" / "letter").write_text("")
  assert_refused(folder, "mine exists, and make did not create it", VENV="mine")
  assert (folder / "mine" / "letter").exists()
  # Its Python was removed.
  (folder / "mine" / "installed-requirements.txt").write_text("")
  assert run(folder, VENV="mine/").returncode == 0
  assert version_of(folder, "mine") == "(3, 10, 4)"
  assert run(folder, VENV="deep/venv").returncode == 0
  assert "Installing" not in run(folder, VENV="deep/venv").stdout
  assert version_of(folder, "deep/venv") == "(3, 10, 4)"
  assert not (folder / ".venv").exists()


@pytest.mark.parametrize(
  "minor, found, supported, example",
  [(11, 13, "3.12 or 3.13", "3.12"), (12, 10, "3.10 or 3.11", "3.11")],
)
def test_the_other_lane(folder, minor, found, supported, example):
  programs = folder / "programs"
  make_python(programs / f"python3.{minor}", (3, minor, 2))
  assert run(folder).returncode == 0
  other = "requirements-dev.txt other-lane"
  message = f"No Python {supported} found: install one of them, or name it: "
  message += f"make OTHER_PYTHON=/path/to/python{example} ..."
  assert_refused(folder, message, other)
  name = f"python3.{minor}"
  message = (
    f"OTHER_PYTHON={name} is not the command or path of a Python {supported}"
  )
  assert_refused(folder, message, other, PYTHON=name)
  assert not (folder / ".venv-other").exists()
  make_python(programs / f"python3.{found}", (3, found, 2))
  assert run(folder, other).returncode == 0
  assert version_of(folder) == f"(3, {minor}, 2)"
  assert version_of(folder, ".venv-other") == f"(3, {found}, 2)"


def test_uv_installs_where_it_is_there(folder):
  programs = folder / "programs"
  write_program(programs / "uv", _UV)
  make_python(programs / "python3", (3, 12, 3), venv=False)
  failing = {"UV_EXIT": "2", "PIP_EXIT": "1"}
  assert_refused(folder, "requirements.txt could not be inst", **failing)
  assert run(folder).returncode == 0
  assert version_of(folder) == "(3, 12, 3)"
  *failed, line = (folder / "pip.log").read_text().splitlines()
  assert len(failed) == 2 and line == (
    "uv pip install --quiet --compile-bytecode --python .venv/bin/python "
    "-r requirements.txt"
  )
  write_program(programs / "uv", _SHIM)
  assert run(folder, "requirements-dev.txt").returncode == 0
  assert "uv" not in (folder / "pip.log").read_text().splitlines()[-1]


@pytest.mark.parametrize(
  "settings, is_used",
  [
    ("global.extra-index-url='https://a/simple'", True),
    ("global.index-url='https://a/simple'", False),
    (":env:.no-index='1'", False),
  ],
)
def test_pip_brings_uv_unless_it_has_another_index(folder, settings, is_used):
  write_program(folder / "uv", _UV)
  make_python(folder / "programs" / "python3", (3, 12, 3))
  assert run(folder, PIP_SETTINGS=settings).returncode == 0
  (line,) = (folder / "pip.log").read_text().splitlines()
  assert line.startswith("uv pip install") == is_used
  assert "-r requirements.txt" in line
  write_program(folder / "programs" / "uv", _UV)
  run(folder, "requirements-dev.txt", PIP_SETTINGS=settings)
  line = (folder / "pip.log").read_text().splitlines()[-1]
  assert line.startswith("uv pip install") == is_used


def test_pip_installs_if_uv_fails(folder):
  write_program(folder / "uv", _UV)
  make_python(folder / "programs" / "python3")
  assert run(folder, UV_EXIT="2").returncode == 0
  assert pip_runs(folder) == 2


def test_uv_brings_a_python(folder):
  write_program(folder / "programs" / "uv", _UV)
  result = run(folder)
  assert result.returncode == 3 and "pip.log" not in os.listdir(folder)
  assert "error: .venv could not be made with 3.11" in result.stderr
  make_python(folder / "managed", (3, 11, 8))
  result = run(folder)
  sentence = "No Python 3.10 to 3.13 found: uv brings Python 3.11.\n"
  assert result.returncode == 0 and result.stdout.startswith(sentence)
  assert version_of(folder) == "(3, 11, 8)"


@pytest.mark.skipif(not shutil.which("make"), reason="needs make")
def test_clean_removes_the_environments_that_make_created(tmp_path):
  shutil.copy(_SCRIPT.parents[1] / "Makefile", tmp_path)
  for name in (".venv", ".venv-newer", ".venv-newer-other", "mine"):
    (tmp_path / name).mkdir()
  for name in (".venv-newer", ".venv-newer-other"):
    (tmp_path / name / "installed-requirements.txt").touch()
  for venv in ("mine", ".venv-newer"):
    command = ["make", "clean", f"VENV={venv}"]
    subprocess.run(command, cwd=tmp_path, check=True)
    names = {"Makefile", "mine"}
    if venv == "mine":
      names |= {".venv-newer", ".venv-newer-other"}
    assert {*os.listdir(tmp_path)} == names
