"""Several processes that compute one update together.

Each worker runs the whole program on its share of the examples. What is
computed from reduced numbers is the same on all; everything else that steers
the loop (a signal, a choice among files) is one worker's business and has to
be agreed upon before they act, or they wait for each other for ever.
"""

from __future__ import annotations

import contextlib
import faulthandler
import signal
import threading
from typing import Iterator

import tensorflow as tf

# The strategy takes one CPU device a worker, however many there are, and ten
# seconds of silence for death; it has no arguments for either.
from tensorflow.python.distribute import collective_all_reduce_strategy
from tensorflow.python.eager import context
from tensorflow.tsl.protobuf import coordination_config_pb2

from official_albert.distribution import cluster as cluster_lib

# From the moment when all workers answer until TensorFlow has connected them.
_CONNECT_SECONDS = 300
# A worker on a machine that has too much to do may be silent for ten seconds.
_SILENT_SECONDS = 60


class WorkerLost(OSError):
  """Another worker of the job has ended or cannot be reached."""


class MultiWorkerStrategy(tf.distribute.MultiWorkerMirroredStrategy):
  """`tf.distribute.MultiWorkerMirroredStrategy` with any local devices.

  Attributes:
    cluster: the workers.
  """

  def __init__(
    self, cluster: cluster_lib.Cluster, device_type: str, num_devices: int
  ):
    """Connects to the workers, which have to make theirs at the same time.

    Args:
      cluster: as TF_CONFIG has it.
      device_type: "CPU" or "GPU".
      num_devices: of each worker.
    """
    communication = tf.distribute.experimental.CommunicationImplementation
    options = tf.distribute.experimental.CommunicationOptions(
      implementation=(
        communication.RING if device_type == "CPU" else communication.AUTO
      )
    )
    # Only the parent of the parent: the parent has no way to choose devices.
    tf.distribute.Strategy.__init__(
      self, _Extended(self, cluster, options, device_type, num_devices)
    )
    self.cluster = cluster

  @tf.function
  def from_chief(self, number: tf.Tensor) -> tf.Tensor:
    """The chief's `number` <int64>[]; see the function of this name."""

    def step(number):
      replica = tf.distribute.get_replica_context()
      mine = replica.replica_id_in_sync_group == 0
      return replica.all_reduce("SUM", tf.where(mine, number, 0))

    results = self.run(step, args=(number,))
    return self.experimental_local_results(results)[0]


class _Extended(collective_all_reduce_strategy.CollectiveAllReduceExtended):
  def __init__(self, strategy, cluster, options, device_type, num_devices):
    self._local = device_type, num_devices
    job = coordination_config_pb2.CoordinatedJob
    context.context().configure_coordination_service(
      service_type="standalone",
      service_leader=f"/job:{next(iter(cluster.jobs))}/replica:0/task:0",
      heartbeat_timeout_in_ms=_SILENT_SECONDS * 1000,
      coordinated_jobs=[
        job(name=name, num_tasks=count) for name, count in cluster.jobs.items()
      ],
    )
    super().__init__(
      strategy, cluster_resolver=None, communication_options=options
    )

  def _initialize_local_devices(self, cluster_resolver, worker_device):
    kind, count = self._local
    devices = [f"{worker_device}/device:{kind}:{i}" for i in range(count)]
    return tuple(devices), kind


def make_strategy(device_type: str, num_devices: int) -> MultiWorkerStrategy:
  """Waits for the workers of TF_CONFIG and connects to them.

  Must come before TensorFlow's first operation.

  Raises:
    ValueError: TF_CONFIG is wrong.
    OSError: the port is taken, or a worker does not come.
  """
  cluster = cluster_lib.read_cluster()
  cluster_lib.meet(cluster)
  # A worker that dies right now would leave the others in a call that holds
  # Python's lock; this watchdog does not need it.
  faulthandler.dump_traceback_later(_CONNECT_SECONDS, exit=True)
  try:
    with _naming_lost_workers():
      strategy = MultiWorkerStrategy(cluster, device_type, num_devices)
  finally:
    faulthandler.cancel_dump_traceback_later()
  # TensorFlow's own handler for SIGTERM would let the process live on.
  if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))
  return strategy


def num_workers(strategy: tf.distribute.Strategy) -> int:
  """Processes that share the updates, 1 for all other strategies."""
  if isinstance(strategy, MultiWorkerStrategy):
    return len(strategy.cluster.addresses)
  return 1


def is_chief(strategy: tf.distribute.Strategy) -> bool:
  """Whether this process writes the files and does the talking."""
  return num_workers(strategy) == 1 or strategy.cluster.index == 0


def from_chief(strategy: tf.distribute.Strategy, number: int) -> int:
  """The chief's `number`, on all workers; each has to ask."""
  if num_workers(strategy) == 1:
    return number
  return int(strategy.from_chief(tf.constant(number, tf.int64)))


def barrier(strategy: tf.distribute.Strategy) -> None:
  """Returns when all workers have come here."""
  from_chief(strategy, 0)


class SharedFlag:
  """A flag of this process that counts when any worker has set its own.

  With one worker it is the process's own flag, and costs nothing.

  Attributes:
    value: <bool>[], a variable; the same on all workers after `share`.
  """

  def __init__(self, strategy: tf.distribute.Strategy, own: tf.Variable):
    """Takes this process's flag, `own` <bool>[]."""
    self._strategy, self._own = strategy, own
    self.value = own
    if num_workers(strategy) > 1:
      self.value = tf.Variable(False, trainable=False, name="shared_flag")

  def share(self) -> None:
    """Asks all workers; inside a tf.function, at the same step on each."""
    if self.value is self._own:
      return

    def step():
      replica = tf.distribute.get_replica_context()
      return replica.all_reduce("SUM", tf.cast(self._own, tf.int32))

    votes = self._strategy.experimental_local_results(self._strategy.run(step))
    self.value.assign(votes[0] > 0)


def naming_lost_workers(
  strategy: tf.distribute.Strategy,
) -> contextlib.AbstractContextManager:
  """Turns TensorFlow's errors about other workers into a sentence.

  They come at once when a process ends, and after a minute when a machine is
  gone without a word.

  Returns:
    A context that raises WorkerLost when another worker has ended or cannot be
    reached.
  """
  if num_workers(strategy) == 1:
    return contextlib.nullcontext()
  return _naming_lost_workers()


@contextlib.contextmanager
def _naming_lost_workers() -> Iterator[None]:
  try:
    yield
  except tf.errors.OpError as error:
    gone = (tf.errors.UnavailableError, tf.errors.DeadlineExceededError)
    if not isinstance(error, gone) and "aborted by" not in error.message:
      raise
    raise WorkerLost(
      f"a worker of this job was lost ({_reason(error)}): start all workers "
      "again with the same command; they go on from the latest checkpoint."
    ) from error


def _reason(error: tf.errors.OpError) -> str:
  """The sentence about the other worker in TensorFlow's many lines."""
  lines = [line.strip() for line in error.message.splitlines()]
  for line in lines:
    if "aborted by: " in line:
      return line.split("aborted by: ")[1].split(". ")[0].rstrip(".")
  return next((line for line in lines if line), type(error).__name__)
