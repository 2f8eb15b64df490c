"""Tests of runner.py, with json.tool as the program that jobs run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from official_albert import distribution
from official_albert.testing import fake_gcs
from official_albert.tools.experiments import runner


class _Jobs:
  """Jobs that copy a JSON file, as `python -m json.tool` does."""

  def __init__(self, folder):
    self.folder = folder
    self.source = folder / "source.json"
    self.source.write_text('{"a": 3.5}')

  def job(self, key: str, needs=(), arguments=None, **changes) -> runner.Job:
    target = self.folder / f"{key}.json"
    command = ["json.tool", str(self.source), str(target)]
    options = {"read": lambda: json.loads(target.read_text()), **changes}
    arguments = arguments or (lambda values: command)
    return runner.Job(key, arguments, needs=tuple(needs), **options)

  def run(self, *made: runner.Job, num_parallel: int = 1) -> runner.Runner:
    jobs = {job.key: job for job in made}
    running = runner.Runner(jobs, str(self.folder), num_parallel)
    running.run()
    return running


@pytest.fixture
def lab(tmp_path) -> _Jobs:
  return _Jobs(tmp_path)


def _never(values):
  raise AssertionError("it was run")


def test_values_are_kept_and_passed_to_the_jobs_that_need_them(lab, capsys):
  seen = {}

  def arguments(values):
    seen.update(values)
    return ["json.tool", str(lab.source), str(lab.folder / "b.json")]

  running = lab.run(lab.job("a", cost=3.0), lab.job("b", ["a"], arguments))
  assert running.values == {"a": {"a": 3.5}, "b": {"a": 3.5}}
  assert seen == {"a": {"a": 3.5}}
  assert not running.failed
  assert capsys.readouterr().out.splitlines() == [
    "2 jobs, 0 already finished, 1 at once",
    "[1/2] a: a 3.5, nothing left",
    "[2/2] b: a 3.5, nothing left",
  ]
  # Finished jobs are not run again.
  again = lab.run(lab.job("a", arguments=_never), lab.job("c", ["a"]))
  assert set(again.values) == {"a", "c"}
  assert "2 jobs, 1 already finished, 1 at once" in capsys.readouterr().out
  assert again.machines() == running.machines() != ""
  # Neither is a job whose result exists.
  job = lab.job("d", arguments=_never, result=str(lab.folder / "c.json"))
  (lab.folder / "d.json").write_text('{"a": 5}')
  assert lab.run(job).values == {"d": {"a": 5}}
  (lab.folder / "done" / "a.json").write_text("{")
  with pytest.raises(
    ValueError, match="a.json is not valid JSON .*: remove it"
  ):
    lab.run(lab.job("a"))


def test_only_jobs_that_need_a_failed_one_are_skipped(lab):
  bad = lab.job("bad", arguments=lambda values: ["json.tool", "no such file"])
  odd = lab.job("odd", read=lambda: {}["missing"])
  running = lab.run(bad, lab.job("next", ["bad"]), odd, lab.job("other"))
  assert set(running.values) == {"other"}
  assert "No such file" in running.failed["bad"]
  assert running.failed["next"] == "needs bad, which failed"
  assert "missing" in running.failed["odd"]
  # Tried again, as its command may have been at fault.
  again = lab.run(lab.job("bad"), lab.job("next", ["bad"]))
  assert set(again.values) == {"bad", "next"}


@pytest.mark.skipif(
  len(os.sched_getaffinity(0)) < 2, reason="two jobs need two cores"
)
def test_jobs_divide_the_cores_unless_one_uses_all(lab):
  names = ("a", "b", "all")

  def job(name):
    """a and b wait for each other; returns the job's start, end and cores."""
    path = lab.folder / f"{name}.json"
    awaited = lab.folder / {"a": "b", "b": "a", "all": "all"}[name]
    code = "\n".join(
      [
        "import json, os, pathlib, time",
        "start = time.time()",
        f"pathlib.Path({str(lab.folder / name)!r}).touch()",
        f"while not os.path.exists({str(awaited)!r}):",
        "  assert time.time() < start + 60",
        "  time.sleep(0.01)",
        "found = [start, time.time(), len(os.sched_getaffinity(0))]",
        f"pathlib.Path({str(path)!r}).write_text(json.dumps(found))",
      ]
    )
    return lab.job(
      name,
      arguments=lambda values: ["timeit", "-n1", "-r1", code],
      read=lambda: {"times": json.loads(path.read_text())},
      uses_all_cores=name == "all",
    )

  found = lab.run(*map(job, names), num_parallel=2).values
  a, b, all_ = (found[name]["times"] for name in names)
  assert a[0] < b[1] and b[0] < a[1]
  # It comes first.
  assert all_[1] < min(a[0], b[0])
  cores = len(os.sched_getaffinity(0))
  assert all_[2] == cores
  assert a[2] + b[2] == cores


