"""A profile of a few updates, on request, for TensorBoard.

TensorFlow's profiler slows down what it watches, so it watches the steps that
were asked for and no others. Watching changes no number of the run.
"""

from __future__ import annotations

import contextlib
import os
from typing import Iterator, Optional

import tensorflow as tf

FOLDER = "profile"


class StepProfiler:
  """Profiles the updates after step FROM, up to and with step TO.

  A context manager; leaving it ends a profile that is still going on. A run
  that is resumed between FROM and TO profiles what is left. Each profile is
  written to a folder of its own, named by the time.
  """

  def __init__(self, model_dir: str, steps: Optional[tuple[int, int]]):
    """Writes below `model_dir`/profile; `steps` None profiles nothing."""
    self._folder = os.path.join(model_dir, FOLDER)
    self._steps = steps
    self._active = False

  def __enter__(self) -> StepProfiler:
    return self

  def __exit__(self, *unused) -> None:
    self._stop()

  def steps_until_stop(self, step: int) -> float:
    """Updates until FROM or TO, whichever is next; infinite if neither is."""
    later = [s - step for s in self._steps or () if s > step]
    return min(later, default=float("inf"))

  @contextlib.contextmanager
  def watch(self, step: int, steps: int) -> Iterator[None]:
    """For `steps` updates after `step`, not beyond `steps_until_stop`.

    What the updates compute has to be awaited inside it.

    Raises:
      tf.errors.OpError: another profiler is at work in this process.
    """
    if not self._steps or not self._steps[0] <= step < self._steps[1]:
      self._stop()  # A rollback went back beyond FROM.
      yield
      return
    if not self._active:
      tf.profiler.experimental.start(self._folder)
      self._active = True
    with tf.profiler.experimental.Trace("train", step_num=step, _r=1):
      yield
    if step + steps >= self._steps[1]:
      self._stop()

  def _stop(self) -> None:
    if self._active:
      self._active = False
      tf.profiler.experimental.stop()
