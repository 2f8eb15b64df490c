"""This machine, its TPU, and the workers of a job. Does not load TensorFlow.

TensorFlow, Kubeflow and Vertex AI describe a job of several processes with
TF_CONFIG in the environment of each process. TensorFlow waits an hour for a
missing worker, in a call that signals cannot interrupt, so the workers wait for
each other here first.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import platform
import re
import socket
import sys
import tempfile
import time
from importlib import metadata
from typing import Iterator, Mapping, NamedTuple, Optional

from official_albert import files

VARIABLE = "TF_CONFIG"
_EXAMPLE = (
  '{"cluster": {"worker": ["HOST0:2222", "HOST1:2222"]}, '
  '"task": {"type": "worker", "index": 0}}'
)
# The TPU's runtime in Google Cloud's images of TPU VMs that have TensorFlow.
_LIBTPU = "/lib/libtpu.so"
# The chips of a TPU VM; the second pattern is that of newer generations.
_CHIPS = ("/dev/accel*", "/dev/vfio/[0-9]*")
# Keeps TensorFlow from loading that runtime, which takes hold of the TPU.
_NO_TPU = {"TF_PLUGGABLE_DEVICE_LIBRARY_PATH": "", "TPU_LOAD_LIBRARY": "0"}
# What these variables were before; the user may have set the same values.
_of_the_user: dict[str, Optional[str]] = {}
# Schedulers may take minutes to start all machines of a job.
WAIT_SECONDS = 600
_RETRY_SECONDS = 0.2


class Cluster(NamedTuple):
  """The workers of a job.

  Attributes:
    addresses: host:port of each worker, the chief first.
    index: the index of this process in `addresses`.
    jobs: the number of tasks of each type, "chief" and "worker".
  """

  addresses: tuple[str, ...]
  index: int  # type: ignore[assignment]  # Hides `tuple.index`.
  jobs: Mapping[str, int]


@dataclasses.dataclass(frozen=True)
class _Jobs:
  chief: list[str] = dataclasses.field(default_factory=list)
  worker: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class _Task:
  type: str
  index: int


@dataclasses.dataclass(frozen=True)
class _Config:
  """What is read of TF_CONFIG."""

  cluster: _Jobs
  task: _Task


def read_cluster() -> Cluster:
  """Parses the environment variable TF_CONFIG.

  Tasks are of type `worker` or `chief` (at most one). Without a chief, the
  first worker is the chief.

  Raises:
    ValueError: TF_CONFIG is missing or malformed, or names a task that does not
      exist.
  """
  text = os.environ.get(VARIABLE)
  if not text:
    raise ValueError(
      f"{VARIABLE} is not set: multi_worker needs it in the environment of "
      f"each worker, with the worker's index, such as {VARIABLE}='{_EXAMPLE}'."
    )
  config = files.parse_json(
    text, VARIABLE, _Config, f"it looks like {_EXAMPLE}"
  )
  kind, index = config.task.type, config.task.index
  chiefs, workers = config.cluster.chief, config.cluster.worker
  addresses = (*chiefs, *workers)
  for address in addresses:
    host_and_port(address)
  tasks = {"chief": chiefs, "worker": workers}
  unique = len(chiefs) < 2 and len(set(addresses)) == len(addresses)
  if not unique or not 0 <= index < len(tasks.get(kind, ())):
    raise ValueError(
      f"{VARIABLE} has to name each address once, at most one chief, and the "
      f"task of this process, counted from 0, but names {addresses} and the "
      f"{kind} {index}."
    )
  place = index + (len(chiefs) if kind == "worker" else 0)
  return Cluster(addresses, place, {k: len(x) for k, x in tasks.items() if x})


def host_and_port(address: str) -> tuple[str, int]:
  """Splits host:port or [IPv6]:port; raises ValueError for anything else."""
  host, _, port = str(address).rpartition(":")
  host = host.strip("[]")
  if not host or not port.isdigit() or not 0 < int(port) < 65536:
    raise ValueError(
      f"{address!r} is no address: write HOST:PORT, with a port from 1 to "
      "65535."
    )
  return host, int(port)


def meet(cluster: Cluster, wait_seconds: float = WAIT_SECONDS) -> None:
  """Waits until every worker of `cluster` listens at its address.

  A worker that has reached all others continues and starts TensorFlow's server,
  which listens in its place.

  Raises:
    OSError: this worker's port is in use.
    TimeoutError: a worker does not listen in time.
  """
  _, port = host_and_port(cluster.addresses[cluster.index])
  deadline = time.monotonic() + wait_seconds
  with _listen(port):
    for index, address in enumerate(cluster.addresses):
      while index != cluster.index and not listens(address):
        if time.monotonic() > deadline:
          raise TimeoutError(
            f"worker {index} at {address} did not start within "
            f"{wait_seconds:g} seconds: start the same command on every "
            f"worker, each with its own index in {VARIABLE}."
          )
        time.sleep(_RETRY_SECONDS)


def listens(address: str) -> bool:
  """Returns whether host:port accepts connections."""
  with contextlib.suppress(OSError):
    socket.create_connection(host_and_port(address), timeout=5).close()
    return True
  return False


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
      f"({error.strerror}): stop the program that uses it, or choose another "
      "port on all machines."
    ) from error


def prepare_tpu(address: str) -> None:
  """Sets the environment variables that TensorFlow reads to use a TPU.

  Call it before TensorFlow is imported. A variable that is set already, even to
  an empty value, is not changed. The variables are those of Google's own tests
  (GoogleCloudPlatform/ml-auto-solutions) and of Keras' example for
  tensorflow-tpu (keras-io, examples/keras_rs/distributed_embedding_tf.py).

  Args:
    address: "local" for the chips of this machine. TensorFlow then loads the
      TPU's runtime as a plugin, which it does in images that end in `-pjrt`; in
      those that end in `-se`, TF_PLUGGABLE_DEVICE_LIBRARY_PATH has to be empty.
      Any other address is that of a TPU whose TensorFlow servers hold the
      chips, so this process leaves the runtime alone.
  """
  if address != "local":
    os.environ.setdefault("TPU_LOAD_LIBRARY", "0")
    return
  library = _tpu_plugin()
  if library:
    os.environ.setdefault("NEXT_PLUGGABLE_DEVICE_USE_C_API", "true")
    os.environ.setdefault("TF_PLUGGABLE_DEVICE_LIBRARY_PATH", library)


def _tpu_plugin() -> str:
  """Returns the TPU's runtime that TensorFlow loads as a plugin, or ""."""
  try:
    metadata.distribution("tensorflow-tpu")
    libtpu = metadata.distribution("libtpu")
  except metadata.PackageNotFoundError:  # The build of an image.
    return _LIBTPU if files.exists(_LIBTPU) else ""
  # The plugin of libtpu 0.0.14 ends the process where there are no chips;
  # without it, TensorFlow raises an error.
  if not any(files.glob(pattern) for pattern in _CHIPS):
    return ""
  return str(libtpu.locate_file("libtpu/libtpu.so"))


