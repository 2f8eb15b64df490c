"""Trains with several processes, which compute each update together.

Each worker runs the whole program on its share of the examples. Reduced values
are equal on all workers. Other values that control the loop, such as a signal
or the choice of a checkpoint, are known to one worker only. The workers must
agree on them, or they wait for each other forever.
"""

from __future__ import annotations

import contextlib
import faulthandler
from typing import Iterator, Optional

import tensorflow as tf

# The public strategy uses only one CPU device of each worker and declares a
# worker dead after ten seconds. It has no arguments to change either.
from tensorflow.python.distribute import collective_all_reduce_strategy
from tensorflow.python.eager import context

from official_albert import machine

# Time for TensorFlow to connect the workers after all of them have started.
_CONNECT_SECONDS = 300
# A worker on a busy machine may not answer for more than ten seconds.
_SILENT_SECONDS = 60


class MultiWorkerStrategy(tf.distribute.MultiWorkerMirroredStrategy):
  """`tf.distribute.MultiWorkerMirroredStrategy` on chosen local devices.

  Attributes:
    cluster: the workers.
  """

  def __init__(
    self, cluster: machine.Cluster, device_type: str, num_devices: int
  ):
    """Connects to the other workers, which must connect at the same time."""

    class Extended(collective_all_reduce_strategy.CollectiveAllReduceExtended):
      def _initialize_local_devices(self, cluster_resolver, worker_device):
        prefix = f"{worker_device}/device:{device_type}"
        return tuple(f"{prefix}:{i}" for i in range(num_devices)), device_type

    context.context().configure_coordination_service(
      service_type="standalone",
      service_leader=f"/job:{next(iter(cluster.jobs))}/replica:0/task:0",
      cluster_register_timeout_in_ms=_CONNECT_SECONDS * 1000,
      heartbeat_timeout_in_ms=_SILENT_SECONDS * 1000,
      coordinated_jobs=[
        # TensorFlow moves this module between releases, but uses it here.
        context.coordination_config_pb2.CoordinatedJob(
          name=name, num_tasks=count
        )
        for name, count in cluster.jobs.items()
      ],
    )
    communication = tf.distribute.experimental.CommunicationImplementation
    options = tf.distribute.experimental.CommunicationOptions(
      implementation=(
        communication.RING if device_type == "CPU" else communication.AUTO
      )
    )
    # Skips the constructor of the parent, which chooses the devices.
    tf.distribute.Strategy.__init__(self, Extended(self, None, options))
    self.cluster = cluster

  @tf.function
  def from_chief(self, number: tf.Tensor) -> tf.Tensor:
    """Returns the chief's `number` <int64>[]; see the function below."""

    def step(number):
      replica = tf.distribute.get_replica_context()
      mine = replica.replica_id_in_sync_group == 0
      return replica.all_reduce("SUM", tf.where(mine, number, 0))

    results = self.run(step, args=(number,))
    return self.experimental_local_results(results)[0]


def make_strategy(device_type: str, num_devices: int) -> MultiWorkerStrategy:
  """Waits for the workers of TF_CONFIG and connects to them.

  Each worker has `num_devices` of the type "CPU" or "GPU". Call it before
  TensorFlow's first operation.

  Raises:
    ValueError: TF_CONFIG is invalid.
    OSError: the port is in use, or a worker does not answer.
  """
  cluster = machine.read_cluster()
  machine.meet(cluster)
  # If a worker dies now, the chief hangs in a call that holds Python's global
  # lock, which this watchdog does not need.
  faulthandler.dump_traceback_later(_CONNECT_SECONDS + 30, exit=True)
  try:
    return MultiWorkerStrategy(cluster, device_type, num_devices)
  except tf.errors.OpError as error:
    _raise_if_lost(error)
    raise
  finally:
    faulthandler.cancel_dump_traceback_later()


def num_workers(strategy: Optional[tf.distribute.Strategy]) -> int:
  """Returns the number of processes; 1 for other strategies.

  Raises:
    ValueError: it is TensorFlow's own strategy for several processes, which
      does not say which of them is the chief.
  """
  if isinstance(strategy, MultiWorkerStrategy):
    return len(strategy.cluster.addresses)
  if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
    raise ValueError(
      "with a tf.distribute.MultiWorkerMirroredStrategy, every worker would "
      "write the files of the run: create the strategy with "
      'official_albert.distribution.make_strategy("multi_worker").'
    )
  return 1


def is_chief(strategy: Optional[tf.distribute.Strategy]) -> bool:
  """Returns whether this process writes files and logs."""
  return num_workers(strategy) == 1 or strategy.cluster.index == 0


def from_chief(strategy: Optional[tf.distribute.Strategy], number: int) -> int:
  """Returns the chief's `number` on all workers; every worker must call it."""
  if num_workers(strategy) == 1:
    return number
  return int(strategy.from_chief(tf.constant(number, tf.int64)))


def barrier(strategy: Optional[tf.distribute.Strategy]) -> None:
  """Waits until all workers have called this function."""
  from_chief(strategy, 0)


class SharedFlag:
  """A flag that is set on all workers if any worker sets its own.

  With one worker, `value` is that worker's own flag.

  Attributes:
    value: a variable <bool>[], equal on all workers after `share`.
  """

  def __init__(self, strategy: tf.distribute.Strategy, own: tf.Variable):
    """Wraps `own`, the flag <bool>[] of this process."""
    self._strategy, self._own = strategy, own
    self.value = own
    if num_workers(strategy) > 1:
      self.value = tf.Variable(False, trainable=False, name="shared_flag")

  def share(self) -> None:
    """Updates `value`; all workers must call it at the same step of a graph."""
    if self.value is self._own:
      return

    def step():
      replica = tf.distribute.get_replica_context()
      return replica.all_reduce("SUM", tf.cast(self._own, tf.int32))

    votes = self._strategy.experimental_local_results(self._strategy.run(step))
    self.value.assign(votes[0] > 0)


@contextlib.contextmanager
def naming_lost_workers(strategy: tf.distribute.Strategy) -> Iterator[None]:
  """Raises ConnectionError if another worker is lost in the body.

  TensorFlow detects an ended process immediately, and a machine that does not
  answer after a minute.
  """
  try:
    yield
  except tf.errors.OpError as error:
    if num_workers(strategy) > 1:
      _raise_if_lost(error)
    raise


def _raise_if_lost(error: tf.errors.OpError) -> None:
  gone = (tf.errors.UnavailableError, tf.errors.DeadlineExceededError)
  signs = ("aborted by", "Barrier failed")
  if isinstance(error, gone) or any(x in error.message for x in signs):
    # Only the sentence about the other worker.
    reason = error.message.partition("aborted by: ")[2] or error.message
    reason = reason.strip().splitlines()[0].split(". ")[0].rstrip(".")
    raise ConnectionError(
      f"a worker of this job was lost ({reason}): start all workers again with "
      "the same command; they resume from the latest checkpoint."
    ) from error
