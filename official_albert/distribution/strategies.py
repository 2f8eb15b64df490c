"""Selects the devices and the precision of a computation.

On CPUs, `mirrored` has a replica on each core. Small models gain most from it,
because their many short operations do not parallelize well over cores.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any, Callable, Iterator

import tensorflow as tf

from official_albert import machine
from official_albert.distribution import multi_worker
from official_albert.settings import PRECISIONS, STRATEGIES, check_choice

_GRPC = "grpc://"


def make_strategy(
  name: str = "one_device", num_devices: int = 0, tpu_address: str = ""
) -> tf.distribute.Strategy:
  """Returns the strategy called `name`, one of `STRATEGIES`.

  `one_device` uses the first GPU, or the CPU without GPUs. `mirrored` has a
  replica on each GPU or, without GPUs, on logical CPU devices. `multi_worker`
  is `mirrored` in each of several processes, which TF_CONFIG lists and which
  call this function at the same time. `tpu` has a replica on each core of a
  TPU; see `make_tpu_strategy`. Except for `one_device`, call it before
  TensorFlow's first operation.

  `num_devices` are those of `mirrored`, or of each worker of `multi_worker`; 0
  uses all GPUs, or one logical device per CPU core.

  Raises:
    ValueError: the devices do not exist, or the strategy does not use a given
      setting.
    OSError: another worker or the TPU cannot be reached.
  """
  check_choice("distribution", name, STRATEGIES)
  several = name in ("mirrored", "multi_worker")
  if num_devices < 0 or (num_devices > 1 and not several):
    raise ValueError(
      f"num_devices {num_devices} cannot be used with the distribution {name}: "
      "it is the number of devices of mirrored or of each multi_worker, 0 "
      "for all."
    )
  if bool(tpu_address) != (name == "tpu"):
    raise ValueError(
      f"tpu {tpu_address!r} cannot be used with the distribution {name}: the "
      "distribution tpu, and no other, needs local, a TPU's name or "
      "grpc://HOST:PORT."
    )
  if name == "tpu":
    return make_tpu_strategy(tpu_address)
  gpus = tf.config.list_physical_devices("GPU")
  if name == "one_device":
    return tf.distribute.OneDeviceStrategy("/gpu:0" if gpus else "/cpu:0")
  if num_devices > len(gpus) > 0:
    raise ValueError(
      f"{num_devices} devices asked for, but there are {len(gpus)} GPUs."
    )
  count = num_devices or len(gpus) or machine.cpu_count()
  if not gpus:
    _make_logical_cpus(count)
  kind = "gpu" if gpus else "cpu"
  if name == "multi_worker":
    return multi_worker.make_strategy(kind.upper(), count)
  return tf.distribute.MirroredStrategy([f"/{kind}:{i}" for i in range(count)])


def _make_logical_cpus(count: int) -> None:
  """Splits the CPU into logical devices that share its cores."""
  cpu = tf.config.list_physical_devices("CPU")[0]
  devices = [tf.config.LogicalDeviceConfiguration()] * count
  try:
    tf.config.set_logical_device_configuration(cpu, devices)
    threads = max(1, machine.cpu_count() // count)
    tf.config.threading.set_intra_op_parallelism_threads(threads)
  except RuntimeError as error:
    if len(tf.config.list_logical_devices("CPU")) != count:
      raise ValueError(
        f"{count} logical CPU devices must be created before TensorFlow's "
        "first operation."
      ) from error


def make_tpu_strategy(address: str) -> tf.distribute.TPUStrategy:
  """Connects to a TPU and initializes it.

  Call it before TensorFlow's first operation, because initialization discards
  all tensors. This code has not run on a TPU yet. Tests check that it fails
  early with a reason where there is no TPU. The training loop is traced under
  TPUStrategy and compiled by the TPU's compiler (tools/tpu_compile).

  Args:
    address: "local" for the chips of this TPU VM; the name of a TPU in this
      Google Cloud project, such as a slice of several machines that includes
      this one; or grpc://HOST:PORT of a TPU's TensorFlow server.

  Raises:
    OSError: the TPU does not answer, or this TensorFlow has no TPU runtime.
    ValueError: `address` is malformed.
  """
  if address.startswith(_GRPC):
    machine.host_and_port(address.removeprefix(_GRPC))
  try:
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=address)
    jobs = resolver.cluster_spec().as_dict()
  except (OSError, ValueError, RuntimeError) as error:
    raise OSError(
      f"no TPU called {address!r} is ready ({error}): names are looked up "
      "with Google Cloud, from a machine of the TPU's own project and zone; "
      "elsewhere use local or grpc://HOST:PORT."
    ) from error
  for job, servers in jobs.items():
    for server in servers if job != "coordinator" else ():
      if not machine.listens(server):  # TensorFlow would wait forever.
        raise OSError(
          f"no TensorFlow server answers at {server} for the TPU {address}: "
          "check the address, that the TPU is running, and that this machine "
          "may reach it."
        )
  try:
    tf.config.experimental_connect_to_cluster(resolver)
    tf.tpu.experimental.initialize_tpu_system(resolver)
  except tf.errors.OpError as error:
    # From TensorFlow 2.16 on, the reason comes after the place.
    reason = error.message.rpartition("<stack traces unavailable>")[2].strip()
    reason = reason.split(" [Op:")[0].splitlines()[0].strip()
    raise OSError(
      f"the TPU {address} cannot be started ({reason}): see that no other "
      f"program holds it, and that this TensorFlow ({tf.__version__}) is that "
      "of the TPU, as docs/tpu.md describes; that of PyPI has no TPU runtime."
    ) from error
  return tf.distribute.TPUStrategy(resolver)


def host_of(strategy: tf.distribute.Strategy) -> str:
  """Returns the CPU of the first device's host, which runs the loop."""
  device = tf.DeviceSpec.from_string(strategy.extended.worker_devices[0])
  return device.replace(device_type="CPU", device_index=0).to_string()


