"""Where the computation runs, and in which precision.

One device for now: the first GPU when there is one, else the CPU.
"""

from __future__ import annotations

import tensorflow as tf

STRATEGIES = ("one_device",)
PRECISIONS = ("float32", "mixed_bfloat16")


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


def set_precision(name: str) -> None:
  """Sets the dtype that layers compute in; variables stay float32.

  Under "mixed_bfloat16" matrix products run in bfloat16, LayerNorm, softmax
  and losses in float32.

  Raises:
    ValueError: no such precision.
  """
  if name not in PRECISIONS:
    raise ValueError(
      f"unknown precision {name!r}; choose one of {', '.join(PRECISIONS)}."
    )
  tf.keras.mixed_precision.set_global_policy(name)


def make_deterministic() -> None:
  """Makes TensorFlow pick kernels that give the same bits every time.

  Must come before the first operation that it should hold for.
  """
  tf.config.experimental.enable_op_determinism()
