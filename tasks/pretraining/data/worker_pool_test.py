"""Tests of the processes: order, memory, and every way to end."""

from __future__ import annotations

import contextlib
import functools
import os
import pathlib
import signal
import subprocess
import sys
import time
from multiprocessing import connection, resource_tracker, spawn

import pytest

from official_albert.tasks.pretraining.data import worker_pool

_ROOT = pathlib.Path(__file__).resolve().parents[3]


def _negate(number):
  if number == 20:
    raise ValueError("twenty")
  time.sleep(0.02 * (number % 3 == 0))  # Results come out of order.
  return -number, os.getpid()


@pytest.mark.parametrize("num_workers", [1, 2])
def test_items_are_read_as_needed_and_results_are_in_order(num_workers):
  read = []
  items = (read.append(number) or number for number in range(1000))
  mapped = worker_pool.parallel_map(_negate, items, num_workers)
  with contextlib.closing(mapped) as results:
    found = [next(results)]
    assert len(read) <= 3 * num_workers + 1
    found += [next(results) for _ in range(19)]
    with pytest.raises(ValueError, match="twenty"):
      next(results)
  numbers, pids = zip(*found)
  assert [-number for number in numbers] == list(range(20))
  assert (os.getpid() in pids) == (num_workers == 1)


def _die_while_sending(number):
  del number

  def send(self, data):
    os.write(self.fileno(), data[:100])
    os.kill(os.getpid(), signal.SIGKILL)

  connection.Connection._send = send
  return bytes(1 << 20)


def _die_while_receiving(number):
  if isinstance(number, int):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
  ("function", "items"),
  [
    (_die_while_sending, [0]),
    (_die_while_receiving, [0, *[bytes(1 << 20)] * 9]),
  ],
)
def test_a_process_that_dies_within_a_message_is_noticed(function, items):
  start = time.monotonic()
  with pytest.raises(OSError, match="a worker process died"):
    list(worker_pool.parallel_map(function, items, 2))
  assert time.monotonic() - start < 50


def test_a_process_that_dies_before_it_has_started_is_noticed(monkeypatch):
  resource_tracker.ensure_running()
  monkeypatch.setattr(spawn, "_python_exe", b"/bin/false")
  function = functools.partial(isinstance, bytes(1 << 20))
  with pytest.raises(OSError, match="a worker process died"):
    list(worker_pool.parallel_map(function, [bytes], 2))


_ENDS = """
import contextlib, multiprocessing, os, signal, sys, time
from official_albert.tasks.pretraining.data import worker_pool

def pid(seconds):
  time.sleep(seconds)
  return os.getpid()

if __name__ == "__main__":
  signal.signal(signal.SIGINT, signal.default_int_handler)
  signal.signal(signal.SIGTERM, lambda *unused: sys.exit(143))
  try:
    # One worker is busy, the other one is idle.
    mapped = worker_pool.parallel_map(pid, [0.3, 99], 2)
    with contextlib.closing(mapped) as results:
      for found in results:
        print("worker", found, flush=True)
        if sys.argv[1] == "busy worker":
          for child in multiprocessing.active_children():
            if child.pid != found:
              child.kill()
        elif sys.argv[1] == "only parent":
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
    *[("busy worker", 1), ("only parent", -9)],
  ],
)
def test_a_signal_ends_parent_and_workers(tmp_path, name, code):
  (tmp_path / "ends.py").write_text(_ENDS)
  # Reading the output ends when no process can write to it any more.
  done = subprocess.run(
    [sys.executable, str(tmp_path / "ends.py"), name],
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
  assert lines[0].startswith("worker")
  assert [x[:21] for x in lines[1:]] == ["a worker process died"] * (code == 1)
