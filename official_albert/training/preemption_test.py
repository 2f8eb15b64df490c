"""Real signals, sent while TensorFlow computes."""

from __future__ import annotations

import concurrent.futures
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest
import tensorflow as tf

from official_albert.training import preemption

_ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _interruptible():
  """Background processes ignore Ctrl-C from their start."""
  handler = signal.signal(signal.SIGINT, signal.default_int_handler)
  yield
  signal.signal(signal.SIGINT, handler)


@pytest.mark.parametrize(
  "number, source", [(signal.SIGTERM, "SIGTERM"), (signal.SIGINT, "Ctrl-C")]
)
def test_a_loop_in_the_graph_sees_the_signal(number, source, capfd):
  handler = signal.getsignal(number)
  with preemption.PreemptionWatch() as watch:
    assert signal.getsignal(number) != handler

    @tf.function
    def loop():
      count = tf.constant(0)
      while tf.logical_not(watch.requested):
        count += 1
      return count

    # Tracing may take longer than the timer.
    run = loop.get_concrete_function()
    assert watch.signal_number is None
    threading.Timer(1, os.kill, (os.getpid(), number)).start()
    # Ends only if the signal is noticed during this call.
    assert int(run()) > 0
  assert (watch.signal_number, watch.request) == (number, source)
  notice = "stopping after this step; press Ctrl-C again to stop at once\n"
  assert capfd.readouterr().err == (notice if number == signal.SIGINT else "")
  # Afterwards, signals are handled as before.
  assert signal.getsignal(number) == handler
  assert signal.set_wakeup_fd(-1) == -1


_ENDLESS = """
import sys
import tensorflow as tf
from official_albert.training import preemption

def loop():
  tf.print("begun", output_stream=sys.stdout)
  return tf.while_loop(lambda i: i >= 0, lambda i: (i + 1) % 7, [0])

with preemption.PreemptionWatch():
  tf.function(loop)()
"""


def test_the_second_interrupt_ends_a_busy_process():
  process = subprocess.Popen(
    [sys.executable, "-c", _ENDLESS],
    cwd=_ROOT,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
  )
  try:
    assert process.stdout.readline() == b"begun\n"
    # Twice at once, as timeout(1) does, is one request.
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    assert process.stderr.readline().startswith(b"stopping after this step;")
    time.sleep(1)
    assert process.poll() is None
    sent = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 130
    assert time.monotonic() - sent < 2
    assert process.stderr.read() == (
      b"stopped at once; the same command resumes from the latest checkpoint, "
      b"if there is one\n"
    )
  finally:
    process.kill()
    process.communicate()


def test_ignored_signals_stay_ignored():
  signal.signal(signal.SIGINT, signal.SIG_IGN)
  with preemption.PreemptionWatch():
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
  assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN


def test_other_threads_have_no_handler():
  def enter():
    with preemption.PreemptionWatch() as watch:
      return watch

  with concurrent.futures.ThreadPoolExecutor() as executor:
    assert executor.submit(enter).result()
