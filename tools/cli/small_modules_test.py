"""Tests of the progress line, settings files and virtual environments."""

from __future__ import annotations

import io
import sys

import pytest

from official_albert import files
from tools.cli import child_programs, command_line, printing


class _Terminal(io.StringIO):
  def isatty(self):
    return True


def show(stream, *reports):
  """Shows reports (seconds, phase, fraction, tokens, details)."""
  now = [0.0]
  line = printing.ProgressLine(stream, lambda: now[0])
  for now[0], *report in reports:
    line.show(*report)
  line.close()
  line.close()
  return stream.getvalue()


def test_log_file_gets_a_line_every_ten_seconds():
  # The phase began with its first report, 7 seconds before the second one.
  assert show(
    io.StringIO(),
    (5, "making", 0.5, 70, "5 documents"),
    (12, "making", 0.75, 7070, "12 documents"),
    (15, "making", 1, 0, "15 documents"),
  ) == ("making: 12 documents, 1,000 tokens/s, 0:00:07 left\n")


def test_terminal_line_is_rewritten_and_ended():
  assert show(
    _Terminal(),
    (0, "a", 0.0, 0, "nothing yet"),
    (2, "a", 0.5, 3000, "a long detail"),
    (4, "a", 0.8, 4000, "short"),
    # Each phase has its own clock and line.
    (50, "b", 0.0, 0, "y"),
    (52, "b", 0.5, 10, "z"),
  ) == (
    "\ra: a long detail, 1,500 tokens/s, 0:00:02 left"
    "\ra: short, 1,000 tokens/s, 0:00:01 left        \n"
    "\rb: y\rb: z, 5 tokens/s, 0:00:02 left\n"
  )


def test_format_seconds():
  assert printing.format_seconds(3723.9) == "1:02:03"


def test_settings_are_read(tmp_path):
  path = str(tmp_path / "settings.json")
  assert command_line.read_settings(path) == {}
  files.write_json(path, {"scale": "tiny", "data": {"seed": 3}})
  assert command_line.read_settings(path) == {
    "scale": "tiny",
    "data": {"seed": 3},
  }


@pytest.mark.parametrize("written", [b"{", b"[]", b"", b"\xff\xfe"])
def test_other_files_are_refused_and_left_alone(tmp_path, written):
  path = tmp_path / "settings.json"
  path.write_bytes(written)
  with pytest.raises(ValueError, match="settings.json is not what this progr"):
    command_line.read_settings(str(path))
  assert path.read_bytes() == written


# `-m venv DIR` copies it into DIR; `-m pip ...` records that it ran.
_PYTHON = """#!/bin/sh
case "$2" in
  venv) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
  pip) echo "$@" >>LOG; [ -e FAIL ] || exit 0
    echo "ERROR: no route to host" >&2; exit 1 ;;
  *) echo 3 12 ;;
esac
"""


@pytest.fixture
def lab(tmp_path, monkeypatch):
  """A folder with requirements and a Python 3.12 named by PYTHON."""
  text = _PYTHON.replace("LOG", str(tmp_path / "log"))
  python = tmp_path / "python"
  python.write_text(text.replace("FAIL", str(tmp_path / "fail")))
  python.chmod(0o755)
  monkeypatch.setenv("PYTHON", str(python))
  (tmp_path / "toy.txt").write_text("a==1\n")
  return tmp_path


def make(lab, folder="deep/venv", oldest=(3, 12), newest=(3, 13)) -> str:
  return child_programs.make_environment(
    lab / folder, lab / "toy.txt", oldest, newest
  )


def pip_runs(lab) -> list[str]:
  return (lab / "log").read_text().splitlines()


def test_an_environment_is_created_once(lab, capsys):
  made = make(lab)
  assert made == make(lab) == str(lab / "deep" / "venv" / "bin" / "python")
  (run,) = pip_runs(lab)
  assert run.startswith("-m pip install ") and run.endswith("/toy.txt")
  assert capsys.readouterr().out.count("Installing toy.txt") == 1
  (lab / "toy.txt").write_text("a==2\n")
  make(lab)
  assert len(pip_runs(lab)) == 2


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
  (lab / "toy.txt").write_text("--no-index\nno-such-package-at-all\n")
  with pytest.raises(ValueError, match="pip could not install"):
    make(lab, oldest=version, newest=version)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
