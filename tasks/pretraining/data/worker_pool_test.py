"""Tests of the pool with one process and with two."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from tasks.pretraining.data import worker_pool

_ROOT = pathlib.Path(__file__).resolve().parents[3]
_offset = 0


def _set_offset(offset):
  global _offset
  _offset = offset


def _touch(folder):
  (pathlib.Path(folder) / str(os.getpid())).touch()


def _add(number):
  time.sleep(0.02 * (number % 3 == 0))  # Results come out of order.
  return number + _offset, os.getpid()


def _fail(number):
  if number == 2:
    raise ValueError("two")
  return number


def _die(number):
  os._exit(1)


def test_results_in_order_and_from_several_processes():
  outcomes = {}
  for num_workers in (1, 2):
    with worker_pool.WorkerPool(num_workers, _set_offset, 100) as pool:
      outcomes[num_workers] = list(pool.map(_add, range(20)))
  for outcome in outcomes.values():
    assert [number for number, _ in outcome] == list(range(100, 120))
  assert {pid for _, pid in outcomes[1]} == {os.getpid()}
  assert os.getpid() not in {pid for _, pid in outcomes[2]}


@pytest.mark.parametrize("num_workers", [1, 2])
def test_items_are_taken_as_they_are_needed(num_workers):
  taken = []

  def items():
    for number in range(1000):
      taken.append(number)
      yield number

  with worker_pool.WorkerPool(num_workers, _set_offset, 0) as pool:
    next(pool.map(_add, items()))
    assert len(taken) <= 3 * num_workers + 1


def test_only_a_process_without_other_threads_is_forked():
  # This process has TensorFlow's threads in some test runs.
  code = (
    "from tasks.pretraining.data import worker_pool as p\n"
    "import sys, threading\n"
    "first = p.start_method()\n"
    "thread = threading.Thread(target=threading.Event().wait, daemon=True)\n"
    "thread.start(); second = p.start_method()\n"
    "print(first, second)"
  )
  printed = subprocess.run(
    [sys.executable, "-c", code], cwd=_ROOT, capture_output=True, text=True
  ).stdout.split()
  assert printed == ["fork" if sys.platform == "linux" else "spawn", "spawn"]


@pytest.mark.parametrize("num_workers", [1, 2])
def test_first_error_is_the_first_in_order(num_workers):
  def items():
    yield from range(4)
    raise OSError("no fifth item")

  with worker_pool.WorkerPool(num_workers, _set_offset, 0) as pool:
    with pytest.raises(ValueError, match="two"):
      list(pool.map(_fail, items()))
    results = pool.map(_add, items())
    assert [next(results)[0] for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises(OSError, match="no fifth item"):
      next(results)


def test_workers_start_at_once_and_the_pool_may_be_left_twice(tmp_path):
  with worker_pool.WorkerPool(2, _touch, str(tmp_path)) as pool:
    deadline = time.monotonic() + 60
    while len(os.listdir(tmp_path)) < 2:
      assert time.monotonic() < deadline
      time.sleep(0.01)
    with pool:
      pass


def test_dead_worker_is_an_error_not_a_hang():
  pool = worker_pool.WorkerPool(2, _set_offset, 0)
  with pool, pytest.raises(OSError, match="a worker process died"):
    list(pool.map(_die, range(3)))


_ORPHANS = """
import os, signal, sys, time
from tasks.pretraining.data import worker_pool

def pid(number):
  time.sleep(0.1)
  return os.getpid()

if __name__ == "__main__":
  with worker_pool.WorkerPool(2, print, "") as pool:
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
