"""Tests of the pool with one process and with two."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import threading
import time

import pytest

from official_albert.tasks.pretraining.data import dataset_builder

_ROOT = pathlib.Path(__file__).resolve().parents[3]


def _negate(number):
  time.sleep(0.02 * (number % 3 == 0))  # Results come out of order.
  return -number, os.getpid()


def _fail(number):
  if number == 2:
    raise ValueError("two")
  return number


@pytest.mark.parametrize("num_workers", [1, 2])
def test_items_are_read_as_needed_and_results_are_in_order(num_workers):
  read = []

  def items():
    for number in range(1000):
      read.append(number)
      yield number

  with dataset_builder.WorkerPool(num_workers) as pool:
    results = pool.map(_negate, items())
    found = [next(results)]
    assert len(read) <= 3 * num_workers + 1
    found += [next(results) for _ in range(19)]
    assert [-number for number, _ in found] == list(range(20))
    is_forked = os.getpid() not in {pid for _, pid in found}
    assert is_forked == (num_workers == 2)
    results = pool.map(_fail, items())
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(ValueError, match="two"):
      next(results)
    with pool:  # It may be left twice.
      pass


def _blas_threads(_):
  return os.environ.get("OPENBLAS_NUM_THREADS")


@pytest.mark.parametrize("value, of_workers", [(None, "1"), ("3", "3")])
def test_the_environment_stays(monkeypatch, value, of_workers):
  monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
  if value:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", value)
  before = dict(os.environ)
  with dataset_builder.WorkerPool(2) as pool:
    assert os.environ == before
    assert list(pool.map(_blas_threads, range(2))) == [of_workers] * 2
  assert os.environ == before


class _NotPickled(Exception):
  def __init__(self, number, lock=None):
    super().__init__(f"no {number}")
    self.lock = lock


class _NotReadAgain(Exception):
  def __init__(self, first, second):
    super().__init__(f"no {first + second}")


def _fail_oddly(number):
  if number == 1:
    raise _NotPickled(number, threading.Lock())
  if number == 2:
    raise _NotReadAgain(1, 1)
  return threading.Lock() if number == 3 else number


def test_errors_that_cannot_be_pickled_are_reported():
  with dataset_builder.WorkerPool(2) as pool:
    for number, error, message in (
      (1, OSError, r"^a worker failed: _NotPickled: no 1\.$"),
      (2, OSError, r"^a worker failed: _NotReadAgain: no 2\.$"),
      (3, TypeError, "^cannot pickle '_thread.lock' object$"),
    ):
      with pytest.raises(error, match=message):
        list(pool.map(_fail_oddly, [number]))
    assert list(pool.map(_fail_oddly, [4, 5, 6])) == [4, 5, 6]


_ENDS = """
import multiprocessing.util, os, signal, sys, threading, time
from official_albert.tasks.pretraining.data import dataset_builder

def pid(seconds):
  time.sleep(seconds)
  return os.getpid()

if __name__ == "__main__":
  if sys.argv[1] == "fork":  # While the first worker is forked.
    os.register_at_fork(before=lambda: os.kill(os.getpid(), signal.SIGTERM))
  if sys.argv[1].startswith("spawn"):
    # This thread receives signals while the other one blocks them.
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    spawn = multiprocessing.util.spawnv_passfds
    def spawn_then_signal(path, arguments, *more):
      process = spawn(path, arguments, *more)
      if "spawn_main" in str(arguments):  # Python is starting there.
        number = getattr(signal, sys.argv[1].split()[1])
        os.killpg(0, number)
        time.sleep(0.1)
      return process
    multiprocessing.util.spawnv_passfds = spawn_then_signal
  signal.signal(signal.SIGINT, signal.default_int_handler)
  signal.signal(signal.SIGTERM, lambda *unused: sys.exit(143))
  is_alone = sys.argv[1] == "only parent"
  try:
    with dataset_builder.WorkerPool(2) as pool:
      for found in pool.map(pid, [0.3, 99 if is_alone else 3]):
        print("worker", found, flush=True)
        if "worker" in sys.argv[1]:
          for child in multiprocessing.active_children():
            if (child.pid == found) == (sys.argv[1] == "idle worker"):
              child.kill()
        elif is_alone:  # One worker is busy, the other one is idle.
          os.kill(os.getpid(), signal.SIGKILL)
        else:
          os.killpg(0, getattr(signal, sys.argv[1]))
  except KeyboardInterrupt:
    sys.exit(130)
  except OSError as error:
    print(error)
    sys.exit(1)
"""


@pytest.mark.parametrize(
  ("name", "code"),
  [
    *[("SIGTERM", 143), ("SIGINT", 130), ("SIGKILL", -9)],
    *[("busy worker", 1), ("idle worker", 0), ("fork", 143)],
    ("only parent", -9),
    *[("spawn SIGTERM", 143), ("spawn SIGINT", 130)],
  ],
)
def test_a_signal_ends_parent_and_workers(tmp_path, name, code):
  script = tmp_path / "ends.py"
  script.write_text(_ENDS)
  # Reading the output ends when no process can write to it any more.
  done = subprocess.run(
    [sys.executable, str(script), name],
    env={**os.environ, "PYTHONPATH": str(_ROOT)},
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
    timeout=60,
    check=False,
    start_new_session=True,
  )
  assert done.returncode == code
  lines = done.stdout.splitlines()
  is_started = not name.startswith(("fork", "spawn"))
  assert len(lines) == is_started + name.endswith("worker"), lines
  last = "a worker process died" if code == 1 else "worker "
  assert lines[-1:] == [] or lines[-1].startswith(last)
