"""Maps a function over many items in several processes, results in order.

With one worker everything runs in the calling process. Only a few items are in
flight at a time, so neither a long input nor a slow consumer fills the memory.
"""

from __future__ import annotations

import atexit
import collections
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
from concurrent import futures
from concurrent.futures import process
from typing import Any, Callable, Iterable, Iterator

_ITEMS_PER_WORKER = 3


def start_method() -> str:
  """Returns "fork", which starts faster, if that is safe; else "spawn".

  A fork of a process with other threads, such as TensorFlow's, may wait forever
  for a lock that one of them holds.
  """
  alone = threading.active_count() == 1 and "tensorflow" not in sys.modules
  return "fork" if alone and sys.platform == "linux" else "spawn"


class WorkerPool:
  """Processes that are initialized once; a context manager."""

  def __init__(
    self, num_workers: int, initializer: Callable[[Any], None], argument: Any
  ):
    """Starts processes, which call initializer(argument) first."""
    self._max_pending = _ITEMS_PER_WORKER * num_workers
    self._executor = None
    if num_workers == 1:
      initializer(argument)
      return
    self._executor = futures.ProcessPoolExecutor(
      num_workers,
      mp_context=multiprocessing.get_context(start_method()),
      initializer=_initialize,
      initargs=(initializer, argument),
    )
    # Workers multiply no matrices, and starting NumPy's threads for that would
    # take each new process about as long as importing NumPy.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for _ in range(num_workers):
      self._executor.submit(os.getpid)  # Start them now, not when needed.

  def map(
    self, function: Callable[[Any], Any], items: Iterable[Any]
  ) -> Iterator[Any]:
    """Yields function(item) for each item, in order.

    It raises the first error in the order of the items, or an OSError if a
    worker dies.
    """
    if self._executor is None:
      yield from map(function, items)
      return
    pending = collections.deque()
    try:
      for submitted in self._submit(function, items):
        if len(pending) >= self._max_pending:
          yield pending.popleft().result()
        pending.append(submitted)
      while pending:
        yield pending.popleft().result()
    except process.BrokenProcessPool as error:
      raise OSError(
        "a worker process died: if the system ran out of memory, use a "
        "smaller --num_workers."
      ) from error

  def _submit(
    self, function: Callable[[Any], Any], items: Iterable[Any]
  ) -> Iterator[futures.Future]:
    """Yields a future for each item, and one for an error of `items`."""
    try:
      for item in items:
        yield self._executor.submit(function, item)
    except Exception as error:
      failed = futures.Future()
      failed.set_exception(error)
      yield failed

  def __enter__(self) -> WorkerPool:
    return self

  def __exit__(self, *unused_error) -> None:
    if self._executor is not None:
      self._executor.shutdown(wait=True, cancel_futures=True)


def _initialize(initializer: Callable[[Any], None], argument: Any) -> None:
  # Ctrl-C reaches every process in the terminal; only the parent handles it.
  signal.signal(signal.SIGINT, signal.SIG_IGN)
  threading.Thread(target=_die_with_parent, daemon=True).start()
  # Exit without Python's cleanup, which takes time and does nothing useful.
  atexit.register(os._exit, 0)
  initializer(argument)


def _die_with_parent() -> None:
  """Ends this process when its parent has ended.

  Otherwise a worker of a killed parent would wait for work forever, because it
  keeps the other end of the queue open itself.
  """
  parent = multiprocessing.parent_process()
  multiprocessing.connection.wait([parent.sentinel])
  os._exit(1)
