"""Finding a TPU and starting it, before TensorFlow does anything else.

Not run on a TPU by us: what is tested is that everything short of one fails
soon and says why. tools/run_pretraining_test.py and train_step_test.py hold
what the training step must be like for a TPU (compiled whole, static shapes).
"""

from __future__ import annotations

import socket

import tensorflow as tf

from official_albert.distribution import cluster

LOCAL = "local"
_GRPC = "grpc://"
# For each of Google Cloud's services that a TPU's name is looked up with.
_LOOK_UP_SECONDS = 10


def make_strategy(address: str) -> tf.distribute.TPUStrategy:
  """Connects to a TPU and starts it.

  Must come before TensorFlow's first operation: starting a TPU forgets what
  was computed before.

  Args:
    address: "local" for the chips of this TPU VM, the name of a TPU of this
      Google Cloud project (a slice of several machines, seen from one of them),
      or grpc://HOST:PORT of a TPU's TensorFlow server.

  Raises:
    OSError: there is no such TPU, it does not answer, or this TensorFlow has
      no TPU runtime.
    ValueError: `address` is malformed.
  """
  resolver = _resolve(address)
  for server in _servers(resolver):
    # TensorFlow would wait for ever, or abort if another program answers.
    if not cluster.is_grpc(cluster.greeting(server)):
      raise OSError(
        f"no TensorFlow server answers at {server} for the TPU {address}: "
        "check the address, that the TPU is running, and that this machine "
        "may reach it."
      )
  try:
    tf.config.experimental_connect_to_cluster(resolver)
    tf.tpu.experimental.initialize_tpu_system(resolver)
  except tf.errors.OpError as error:
    if address == LOCAL and "No OpKernel was registered" in error.message:
      raise OSError(
        f"this TensorFlow ({tf.__version__}) has no TPU runtime, as no wheel "
        "from PyPI has: install the build for TPU VMs; the README's section "
        '"TPU" says how.'
      ) from error
    reason = error.message.split(" [Op:")[0].splitlines()[0]
    raise OSError(
      f"the TPU {address} cannot be started ({reason}): see that it is a TPU "
      f"with TensorFlow {tf.__version__} and that no other program holds it."
    ) from error
  return tf.distribute.TPUStrategy(resolver)


def _resolve(
  address: str,
) -> tf.distribute.cluster_resolver.TPUClusterResolver:
  if address.startswith(_GRPC):
    cluster.host_and_port(address[len(_GRPC) :])
  before = socket.getdefaulttimeout()
  socket.setdefaulttimeout(_LOOK_UP_SECONDS)
  try:
    return tf.distribute.cluster_resolver.TPUClusterResolver(tpu=address)
  except (OSError, ValueError, RuntimeError) as error:
    raise OSError(
      f"no TPU called {address!r} was found ({error}): names are looked up "
      "with Google Cloud, from a machine of the TPU's own project and zone; "
      "elsewhere give local or grpc://HOST:PORT."
    ) from error
  finally:
    socket.setdefaulttimeout(before)


def _servers(resolver) -> list[str]:
  """host:port of each machine of a TPU that is not in this one."""
  spec = resolver.cluster_spec().as_dict()
  return [a for name, job in spec.items() if name != "coordinator" for a in job]
