"""Processes that call functions for items, and report a process that died."""

from __future__ import annotations

import collections
import contextlib
import multiprocessing
import multiprocessing.connection
import os
import queue
import signal
import threading
from concurrent import futures
from typing import Any, Callable, Iterable, Iterator

_ITEMS_PER_WORKER = 3


class WorkerPool:
  """Processes that call a function for many items; a context manager.

  With one process, everything runs in the calling one. Each process has a pipe
  of its own, whose end tells at once that the process has died, even in the
  middle of a message. The pipes of a `ProcessPoolExecutor` are shared, so it
  would wait for the rest forever.
  """

  def __init__(self, num_workers: int):
    """Starts the processes."""
    self.num_workers = num_workers
    self._children: list[Any] = []
    self._idle: queue.SimpleQueue = queue.SimpleQueue()
    # A fork of a process with threads, such as TensorFlow's, may wait forever.
    context = multiprocessing.get_context("spawn")
    for _ in range(num_workers if num_workers > 1 else 0):
      ours, theirs = context.Pipe()
      child = context.Process(target=_work, args=(theirs,), daemon=True)
      child.start()
      theirs.close()
      self._children.append(child)
      self._idle.put(ours)
    self._threads = futures.ThreadPoolExecutor(num_workers)

  def map(
    self, function: Callable[[Any], Any], items: Iterable[Any]
  ) -> Iterator[Any]:
    """Yields function(item) for each item, in order.

    Only a few items are in flight at a time, so neither a long input nor a slow
    consumer fills the memory.

    Raises:
      OSError: a process died.
      Exception: an exception of `function` or `items`.
    """
    if not self._children:
      yield from map(function, items)
      return
    pending: collections.deque = collections.deque()
    for item in items:
      if len(pending) >= _ITEMS_PER_WORKER * self.num_workers:
        yield pending.popleft().result()
      pending.append(self._threads.submit(self._call, function, item))
    while pending:
      yield pending.popleft().result()

  def _call(self, function: Callable[[Any], Any], item: Any) -> Any:
    """Has an idle process call a function; runs in a thread."""
    pipe = self._idle.get()
    try:
      pipe.send((function, item))
      result, error = pipe.recv()
    except (EOFError, OSError) as ended:
      raise OSError(
        "a worker process died: if the system ran out of memory, use a "
        "smaller --num_workers."
      ) from ended
    finally:
      self._idle.put(pipe)
    if error:
      raise error
    return result

  def __enter__(self) -> WorkerPool:
    return self

  def __exit__(self, *unused_error: Any) -> None:
    # All results have been read, or nobody wants them.
    for child in self._children:
      child.kill()
    self._threads.shutdown(cancel_futures=True)


def _work(pipe: Any) -> None:
  """Calls functions until the process is killed."""
  # Not the parent's handlers.
  signal.signal(signal.SIGINT, signal.SIG_IGN)
  signal.signal(signal.SIGTERM, signal.SIG_DFL)
  threading.Thread(target=_die_with_parent, daemon=True).start()
  with contextlib.suppress(EOFError, BrokenPipeError):  # The parent has ended.
    while True:
      function, item = pipe.recv()
      result = failure = None
      try:
        result = function(item)
      except Exception as error:
        failure = error
      pipe.send((result, failure))


def _die_with_parent() -> None:
  """Ends this process when its parent has ended, at once."""
  parent = multiprocessing.parent_process()
  multiprocessing.connection.wait([parent.sentinel])
  os._exit(1)
