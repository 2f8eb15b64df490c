"""Tests with real signals, sent while TensorFlow computes."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest
import tensorflow as tf

from official_albert import preemption


def test_a_loop_in_the_graph_sees_the_signal():
  with preemption.PreemptionWatch() as watch:

    @tf.function
    def loop():
      count = tf.constant(0)
      while tf.logical_not(watch.requested):
        count += 1
      return count

    assert not bool(watch.requested)
    watch.requested.assign(True)
    assert int(loop()) == 0  # Traced before the clock starts.
    watch.requested.assign(False)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM))
    begun = time.monotonic()
    timer.start()
    # Ends only if the signal is noticed while this call is under way.
    assert int(loop()) > 0
    assert time.monotonic() - begun >= 0.3


def test_signals_are_as_before_afterwards():
  handler = signal.getsignal(signal.SIGTERM)
  with preemption.PreemptionWatch():
    assert signal.getsignal(signal.SIGTERM) != handler
  assert signal.getsignal(signal.SIGTERM) == handler
  assert signal.set_wakeup_fd(-1) == -1


def test_other_threads_have_no_handler():
  errors = []

  def run():
    try:
      with preemption.PreemptionWatch():
        pass
    except ValueError as error:
      errors.append(error)

  thread = threading.Thread(target=run)
  thread.start()
  thread.join()
  assert not errors


def test_the_exit_says_so():
  error = preemption.Preempted("saved step 7.")
  assert (error.code, str(error)) == (143, "saved step 7.")


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
