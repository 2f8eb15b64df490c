"""Devices: strategies, precision, several hosts, TPUs."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submod_attrs={
    "cluster": [
      "cpu_count",
      "cpu_environment",
      "describe_machine",
      "hold_stderr",
      "leave_tpu",
      "prepare_tpu",
      "read_cluster",
      "training_environment",
    ],
    "multi_worker": [
      "SharedFlag",
      "barrier",
      "from_chief",
      "is_chief",
      "naming_lost_workers",
      "num_workers",
    ],
    "strategies": [
      "check_precision",
      "host_of",
      "iterate",
      "make_deterministic",
      "make_strategy",
      "set_precision",
      "start_compiler",
    ],
  },
)

STRATEGIES = ("one_device", "mirrored", "multi_worker", "tpu")
PRECISIONS = ("auto", "float32", "mixed_bfloat16", "mixed_float16")