def test_jobs_may_use_the_tpu_that_the_runner_leaves(lab, monkeypatch):
  for name in ("TPU_LOAD_LIBRARY", "TF_PLUGGABLE_DEVICE_LIBRARY_PATH"):
    monkeypatch.setenv(name, "")  # Restored at the end.
    monkeypatch.delenv(name)
  distribution.leave_tpu()
  path = lab.folder / "a.json"
  code = (
    "import json, os; json.dump('TPU_LOAD_LIBRARY' in os.environ, "
    f"open({str(path)!r}, 'w'))"
  )
  job = lab.job(
    "a",
    arguments=lambda values: ["timeit", "-n1", "-r1", code],
    read=lambda: {"leaves": json.loads(path.read_text())},
  )
  assert lab.run(job).values == {"a": {"leaves": False}}


_ENDLESS = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *unused: sys.exit(143))
from official_albert.tools.experiments import runner
job = runner.Job("a", lambda v: ["timeit", "-n1", "-r1",
    "import os, time; open({pid!r}, 'w').write(str(os.getpid())); "
    "time.sleep(99)"])
runner.Runner({{"a": job}}, {folder!r}, 1).run()
"""


def _is_running(pid: int) -> bool:
  try:
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
      return file.read().rpartition(") ")[2][0] != "Z"
  except FileNotFoundError:
    return False


@pytest.mark.parametrize(
  "number, code",
  [
    (signal.SIGTERM, 143),
    (signal.SIGINT, -signal.SIGINT),
    (signal.SIGKILL, -signal.SIGKILL),
  ],
)
def test_jobs_end_with_the_runner(lab, number, code):
  pid_file = lab.folder / "pid"
  program = _ENDLESS.format(pid=str(pid_file), folder=str(lab.folder))
  process = subprocess.Popen(
    [sys.executable, "-c", program],
    # Tests that are run in the background ignore Ctrl-C from their start.
    preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
  )
  while not (pid_file.exists() and pid_file.read_text()):
    time.sleep(0.05)
  process.send_signal(number)
  assert process.wait(20) == code
  pid, deadline = int(pid_file.read_text()), time.monotonic() + 20
  while _is_running(pid) and time.monotonic() < deadline:
    time.sleep(0.05)
  assert not _is_running(pid)


def test_only_one_runner_uses_a_folder(tmp_path):
  tmp_path /= "new"
  held = runner.lock(str(tmp_path))
  with pytest.raises(OSError, match="another process runs experiments"):
    runner.lock(str(tmp_path))
  held.close()
  runner.lock(str(tmp_path)).close()


_IN_A_BUCKET = """
import sys
from official_albert.tools.experiments import runner
out, source = "gs://bucket/out", sys.argv[1]
jobs = {
    "m/good": runner.Job("m/good", lambda v: ["json.tool", source]),
    "bad": runner.Job("bad", lambda v: ["json.tool", "none"]),
}
lock = runner.lock(out)
for _ in range(2):
  running = runner.Runner(jobs, out, 1, lock)
  running.run()
print(running.values, running.failed["bad"].split()[-1])
"""


def test_logs_and_records_in_a_bucket(lab):
  work = lab.folder / "work"
  work.mkdir()
  with fake_gcs.FakeGcs() as gcs:
    command = [sys.executable, "-c", _IN_A_BUCKET, str(lab.source)]
    done = gcs.run(command, cwd=str(work), TMPDIR=str(work))
    assert "2 jobs, 1 already finished" in done.stdout, done.stderr
    assert "{'m/good': {}} (gs://bucket/out/logs/bad.log)" in done.stdout
    names = ["done/m__good.json", "logs/bad.log", "logs/m/good.log"]
    assert gcs.names() == [f"gs://bucket/out/{name}" for name in names]
    assert b'"a": 3.5' in gcs.read("gs://bucket/out/logs/m/good.log")
    assert gcs.read("gs://bucket/out/logs/bad.log").count(b"$ python") == 2
  assert not os.listdir(work)
