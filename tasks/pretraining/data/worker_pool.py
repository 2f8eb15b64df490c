"""One function over many items in several processes, results in order.

With one worker everything happens in the calling process, by the same code.
Only a few items are under way at a time, so that neither a long input nor slow
results fill the memory.
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
from typing import Any, Callable, Iterable, Iterator, Sequence

_ITEMS_PER_WORKER = 3


def start_method() -> str:
  """How workers begin: as a copy of this process if that is safe.

  A copy has its modules and its tokenizer at once, a new process takes half a
  second of a processor for them. But a copy of a process with other threads,
  such as TensorFlow's, may wait for ever for a lock that one of them holds.
  """
  alone = threading.active_count() == 1 and "tensorflow" not in sys.modules
  return "fork" if alone and sys.platform == "linux" else "spawn"


class WorkerPool:
  """Processes that are set up once and then given work; a context manager."""

  def __init__(
    self,
    num_workers: int,
    initializer: Callable[..., None],
    arguments: Sequence[Any],
  ):
    """Starts the processes.

    Args:
      num_workers: 1 for the calling process itself.
      initializer: called once in each process.
      arguments: of the initializer; must be picklable. What they have opened
        and loaded by now is there in the workers too, where they are forked.
    """
    self._num_workers = num_workers
    self._executor = None
    if num_workers == 1:
      initializer(*arguments)
      return
    self._executor = futures.ProcessPoolExecutor(
      num_workers,
      mp_context=multiprocessing.get_context(start_method()),
      initializer=_initialize,
      initargs=(initializer, *arguments),
    )
    # Workers multiply no matrices, and to start numpy's threads for that would
    # cost each new process about as much as to import numpy.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for _ in range(num_workers):
      self._executor.submit(os.getpid)  # They start now, not when needed.

  def map(
    self, function: Callable[[Any], Any], items: Iterable[Any]
  ) -> Iterator[Any]:
    """Yields function(item) for each item, in order.

    Raises:
      OSError: a worker died.
      Exception: what `function` or the iterator of the items raises.
    """
    if self._executor is None:
      yield from map(function, items)
      return
    pending = collections.deque()
    try:
      for submitted in self._submit(function, items):
        if len(pending) >= _ITEMS_PER_WORKER * self._num_workers:
          yield pending.popleft().result()
        pending.append(submitted)
      while pending:
        yield pending.popleft().result()
    except process.BrokenProcessPool as error:
      raise OSError(
        "a worker process died; if the system ran out of memory, use a "
        "smaller --num_workers."
      ) from error

  def start(self, function: Callable[[], Any]) -> Callable[[], Any]:
    """Has a worker call `function` when one is free.

    Returns:
      A function that waits for the result and returns it, or raises what
      `function` has raised. With one worker it is `function` itself.
    """
    if self._executor is None:
      return function
    return self._executor.submit(function).result

  def _submit(
    self, function: Callable[[Any], Any], items: Iterable[Any]
  ) -> Iterator[futures.Future]:
    """A future for each item; an error of `items` comes in its turn, too."""
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


def _initialize(initializer: Callable[..., None], *arguments: Any) -> None:
  # Ctrl-C reaches every process of the terminal; the parent alone answers.
  signal.signal(signal.SIGINT, signal.SIG_IGN)
  threading.Thread(target=_die_with_parent, daemon=True).start()
  # At the end the system takes all back at once, not Python piece by piece.
  atexit.register(os._exit, 0)
  initializer(*arguments)


def _die_with_parent() -> None:
  """Ends this process when its parent is gone.

  A worker of a killed parent would wait for work for ever, for it holds the
  other end of its queue open itself.
  """
  parent = multiprocessing.parent_process()
  multiprocessing.connection.wait([parent.sentinel])
  os._exit(1)
