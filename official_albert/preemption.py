"""Noticing that a machine is about to be taken away.

Schedulers send SIGTERM and wait a little. Python's own signal handlers run
between two bytecodes of the main thread, which TensorFlow keeps busy for a
whole inner loop; so a second thread waits for the signal and sets a variable
that the loop looks at after each step.
"""

from __future__ import annotations

import os
import signal
import threading

import tensorflow as tf

# 128 + SIGTERM, as shells report a program that SIGTERM has ended.
EXIT_CODE = 143


class Preempted(SystemExit):
  """Ends the program with `EXIT_CODE`, after it has saved its state."""

  def __init__(self, message: str):
    super().__init__(EXIT_CODE)
    self.message = message

  def __str__(self) -> str:
    return self.message


class PreemptionWatch:
  """A context in which SIGTERM sets `requested` instead of killing.

  Outside of the main thread, where Python allows no signal handlers, it does
  nothing.

  Attributes:
    requested: <bool>[], a variable on the host.
  """

  def __init__(self, device: str = "/cpu:0"):
    """Makes the variable on `device`, the host that runs the loop."""
    with tf.device(device):
      self.requested = tf.Variable(False, trainable=False, name="preempted")

  def __enter__(self) -> PreemptionWatch:
    self._active = threading.current_thread() is threading.main_thread()
    if self._active:
      self._read, self._write = os.pipe()
      os.set_blocking(self._write, False)
      self._handler = signal.signal(signal.SIGTERM, lambda *unused: None)
      # The C part of Python writes each signal's number there, at once.
      self._wakeup_fd = signal.set_wakeup_fd(
        self._write, warn_on_full_buffer=False
      )
      self._thread = threading.Thread(target=self._wait, daemon=True)
      self._thread.start()
    return self

  def __exit__(self, *unused) -> None:
    if self._active:
      signal.set_wakeup_fd(self._wakeup_fd)
      signal.signal(signal.SIGTERM, self._handler)
      os.close(self._write)
      self._thread.join()
      os.close(self._read)

  def _wait(self) -> None:
    while True:
      signals = os.read(self._read, 64)
      if not signals:  # The other end is closed.
        return
      if signal.SIGTERM in signals:
        self.requested.assign(True)