def iterate(
  strategy: tf.distribute.Strategy,
  make_dataset: Callable[[tf.distribute.InputContext], tf.data.Dataset],
) -> Iterator[Any]:
  """Returns an iterator over distributed batches of `make_dataset`.

  A single CPU or GPU iterates over the dataset directly, as in Keras without a
  strategy. A distributed iterator copies batches and adds an autotuner for each
  device, which `untuned` cannot switch off.
  """
  devices = strategy.extended.worker_devices
  if strategy.num_replicas_in_sync == 1 and "TPU:" not in devices[0]:
    return iter(make_dataset(tf.distribute.InputContext()))
  return iter(strategy.distribute_datasets_from_function(make_dataset))


def untuned(dataset: tf.data.Dataset) -> tf.data.Dataset:
  """Returns a dataset without autotuning, whose iterators end at once.

  Otherwise, deleting an iterator, as at the end of a program, may take up to a
  minute. TensorFlow waits for the thread of the autotuner, which sleeps ever
  longer, and wakes it before it marks the iterator as cancelled. So the thread
  may go to sleep again (`CancellationManager::StartCancel`,
  `Model::OptimizeLoop`).
  """
  options = tf.data.Options()
  options.autotune.enabled = False
  return dataset.with_options(options)


def multiplies_bfloat16(cpuinfo: str = "/proc/cpuinfo") -> bool:
  """Returns whether this device is faster in bfloat16 than in float32."""
  if tf.config.list_logical_devices("TPU"):
    return True
  gpus = tf.config.list_physical_devices("GPU")
  if gpus:  # NVIDIA Ampere and newer.
    details = [tf.config.experimental.get_device_details(gpu) for gpu in gpus]
    return all(
      detail.get("compute_capability", (0, 0)) >= (8, 0) for detail in details
    )
  try:
    with open(cpuinfo, encoding="utf-8") as file:
      flags = [line for line in file if line.startswith("flags")]
  except OSError:
    return False
  return any(
    "amx_bf16" in line
    # Intel CPUs with AVX512-FP16 have AMX too. Where a virtual machine hides
    # it, products in bfloat16 are half as fast as in float32.
    or ("avx512_bf16" in line and "avx512_fp16" not in line)
    for line in map(str.split, flags)
  )


def set_precision(name: str) -> str:
  """Sets the dtype that the layers of a program compute in, for the process.

  Variables stay float32. Libraries give a `dtype` to a model instead.

  With "mixed_bfloat16", matrix products are computed in bfloat16; LayerNorm,
  softmax and losses in float32. "auto" is "mixed_bfloat16" on devices with
  instructions for it, else "float32". "mixed_float16" is for GPUs before
  NVIDIA's Ampere and needs a loss scale; without a GPU, a warning says that it
  is slow.

  Returns:
    The precision that was set.
  """
  check_choice("precision", name, PRECISIONS)
  if name == "auto":
    name = "mixed_bfloat16" if multiplies_bfloat16() else "float32"
  if name == "mixed_float16" and not tf.config.list_logical_devices("GPU"):
    warnings.warn(
      "mixed_float16 is for GPUs, and this process has none: on a CPU, a step "
      "can take hundreds of times as long as in float32. Use --precision=auto, "
      "which chooses float32 or mixed_bfloat16, whichever is faster here.",
      stacklevel=2,
    )
  tf.keras.mixed_precision.set_global_policy(name)
  return name


def make_deterministic() -> None:
  """Makes TensorFlow use deterministic kernels on GPUs.

  Call it before the first operation. CPU kernels are deterministic already
  (tools/run_pretraining_test.py compares a killed run with an uninterrupted
  one), and the deterministic mode forbids or slows down some of them.
  """
  if tf.config.list_logical_devices("GPU"):
    tf.config.experimental.enable_op_determinism()


@functools.cache
def start_compiler() -> None:
  """Compiles a first function and hides the notice that XLA prints to stderr.

  Call it after `make_strategy`. Does nothing on TPUs.

  Raises:
    OSError: XLA cannot compile for this device.
  """
  if tf.config.list_logical_devices("TPU"):
    return
  zero = tf.zeros([])  # Starts TensorFlow, whose messages are not hidden.
  first = tf.function(tf.tanh, jit_compile=True)
  try:
    with machine.hold_stderr():
      first(zero)
  except tf.errors.OpError as error:
    raise OSError(
      f"XLA cannot compile for this device ({error.message}): a GPU needs "
      "the CUDA toolkit's libdevice and ptxas; install it, or set its folder "
      "with XLA_FLAGS=--xla_gpu_cuda_data_dir=DIR; tensorflow-tpu compiles for "
      "TPUs only; --nocompile_chains trains without XLA, more slowly."
    ) from error
