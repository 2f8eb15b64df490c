"""Where the computation runs, and in which precision.

One device for now: the first GPU when there is one, else the CPU.
"""

from __future__ import annotations

import tensorflow as tf

STRATEGIES = ("one_device",)
PRECISIONS = ("auto", "float32", "mixed_bfloat16")

# Instructions that multiply bfloat16 matrices, as /proc/cpuinfo calls them.
_BFLOAT16_FLAGS = {"avx512_bf16", "amx_bf16"}


def make_strategy(name: str = "one_device") -> tf.distribute.Strategy:
  """The strategy called `name`, one of `STRATEGIES`.

  Raises:
    ValueError: no such strategy.
  """
  if name not in STRATEGIES:
    raise ValueError(
      f"unknown distribution {name!r}; choose one of {', '.join(STRATEGIES)}."
    )
  gpus = tf.config.list_logical_devices("GPU")
  return tf.distribute.OneDeviceStrategy("/gpu:0" if gpus else "/cpu:0")


def multiplies_bfloat16(cpuinfo: str = "/proc/cpuinfo") -> bool:
  """Whether the device at hand multiplies bfloat16 faster than float32."""
  gpus = tf.config.list_physical_devices("GPU")
  if gpus:  # From NVIDIA's Ampere on.
    details = [tf.config.experimental.get_device_details(gpu) for gpu in gpus]
    return all(
      detail.get("compute_capability", (0, 0)) >= (8, 0) for detail in details
    )
  try:
    with open(cpuinfo, encoding="utf-8") as file:
      return any(
        _BFLOAT16_FLAGS & set(line.split())
        for line in file
        if line.startswith("flags")
      )
  except OSError:
    return False


def set_precision(name: str) -> str:
  """Sets the dtype that layers compute in; variables stay float32.

  Under "mixed_bfloat16" matrix products run in bfloat16, LayerNorm, softmax
  and losses in float32. "auto" takes it where the device has instructions for
  it, else "float32".

  Returns:
    The precision that was set.

  Raises:
    ValueError: no such precision.
  """
  if name not in PRECISIONS:
    raise ValueError(
      f"unknown precision {name!r}; choose one of {', '.join(PRECISIONS)}."
    )
  if name == "auto":
    name = "mixed_bfloat16" if multiplies_bfloat16() else "float32"
  tf.keras.mixed_precision.set_global_policy(name)
  return name


def make_deterministic() -> None:
  """Makes TensorFlow pick kernels that give the same bits every time.

  Must come before the first operation that it should hold for. TensorFlow's
  CPU kernels give the same bits anyway (tools/run_pretraining_test.py compares
  a killed run with an uninterrupted one), and its deterministic mode replaces
  the fused cross entropy by a slower chain, so only GPUs are told.
  """
  if tf.config.list_logical_devices("GPU"):
    tf.config.experimental.enable_op_determinism()
