"""The workers of a job: TF_CONFIG, and waiting until all have started.

TF_CONFIG in the environment of each process describes a job of several
processes, as TensorFlow, Kubeflow and Vertex AI write it. TensorFlow waits an
hour for a missing worker, in a call that signals cannot interrupt, so the
workers wait for each other here first.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from typing import Mapping, NamedTuple, Optional

VARIABLE = "TF_CONFIG"
_EXAMPLE = (
  '{"cluster": {"worker": ["HOST0:2222", "HOST1:2222"]}, '
  '"task": {"type": "worker", "index": 0}}'
)
# Schedulers may take minutes to start all machines of a job.
WAIT_SECONDS = 600
_RETRY_SECONDS = 0.2

# RFC 9113, section 3.4: the client's connection preface, with an empty SETTINGS
# frame. The fourth byte of a frame is its type.
_SETTINGS = b"\x04"
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + _SETTINGS + bytes(5)


class Cluster(NamedTuple):
  """The workers of a job.

  Attributes:
    addresses: host:port of each worker, the chief's first.
    index: of this process.
    jobs: number of tasks of each type, "chief" and "worker".
  """

  addresses: tuple[str, ...]
  index: int
  jobs: Mapping[str, int]


def read_cluster(environment: Optional[Mapping[str, str]] = None) -> Cluster:
  """Parses TF_CONFIG.

  Tasks are of type `worker` or `chief` (at most one). Without a chief, the
  first worker is the chief.

  Args:
    environment: `os.environ` by default.

  Raises:
    ValueError: TF_CONFIG is missing or malformed, or names another job or a
      task that does not exist.
  """
  text = (os.environ if environment is None else environment).get(VARIABLE)
  if not text:
    raise ValueError(
      f"{VARIABLE} is not set: multi_worker needs it in the environment of "
      f"each worker, with the worker's index, such as {VARIABLE}='{_EXAMPLE}'."
    )
  try:
    config = json.loads(text)
  except ValueError as error:
    raise ValueError(
      f"{VARIABLE} is not valid JSON ({error}): it looks like {_EXAMPLE}."
    ) from error
  try:
    jobs, task = dict(config["cluster"]), config["task"]
    kind, index = task["type"], task["index"]
    chiefs, workers = jobs.get("chief", []), jobs.get("worker", [])
    addresses = (*chiefs, *workers)
    for address in addresses:
      host_and_port(address)
  except (KeyError, TypeError, AttributeError) as error:
    raise ValueError(
      f"{VARIABLE} lacks a part or has one of the wrong kind ({error}): it "
      f"looks like {_EXAMPLE}."
    ) from error
  if kind not in ("chief", "worker") or len(chiefs) > 1:
    raise ValueError(
      f"{VARIABLE} makes this process a {kind!r} of {len(chiefs)} chiefs and "
      f"{len(workers)} workers: a task here is a worker, or the only chief."
    )
  if len(set(addresses)) < len(addresses):
    raise ValueError(f"{VARIABLE} names an address twice: {addresses}.")
  count = len(jobs.get(kind, ()))
  if type(index) is not int or not 0 <= index < count:
    raise ValueError(
      f"the task index {index!r} in {VARIABLE} is out of range: the cluster "
      f"has {count} tasks of type {kind}, counted from 0."
    )
  counts = {"chief": len(chiefs), "worker": len(workers)}
  place = index + (len(chiefs) if kind == "worker" else 0)
  return Cluster(addresses, place, {k: n for k, n in counts.items() if n})


def host_and_port(address: str) -> tuple[str, int]:
  """Splits host:port or [IPv6]:port.

  Raises:
    ValueError: it is neither.
  """
  host, _, port = str(address).rpartition(":")
  host = host.strip("[]")
  if not host or not port.isdigit() or not 0 < int(port) < 65536:
    raise ValueError(
      f"{address!r} is no address: write HOST:PORT, with a port from 1 to "
      "65535."
    )
  return host, int(port)


def meet(cluster: Cluster, wait_seconds: float = WAIT_SECONDS) -> None:
  """Waits until every worker of `cluster` answers at its address.

  A worker that has reached all others continues and starts TensorFlow's server,
  which answers for it.

  Raises:
    OSError: this worker's port is in use.
    TimeoutError: a worker does not answer in time.
  """
  _, port = host_and_port(cluster.addresses[cluster.index])
  deadline = time.monotonic() + wait_seconds
  with _listen(port) as listener:
    threading.Thread(target=_greet, args=(listener,), daemon=True).start()
    for index, address in enumerate(cluster.addresses):
      while index != cluster.index and not greeting(address):
        if time.monotonic() > deadline:
          raise TimeoutError(
            f"worker {index} at {address} did not come within "
            f"{wait_seconds:g} seconds: start the same command on every "
            f"worker, each with its own index in {VARIABLE}."
          )
        time.sleep(_RETRY_SECONDS)
    listener.shutdown(socket.SHUT_RDWR)  # Ends the thread, which is in accept.


def greeting(address: str, timeout_seconds: float = 5) -> bytes:
  """Returns what the server at host:port sends to an HTTP/2 client.

  b"" if it sends nothing. Sidecar proxies accept connections for workers that
  have not started, so connecting is not enough.
  """
  try:
    with socket.create_connection(host_and_port(address), timeout_seconds) as s:
      s.settimeout(timeout_seconds)
      s.sendall(_HELLO)
      return s.recv(9)
  except OSError:
    return b""


def is_grpc(greeting_: bytes) -> bool:
  """Returns whether a greeting is that of a gRPC server."""
  return greeting_[3:4] == _SETTINGS


def _greet(listener: socket.socket) -> None:
  while True:
    try:
      connection, _ = listener.accept()
    except OSError:  # Closed, because all workers have answered.
      return
    with connection, contextlib.suppress(OSError):
      connection.sendall(b"albert")


def _listen(port: int) -> socket.socket:
  dual = socket.has_dualstack_ipv6()
  try:
    return socket.create_server(
      ("", port),
      family=socket.AF_INET6 if dual else socket.AF_INET,
      backlog=128,
      dualstack_ipv6=dual,
    )
  except OSError as error:
    # Two of TensorFlow's servers would silently share a port.
    raise OSError(
      f"this worker cannot listen on port {port} of {VARIABLE} "
      f"({error.strerror}): stop the program that does, or give the worker "
      "another port on all machines."
    ) from error
