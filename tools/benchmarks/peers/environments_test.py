"""Tests of the peers' environments with a made-up Python and pip."""

from __future__ import annotations

import re
import sys

import pytest

from tools.benchmarks import peers_command as benchmark_peers
from tools.benchmarks.peers import environments as peer_venvs

# `-m venv DIR` copies it into DIR; `-m pip ...` writes down that it ran.
_PYTHON = """#!/bin/sh
case "$2" in
  venv) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
  pip) echo "$@" >>LOG; [ -e FAIL ] || exit 0
    echo "ERROR: no route to host" >&2; exit 1 ;;
esac
"""


@pytest.fixture
def python(tmp_path):
  path = tmp_path / "python"
  text = _PYTHON.replace("LOG", str(tmp_path / "log"))
  path.write_text(text.replace("FAIL", str(tmp_path / "fail")))
  path.chmod(0o755)
  return str(path)


def _runs(tmp_path):
  return (tmp_path / "log").read_text().splitlines()


def test_makes_it_once(tmp_path, python, capsys):
  peers_dir = tmp_path / "deep" / "peers"
  made = peer_venvs.make("huggingface", str(peers_dir), python)
  assert made == str(
    peers_dir / "official_albert_huggingface" / "bin" / "python"
  )
  assert made == peer_venvs.make("huggingface", str(peers_dir), python)
  (run,) = _runs(tmp_path)
  assert run.startswith("-m pip install ") and run.endswith("/huggingface.txt")
  assert capsys.readouterr().out.count("Installing huggingface.txt") == 1


def test_an_interrupted_installation_is_started_again(tmp_path, python):
  (tmp_path / "fail").touch()
  with pytest.raises(ValueError) as caught:
    peer_venvs.make("keras_hub", str(tmp_path), python)
  assert "keras_hub.txt (ERROR: no route to host): check" in str(caught.value)
  assert "\n" not in str(caught.value)
  half = tmp_path / "official_albert_keras_hub" / "half-a-package"
  half.touch()
  (tmp_path / "fail").unlink()
  peer_venvs.make("keras_hub", str(tmp_path), python)
  assert not half.exists() and len(_runs(tmp_path)) == 2


def test_changed_requirements(tmp_path, python, monkeypatch):
  requirements = tmp_path / "lists"
  requirements.mkdir()
  monkeypatch.setattr(peer_venvs, "REQUIREMENTS_DIR", requirements)
  for text in ("a==1\n", "a==1\n", "a==2\n"):
    (requirements / "toy.txt").write_text(text)
    peer_venvs.make("toy", str(tmp_path / "peers"), python)
  assert len(_runs(tmp_path)) == 2


def test_a_python_that_does_not_run(tmp_path):
  with pytest.raises(ValueError, match="could not make .*No such file"):
    peer_venvs.make("huggingface", str(tmp_path), str(tmp_path / "none"))


def test_find_python(monkeypatch):
  monkeypatch.setattr(peer_venvs, "_VERSION", sys.version_info[:2])
  assert peer_venvs.find_python() == sys.executable
  monkeypatch.setattr(peer_venvs, "_VERSION", (3, 99))
  with pytest.raises(ValueError, match="need python3.99, which is not on"):
    peer_venvs.find_python()


def test_pins():
  files = {path.stem for path in peer_venvs.REQUIREMENTS_DIR.iterdir()}
  assert files == {s.venv for s in benchmark_peers.SYSTEMS.values() if s.venv}
  lines = [
    line
    for name in sorted(files)
    for line in (peer_venvs.REQUIREMENTS_DIR / f"{name}.txt")
    .read_text()
    .splitlines()
    if not line.startswith("#")
  ]
  assert all(re.fullmatch(r"[\w-]+==\d[\w.]*", line) for line in lines)
  assert {
    "torch==2.13.0",
    "transformers==4.57.1",
    "keras-hub==0.31.1",
    "tensorflow-cpu==2.20.0",
    "tf-models-official==2.15.0",
    "tensorflow==2.15.1",
  } <= set(lines)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
