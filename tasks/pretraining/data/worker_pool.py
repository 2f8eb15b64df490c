"""Calls a function in several processes, and reports a process that died."""

from __future__ import annotations

import collections
import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from concurrent import futures
from typing import Any, Callable, Generator, Iterable

_ITEMS_PER_WORKER = 3


def parallel_map(
  function: Callable[[Any], Any], items: Iterable[Any], num_workers: int
) -> Generator[Any, None, None]:
  """Yields function(item) for each item, in order, computed by processes.

  With one worker, everything runs in this process. Only a few items are in
  flight at a time, so neither a long input nor a slow consumer fills the
  memory. Close the generator, by `contextlib.closing`, to end the processes.

  Each process has a pipe of its own, whose end tells at once that the process
  has died, even in the middle of a message. The processes of a
  `ProcessPoolExecutor` share one pipe for their results, so it would wait for
  the rest of the message forever.

  Raises:
    OSError: a process died.
    Exception: an exception of `function` or `items`.
  """
  if num_workers == 1:
    yield from map(function, items)
    return
  # A fork of a process with threads, such as TensorFlow's, may wait forever.
  context = multiprocessing.get_context("spawn")
  pipes, children = list[Any](), list[Any]()
  for _ in range(num_workers):
    ours, theirs = context.Pipe()
    # Without the function: `start` would wait forever for a process that dies
    # before it has read arguments that are larger than a pipe.
    child = context.Process(target=_work, args=(theirs,), daemon=True)
    child.start()
    theirs.close()
    pipes.append(ours)
    children.append(child)
  own = threading.local()  # Each thread waits for one process.

  def call(item: Any) -> Any:
    try:
      if not hasattr(own, "pipe"):
        own.pipe = pipes.pop()
        own.pipe.send(function)
      own.pipe.send(item)
      result, error = own.pipe.recv()
    except (EOFError, OSError) as ended:
      raise OSError(
        "a worker process died: if the system ran out of memory, use a "
        "smaller --num_workers."
      ) from ended
    if error:
      raise error
    return result

  threads = futures.ThreadPoolExecutor(num_workers)
  pending: collections.deque = collections.deque()
  try:
    for item in items:
      if len(pending) >= _ITEMS_PER_WORKER * num_workers:
        yield pending.popleft().result()
      pending.append(threads.submit(call, item))
    while pending:
      yield pending.popleft().result()
  finally:
    # All results have been read, or nobody wants them.
    for child in children:
      child.kill()
    threads.shutdown(cancel_futures=True)


def _work(pipe: Any) -> None:
  """Receives a function and calls it until the process is killed."""
  # Not the parent's handlers.
  signal.signal(signal.SIGINT, signal.SIG_IGN)
  signal.signal(signal.SIGTERM, signal.SIG_DFL)
  threading.Thread(target=_die_with_parent, daemon=True).start()
  with contextlib.suppress(EOFError, BrokenPipeError):  # The parent has ended.
    function = pipe.recv()
    while True:
      item = pipe.recv()
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
