"""Tests of the processes: order, memory, and every way to end."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from official_albert.tasks.pretraining.data import worker_pool

_ROOT = pathlib.Path(__file__).resolve().parents[3]


def _negate(twenty, number):
  if number == twenty:
    raise ValueError("twenty")
  time.sleep(0.02 * (number % 3 == 0))  # Results come out of order.
  return -number, os.getpid()


@pytest.mark.parametrize("num_workers", [1, 2])
def test_items_are_read_as_needed_and_results_are_in_order(num_workers):
  read = []
  items = (read.append(number) or number for number in range(1000))
  with worker_pool.open_pool(20, num_workers) as parallel_map:
    # A phase before it.
    earlier = parallel_map(_negate, [7])
    assert [number for number, _ in earlier] == [-7]
    results = parallel_map(_negate, items)
    found = [next(results)]
    assert len(read) <= 3 * num_workers + 1
    found += [next(results) for _ in range(19)]
    with pytest.raises(ValueError, match="twenty"):
      next(results)
  numbers, pids = zip(*found)
  assert [-number for number in numbers] == list(range(20))
  assert (os.getpid() in pids) == (num_workers == 1)


_ENDS = """
import multiprocessing, os, signal, sys, time
from official_albert.tasks.pretraining.data import worker_pool

def pid(shared, item):
  time.sleep(item[0])
  return os.getpid(), bytes(1 << 20)

if __name__ == "__main__":
  signal.signal(signal.SIGINT, signal.default_int_handler)
  signal.signal(signal.SIGTERM, lambda *unused: sys.exit(143))
  items = [(seconds, bytes(1 << 20)) for seconds in (0.3, 99)]
  try:
    # One worker is busy, the other one is idle.
    with worker_pool.open_pool(None, 2) as parallel_map:
      for found, _ in parallel_map(pid, items):
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
    env={**os.environ, "PYTHONPATH": str(_ROOT), "TMPDIR": str(tmp_path)},
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
  # Python's resource tracker may warn after SIGKILL.
  errors = [line for line in lines[1:] if "resource_tracker" not in line]
  errors = [line for line in errors if not line.startswith("  warnings.warn(")]
  assert [x[:21] for x in errors] == ["a worker process died"] * (code == 1)
  # SIGKILL leaves the items.
  assert len(os.listdir(tmp_path)) == 1 + (code == -signal.SIGKILL)
