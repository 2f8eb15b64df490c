"""Tests of the pool with one process and with two."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from tasks.pretraining.data import dataset_builder

_ROOT = pathlib.Path(__file__).resolve().parents[3]


def _negate(number):
  time.sleep(0.02 * (number % 3 == 0))  # Results come out of order.
  return -number, os.getpid()


def _fail(number):
  if number == 2:
    raise ValueError("two")
  return number


def _die(number):
  os._exit(1)


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


def test_only_a_process_without_other_threads_is_forked():
  # In a process of its own: this one may have TensorFlow's threads.
  code = (
    "import threading\n"
    "from tasks.pretraining.data import dataset_builder as b\n"
    "print(b._start_method())\n"
    "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    "print(b._start_method())"
  )
  command = [sys.executable, "-c", code]
  printed = subprocess.check_output(command, cwd=_ROOT, text=True).split()
  assert printed == ["fork" if sys.platform == "linux" else "spawn", "spawn"]


def test_dead_worker_is_an_error_not_a_hang():
  pool = dataset_builder.WorkerPool(2)
  with pool, pytest.raises(OSError, match="a worker process died"):
    list(pool.map(_die, range(3)))


_ORPHANS = """
import os, signal, sys, time
from tasks.pretraining.data import dataset_builder

def pid(number):
  time.sleep(0.1)
  return os.getpid()

if __name__ == "__main__":
  with dataset_builder.WorkerPool(2) as pool:
    for found in pool.map(pid, range(6)):
      print("worker", found, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_workers_end_with_a_killed_parent(tmp_path):
  script = tmp_path / "orphans.py"
  script.write_text(_ORPHANS)
  # Reading the output ends when no process can write to it any more.
  done = subprocess.run(
    [sys.executable, str(script)],
    env={**os.environ, "PYTHONPATH": str(_ROOT)},
    stdout=subprocess.PIPE,
    text=True,
    timeout=60,
    check=False,
  )
  assert done.returncode == -signal.SIGKILL
  assert done.stdout.count("worker") == 6


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
