"""Stops a run on request: SIGTERM from a scheduler, or Ctrl-C.

The first signal asks the training loop to finish its step, save and exit. A
second Ctrl-C ends the process immediately. Python runs signal handlers in the
main thread, which TensorFlow keeps busy for a whole inner loop. So a second
thread waits for signals and sets a variable that the loop reads after each
step.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from typing import Any, Mapping, Optional

import tensorflow as tf

_NAMES: Mapping[Optional[int], str] = {
  signal.SIGTERM: "SIGTERM",
  signal.SIGINT: "Ctrl-C",
}
# Programs such as timeout(1) signal a process and its group, so two signals
# within this many seconds count as one request.
_SAME_REQUEST_SECONDS = 0.2


class PreemptionWatch:
  """A context in which SIGTERM and SIGINT set `requested` instead of killing.

  A signal that the process ignores, such as SIGINT in the background, stays
  ignored. Outside the main thread, where Python allows no signal handlers, the
  watch does nothing.

  Attributes:
    requested: a variable <bool>[] on the host.
    signal_number: the first signal received; None before that.
  """

  def __init__(self, device: str = "/cpu:0"):
    """Creates the variable on `device`, the host that runs the loop."""
    self.signal_number: Optional[int] = None
    self._interrupted_at: Optional[float] = None
    self._stack = contextlib.ExitStack()
    with tf.device(device):
      self.requested = tf.Variable(False, trainable=False, name="preempted")

  @property
  def request(self) -> str:
    """The source of the request: "SIGTERM", "Ctrl-C" or "another worker"."""
    return _NAMES.get(self.signal_number, "another worker")

  @property
  def exit_code(self) -> int:
    """128 plus the number of the signal: 143 for SIGTERM, 130 for SIGINT."""
    return 128 + (self.signal_number or signal.SIGTERM)

  def __enter__(self) -> PreemptionWatch:
    if threading.current_thread() is not threading.main_thread():
      return self
    read, write = os.pipe()
    os.set_blocking(write, False)
    thread = threading.Thread(target=self._wait, args=(read,), daemon=True)
    # Undone in the opposite order.
    self._stack.callback(os.close, read)
    self._stack.callback(thread.join)
    self._stack.callback(os.close, write)
    for number in _NAMES:
      if signal.getsignal(number) != signal.SIG_IGN:
        handler = signal.signal(number, lambda *unused: None)
        self._stack.callback(signal.signal, number, handler)
    # Python's C code writes the number of each signal there immediately.
    before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    self._stack.callback(signal.set_wakeup_fd, before)
    thread.start()
    return self

  def __exit__(self, *unused: Any) -> None:
    self._stack.close()

  def _wait(self, pipe: int) -> None:
    # Until the other end is closed.
    for received in iter(lambda: os.read(pipe, 64), b""):
      if signal.SIGINT in received:
        self._interrupt()
      known = [number for number in received if number in _NAMES]
      if known and not self.signal_number:
        self.signal_number = known[0]
        self.requested.assign(True)

  def _interrupt(self) -> None:
    now = time.monotonic()
    if self._interrupted_at is None:
      self._interrupted_at = now
      _print("stopping after this step; press Ctrl-C again to stop at once")
    elif now - self._interrupted_at > _SAME_REQUEST_SECONDS:
      _print(
        "stopped at once; the same command resumes from the latest checkpoint, "
        "if there is one"
      )
      # sys.exit would wait for the main thread, which may be in TensorFlow.
      os._exit(128 + signal.SIGINT)


def _print(line: str) -> None:
  # The main thread may hold the lock of sys.stderr.
  with contextlib.suppress(OSError):
    os.write(2, f"{line}\n".encode())
