"""Calls a function in several processes, and reports a process that died."""

from __future__ import annotations

import collections
import contextlib
import functools
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import pickle  # noqa: TID251  # Only this process writes what it reads.
import signal
import tempfile
import threading
from concurrent import futures
from concurrent.futures import process
from typing import Any, Callable, Iterable, Iterator

from official_albert import machine

_ITEMS_PER_WORKER = 3


# A function of what the processes share and an item, and the items.
ParallelMap = Callable[
  [Callable[[Any, Any], Any], Iterable[Any]], Iterator[Any]
]


@contextlib.contextmanager
def open_pool(shared: Any, num_workers: int = 0) -> Iterator[ParallelMap]:
  """Yields a function that maps items by processes, in order.

  It may be called for one phase after the other. Its first argument is a
  function of a module, which is called with `shared` and an item; a process
  reads `shared` once. 0 is a worker for each processor; with one, everything
  runs in this process. Only a few items are in flight at a time, so neither a
  long input nor a slow consumer fills the memory. A process that dies is an
  OSError.

  `shared`, items and results go through temporary files: a
  `ProcessPoolExecutor` waits forever for the rest of a long message if its
  process is killed in the middle.
  """
  num_workers = num_workers or machine.cpu_count()
  if num_workers == 1:
    yield lambda function, items: map(
      functools.partial(function, shared), items
    )
    return
  # A fork of a process with threads, such as TensorFlow's, may wait forever.
  context = multiprocessing.get_context("spawn")
  others = {*multiprocessing.active_children()}
  pool = futures.ProcessPoolExecutor(num_workers, context, _start_worker)
  with tempfile.TemporaryDirectory(prefix="official-albert-") as folder:
    stored = pathlib.Path(folder, "shared")
    stored.write_bytes(pickle.dumps(shared))

    def parallel_map(
      function: Callable[[Any, Any], Any], items: Iterable[Any]
    ) -> Iterator[Any]:
      pending = collections.deque[futures.Future]()
      for number, item in enumerate(items):
        if len(pending) >= _ITEMS_PER_WORKER * num_workers:
          yield _take(pending.popleft().result())
        path = pathlib.Path(folder, str(number))
        path.write_bytes(pickle.dumps(item))
        pending.append(pool.submit(_call, function, stored, path))
      while pending:
        yield _take(pending.popleft().result())

    try:
      yield parallel_map
    except process.BrokenProcessPool as error:
      raise OSError(
        "a worker process died: if the system ran out of memory, use a smaller "
        "--num_workers."
      ) from error
    finally:
      # All results have been read, or nobody wants them.
      for child in {*multiprocessing.active_children()} - others:
        child.kill()
      pool.shutdown(cancel_futures=True)


@functools.lru_cache(1)
def _load(path: pathlib.Path) -> Any:
  return pickle.loads(path.read_bytes())


def _take(path: pathlib.Path) -> Any:
  """Reads a file that is needed once."""
  value = pickle.loads(path.read_bytes())
  path.unlink()
  return value


def _call(
  function: Callable[[Any, Any], Any], shared: pathlib.Path, item: pathlib.Path
) -> pathlib.Path:
  """Calls the function; the result takes the place of the item."""
  result = function(_load(shared), _take(item))
  item.write_bytes(pickle.dumps(result))
  return item


def _start_worker() -> None:
  signal.signal(signal.SIGINT, signal.SIG_IGN)  # The parent ends this process.
  threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
  """Ends this process when its parent has ended, at once."""
  parent = multiprocessing.parent_process()
  multiprocessing.connection.wait([parent.sentinel])
  os._exit(1)
