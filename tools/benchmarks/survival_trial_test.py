"""The trial with a program that counts instead of training."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from tools.benchmarks import survival_trial

# Logs a step every few milliseconds and goes on where its log ends; "saves"
# every fifth step through a file that is there for a moment.
_COUNTER = """
import json, os, signal, sys, time
folder, last = sys.argv[1], int(sys.argv[2])
path = os.path.join(folder, "metrics.jsonl")
stopped = []
signal.signal(signal.SIGTERM, lambda *unused: stopped.append(1))
step = 0
if os.path.exists(path):
  step = sum(1 for line in open(path) if line.endswith("\\n"))
while step < last and not stopped:
  step += 1
  with open(path, "a") as file:
    file.write(json.dumps({"kind": "train", "step": step}) + "\\n")
  half = os.path.join(folder, "model.ckpt_temp")
  if step % 5 == 0:
    open(half, "w").close()
  time.sleep(0.02)
  if os.path.exists(half):
    os.remove(half)
sys.exit(143 if stopped else 0)
"""


class CountingRun(survival_trial.Run):
  def __init__(self, folder, last):
    super().__init__(str(folder), [], os.sched_getaffinity(0))
    folder.mkdir()
    self.name = folder.name
    self._command = [sys.executable, "-c", _COUNTER, str(folder), str(last)]


def test_accidents_are_survived_and_told(tmp_path, monkeypatch):
  monkeypatch.setattr(survival_trial, "_WAIT_SECONDS", 0.01)
  quiet = CountingRun(tmp_path / "quiet", 10**6)
  harmed = CountingRun(tmp_path / "harmed", 10**6)
  for run in (quiet, harmed):
    run.start()
    (tmp_path / run.name / "model.ckpt-20.index").touch()
  accidents = survival_trial.ACCIDENTS[:3]
  minutes = 4 / 60
  happened = survival_trial.trial(quiet, harmed, minutes, accidents)
  assert [a["name"] for a in happened] == [a.name for a in accidents]
  assert [a["seen"][:13] for a in happened] == [
    "exit code -9",
    "exit code -9,",
    "exit code 143",
  ]
  for index, accident in enumerate(happened):
    assert accident["minutes"] >= round(minutes * (index + 1) / 4, 1)
  assert [run.process.returncode for run in (quiet, harmed)] == [143, 143]
  assert harmed.step() >= happened[-1]["step"] > 0


def test_runs_that_end_before_the_time_are_not_waited_for(tmp_path):
  quiet = CountingRun(tmp_path / "quiet", 3)
  harmed = CountingRun(tmp_path / "harmed", 4)
  quiet.start()
  harmed.start()
  assert survival_trial.trial(quiet, harmed, 60) == []
  assert [run.step() for run in (quiet, harmed)] == [3, 4]


def test_a_run_that_ends_by_itself_is_an_error(tmp_path):
  quiet = CountingRun(tmp_path / "quiet", 120)
  harmed = CountingRun(tmp_path / "harmed", 120)
  harmed._command[2] = "raise SystemExit(3)"
  quiet.start()
  harmed.start()
  with pytest.raises(ValueError, match="ended by itself with exit code 3"):
    survival_trial.trial(quiet, harmed, 1)
  quiet.kill()


def test_sigterm_that_is_not_answered_is_an_error(tmp_path):
  run = CountingRun(tmp_path / "run", 10**6)
  run._command[2] = "import time; time.sleep(60)"
  run.start()
  with pytest.raises(ValueError, match="ended the run with -15, not 143"):
    survival_trial.terminate(run)
  assert run.process.returncode == -signal.SIGTERM


def test_a_large_disk_is_not_filled(tmp_path, monkeypatch):
  monkeypatch.setattr(survival_trial, "_LARGEST_DISK_BYTES", 1)
  with pytest.raises(ValueError, match="mount a small file system there"):
    survival_trial.check_disk(str(tmp_path))


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