def set_environment() -> None:
  """Sets what TensorFlow reads at its start, unless the user has set it.

  Programs call it, so that no import changes the process of a user. Child
  processes inherit the variables.
  """
  if "tensorflow" in sys.modules:
    return
  # Hides start-up messages. At level 2, the pip wheel still reports that three
  # CUDA libraries are registered twice. Failures that matter raise exceptions.
  os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
  # Flushing a file in a bucket uploads what is new, not the whole file again.
  os.environ.setdefault("GCS_APPEND_MODE", "compose")
  # Each open reader allocates a block and fills it with zeros: 64 MiB and 36 ms
  # of CPU time with TensorFlow's default. Training opens a few dozen shards.
  os.environ.setdefault("GCS_READ_CACHE_BLOCK_SIZE_MB", "8")
  # TensorFlow's own default on x86 CPUs is to use oneDNN with AVX-512 VNNI or
  # later only. With AVX2, it makes a step of albert_base_v2 1.2 times as fast.
  if platform.machine().lower() in ("x86_64", "amd64"):
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")


def leave_tpu() -> None:
  """Leaves the TPU of this machine, which belongs to one process at a time.

  Call it before TensorFlow is imported.
  """
  for name, value in _NO_TPU.items():
    _of_the_user.setdefault(name, os.environ.get(name))
    os.environ[name] = value


def training_environment() -> dict[str, str]:
  """Returns the environment of a child process that may use the TPU again."""
  variables = {**os.environ, **_of_the_user}
  return {name: x for name, x in variables.items() if x is not None}


def cpu_count() -> int:
  """Returns the number of CPUs that this process may use."""
  if hasattr(os, "sched_getaffinity"):  # Not on macOS.
    return len(os.sched_getaffinity(0))
  return os.cpu_count() or 1


def describe_machine() -> str:
  """Returns the CPUs, the processor and the Python version in one line."""
  model = platform.processor() or platform.machine()
  with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
    found = re.search(r"model name\s*: (.+)", file.read())
    model = found[1] if found else model
  return f"{cpu_count()} cores, {model}, Python {platform.python_version()}"


@contextlib.contextmanager
def hold_stderr() -> Iterator[None]:
  """Discards what the process writes to stderr, unless the body raises.

  XLA and the TFLite converter write to file descriptor 2 through loggers that
  TensorFlow's settings do not reach. If the body raises, the output is written
  at the end; if the process aborts, it is lost.
  """
  sys.stderr.flush()
  stderr = os.dup(2)
  with tempfile.TemporaryFile() as held:
    os.dup2(held.fileno(), 2)
    try:
      yield
    except BaseException:
      held.seek(0)
      os.write(stderr, held.read())
      raise
    finally:
      os.dup2(stderr, 2)
      os.close(stderr)
