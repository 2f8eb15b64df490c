"""Tests of the trial with a program that counts instead of training."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import signal
import sys

import numpy as np
import pytest
import tensorflow as tf

from official_albert import training
from tools.benchmarks import survival_trial
from tools.testing import many_commands

# Logs a step every few milliseconds and resumes where its log ends. Every fifth
# step it "saves": a temporary file exists for a moment.
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


def test_accidents_are_survived_and_reported(tmp_path, monkeypatch):
  monkeypatch.setattr(survival_trial, "_WAIT_SECONDS", 0.01)
  quiet = CountingRun(tmp_path / "quiet", 10**6)
  harmed = CountingRun(tmp_path / "harmed", 10**6)
  for run in (quiet, harmed):
    run.start()
    (tmp_path / run.name / "model.ckpt-20.index").touch()
  accidents = dict(list(survival_trial.ACCIDENTS.items())[:3])
  monkeypatch.setattr(survival_trial, "ACCIDENTS", accidents)
  minutes = 4 / 60
  happened = survival_trial.trial(quiet, harmed, minutes)
  assert [a["name"] for a in happened] == list(accidents)
  assert [a["seen"][:13] for a in happened] == [
    "exit code -9",
    "exit code -9,",
    "exit code 143",
  ]
  for index, accident in enumerate(happened):
    assert accident["minutes"] >= round(minutes * (index + 1) / 4, 1)
  assert [run.process.returncode for run in (quiet, harmed)] == [143, 143]
  assert harmed.step() >= happened[-1]["step"] > 0


def test_runs_may_end_by_themselves_without_an_error(tmp_path):
  quiet = CountingRun(tmp_path / "quiet", 3)
  harmed = CountingRun(tmp_path / "harmed", 4)
  quiet.start()
  harmed.start()
  assert survival_trial.trial(quiet, harmed, 60) == []
  assert [run.step() for run in (quiet, harmed)] == [3, 4]
  harmed._command[2] = "raise SystemExit(3)"
  harmed.start()
  with pytest.raises(ValueError, match="failed with exit code 3"):
    survival_trial.trial(quiet, harmed, 1)


def test_a_run_that_ignores_sigterm_is_an_error(tmp_path):
  run = CountingRun(tmp_path / "run", 10**6)
  run._command[2] = "import time; time.sleep(60)"
  run.start()
  with pytest.raises(ValueError, match="ended the run with -15, not 143"):
    survival_trial.terminate(run)
  assert run.process.returncode == -signal.SIGTERM


def test_a_large_disk_is_not_filled(tmp_path):
  if shutil.disk_usage(tmp_path).free <= 1 << 30:
    pytest.skip("the disk is small")
  arguments = [f"--output_dir={tmp_path}/new"]
  (done,) = many_commands.run("benchmarks.survival_trial", [arguments])
  assert done.code == 1 and "mount a small file system there" in done.err


def _write(folder: pathlib.Path, records, value=(1.0, 2.0), variables=("a",)):
  """Writes metrics and a checkpoint of constant variables."""
  folder.mkdir(exist_ok=True)
  lines = []
  for kind, step, loss in records:
    record = {"kind": kind, "step": step, "masked_lm_loss": loss}
    record["sentence_order_accuracy"] = 0.5
    lines.append(json.dumps({**record, "tokens_per_second": id(folder)}))
  (folder / training.METRICS_FILE).write_text("\n".join(lines) + "\n")
  checkpoint = tf.train.Checkpoint(**{n: tf.Variable(value) for n in variables})
  tf.train.CheckpointManager(
    checkpoint, str(folder), 2, checkpoint_name="model.ckpt"
  ).save(checkpoint_number=30)


_USUAL = [("train", 10, 7.5), ("train", 20, 7.25), ("train", 30, 7.0)]
_USUAL += [("eval", 0, 8.0), ("eval", 30, 7.125)]


def _compare(tmp_path, records, **changes):
  _write(tmp_path / "quiet", _USUAL)
  _write(tmp_path / "harmed", records, **changes)
  return survival_trial.compare(
    str(tmp_path / "quiet"), str(tmp_path / "harmed")
  )


def test_the_same_numbers_with_a_restart_between_two_log_lines(tmp_path):
  # 17 was saved by SIGTERM; 20 is a mean of three steps instead of ten.
  records = [*_USUAL, ("train", 17, 7.3), ("eval", 17, 7.9)]
  records[1] = ("train", 20, 7.2)
  result = _compare(tmp_path, records)
  assert result["is_the_same"] is True
  for kind in ("train", "eval", "variables"):
    assert result[kind] == {"records": 2, "differ": 0}


@pytest.mark.parametrize(
  ("records", "changes"),
  [
    ([*_USUAL[:2], ("train", 30, 7.0000001), *_USUAL[3:]], {}),
    ([*_USUAL[:4], ("eval", 30, 7.13)], {}),
    (_USUAL[:2] + _USUAL[3:], {}),
    (_USUAL, {"value": (1.0, np.nextafter(np.float32(2), np.float32(3)))}),
    (_USUAL, {"variables": ("a", "b")}),
  ],
  ids=["training", "held-out", "missing", "weight", "variable"],
)
def test_any_difference_is_detected(tmp_path, records, changes):
  assert not _compare(tmp_path, records, **changes)["is_the_same"]


def test_only_records_up_to_the_last_common_checkpoint_count(tmp_path):
  result = _compare(tmp_path, [*_USUAL, ("train", 40, 1.0)])
  assert result["is_the_same"] and result["last_step"] == 30
  shutil.rmtree(tmp_path / "harmed")
  (tmp_path / "harmed").mkdir()
  with pytest.raises(ValueError, match="no checkpoint of the same step"):
    survival_trial.compare(str(tmp_path / "quiet"), str(tmp_path / "harmed"))


def test_newest_checkpoint_is_corrupted(tmp_path):
  run = CountingRun(tmp_path / "run", 10**6)
  _write(tmp_path / "run", _USUAL)
  path = tmp_path / "run" / "model.ckpt-30.data-00000-of-00001"
  size = path.stat().st_size
  run.start()
  seen = survival_trial.corrupt_newest_checkpoint(run)
  assert path.stat().st_size == size // 2
  assert seen.startswith(f"{path.name} cut from {size:,} to")


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
