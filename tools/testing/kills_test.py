"""Tests that the trial sees every fault, and short trials of the programs."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

from official_albert.tools.testing import kills

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_TOY = """
import os, signal, subprocess, sys, time
out, fault = sys.argv[1:]
is_again = os.path.exists(out)
os.makedirs(out, exist_ok=True)
temporary = out + "/result.0123456789abcdef.tmp"

def stop(*unused):
  if fault == "hang":
    time.sleep(60)
  if fault == "slow":
    time.sleep(2)
  if fault == "trace":
    raise RuntimeError
  if fault == "process":
    subprocess.Popen(["sleep", "60"])
  if fault not in ("file", "early"):
    os.remove(temporary)
  os._exit(3 if fault == "code" else 143)

signal.signal(signal.SIGTERM, stop)
path = out + "/result" if fault == "early" else temporary
with open(path, "w") as file:
  file.write("same" if fault != "again" or not is_again else "other")
  file.flush()
  time.sleep(0.7)
  file.write(" result")
os.replace(path, out + "/result")
"""


@pytest.fixture
def make_trial(tmp_path, monkeypatch):
  """Returns a function that makes a trial of the toy with a fault."""

  def make(fault):
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "__init__.py").touch()
    (tmp_path / "tools" / "toy.py").write_text(_TOY)
    toy = kills.Program(f"toy {{out}} {fault}", "result")
    monkeypatch.setattr(kills, "PROGRAMS", {"toy": toy})
    monkeypatch.setattr(kills, "_ROOT", str(tmp_path))
    monkeypatch.setattr(kills, "_EARLY_SHARE", 0)
    monkeypatch.setattr(kills, "_LIMIT_SECONDS", 1)
    monkeypatch.setattr(kills.os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    trial = kills.Trial(str(tmp_path / "trial"), seed=0)
    trial.make_end("toy")
    return trial

  return make


@pytest.mark.parametrize(
  ("fault", "message"),
  [
    ("none", ""),
    ("hang", "toy does not end"),
    ("trace", "toy shows a traceback"),
    ("process", "toy leaves processes"),
    ("file", "toy leaves 1 files such as toy/result.0123456789abcdef.tmp"),
    ("code", "toy ends with 3"),
    ("early", "toy has another result than the undisturbed end"),
    ("again", "toy has another result than the undisturbed end"),
  ],
)
def test_faults_are_reported(make_trial, capsys, fault, message):
  trial = make_trial(fault)
  trial.chain("toy", ["SIGTERM"])
  printed = capsys.readouterr().out
  assert trial.has_failed() == bool(message)
  assert message in printed and ("FAILURE" in printed) == bool(message)
  assert trial.table().count("SIGTERM") == 1


@pytest.mark.parametrize("load", [0.0, 1e4])
def test_the_time_limit_grows_with_the_load(make_trial, monkeypatch, load):
  trial = make_trial("slow")
  monkeypatch.setattr(kills, "_MOST_KILLS", 1)
  # The toy needs 2 s to stop, and the limit without load is 0.5 s.
  _, seconds = trial._moments["toy"]
  monkeypatch.setattr(kills, "_LIMIT_SECONDS", 0.5 - 5 * seconds)
  monkeypatch.setattr(kills.os, "getloadavg", lambda: (load, 0.0, 0.0))
  trial.chain("toy", ["SIGTERM"])
  assert trial.has_failed() == (load == 0.0)


def test_a_machine_that_has_become_quicker_is_still_disturbed(make_trial):
  trial = make_trial("none")
  _, seconds = trial._moments["toy"]
  trial._moments["toy"] = 2 * seconds, 20 * seconds
  assert trial.chain("toy", ["SIGTERM"]) == 0
  assert any(trial.chain("toy", ["SIGTERM"]) for _ in range(9))


def _run(tmp_path, *arguments):
  command = [sys.executable, "-m", "tools.testing.kills", *arguments]
  done = subprocess.run(
    [*command, f"--output_dir={tmp_path}/trial"],
    cwd=_ROOT,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
    check=False,
  )
  assert done.returncode == 0, done.stdout
  return int(done.stdout.splitlines()[-1].split("|")[3])


@pytest.mark.heavy
def test_killed_builds_end_as_undisturbed_ones(tmp_path):
  assert _run(tmp_path, "--kills=8", "--programs=data,data_workers") >= 8


@pytest.mark.heavy
def test_killed_programs_end_as_undisturbed_ones(tmp_path):
  assert _run(tmp_path, "--kills=60") >= 60
