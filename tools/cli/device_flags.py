"""Flags of the devices of a program, and the precision.

A program that computes with a model imports this module and calls
`start_devices`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from absl import flags

from official_albert import files, machine, settings

if TYPE_CHECKING:
  import tensorflow as tf

PRECISION = flags.DEFINE_enum(
  "precision", "float32", settings.PRECISIONS, "Dtype of matrix products."
)
DISTRIBUTION = flags.DEFINE_enum(
  "distribution",
  "one_device",
  settings.STRATEGIES,
  "Devices to use. Start multi_worker once on each machine, with TF_CONFIG in "
  "the environment and a --model_dir that all machines share.",
)
_NUM_DEVICES = flags.DEFINE_integer(
  "num_devices",
  0,
  "Devices of --distribution=mirrored, or of each worker of multi_worker; 0 "
  "uses all GPUs, or one device for each CPU core.",
)
_TPU = flags.DEFINE_string(
  "tpu",
  "",
  "The TPU of --distribution=tpu: local, its name, or grpc://HOST:PORT.",
)
# Flags for the records that a TPU's hosts read and the checkpoints they write.
_TPU_PATHS = "input_dir eval_input_dir model_dir output_dir cache_dir".split()


@flags.validator(_TPU)
def _prepare_tpu(address: str) -> bool:
  """Prepares the environment while flags are parsed, before TensorFlow loads.

  It does so too when a recipe sets the flag.
  """
  if address:
    machine.prepare_tpu(address)
  return True


def _check_paths_of_tpu() -> None:
  """Refuses local paths for a TPU that is not this machine's own.

  Its hosts read records and write checkpoints themselves.
  """
  for name in _TPU_PATHS:
    value = flags.FLAGS[name].value if name in flags.FLAGS else ""
    for path in value.split(",") if value else ():
      if not files.is_remote(path):
        raise ValueError(
          f"--{name} {path} is on this machine, where the hosts of the TPU "
          f"{_TPU.value} cannot read or write: use a gs:// address; "
          "--tpu=local needs none, for the chips of this machine alone."
        )


def start_devices() -> tuple[tf.distribute.Strategy, str]:
  """Makes the strategy and sets the precision; returns both."""
  from official_albert import distribution  # Loads TensorFlow.

  if DISTRIBUTION.value == "multi_worker":
    job = machine.read_cluster()
    if job.index == 0:
      print(f"waiting for {len(job.addresses) - 1} more workers", flush=True)
  if _TPU.value not in ("", "local"):
    _check_paths_of_tpu()
  strategy = distribution.make_strategy(
    DISTRIBUTION.value, _NUM_DEVICES.value, _TPU.value
  )
  distribution.make_deterministic()
  return strategy, distribution.set_precision(PRECISION.value)
