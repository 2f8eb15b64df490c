"""Low-rank differences between the applications of a shared block (LoRA).

Each application l of a block multiplies by W + A_l B_l, where the layers share
the kernel W. B starts as zeros, so a new model with adapters computes what the
model without them does, to the bit.

LoRA multiplies A B by a constant alpha / rank, and adapts some of the kernels.
Here the constant is 1, and all kernels of a block have adapters.

The products are x W + (x A_l) B_l. W + A_l B_l would need the memory of a
kernel, and of its gradient in float32, for each application.

Source: arXiv 2106.09685; for the layers of a shared block, arXiv 2410.20672.
"""

from __future__ import annotations

from typing import Optional

import tensorflow as tf

from official_albert.modeling import layers

# A and B, or none.
Pair = tuple[tf.Tensor, ...]

# The kernels of a block: query, key and value are one.
_KERNELS = ("attention", "attention_output", "ffn", "ffn_output")


@tf.keras.utils.register_keras_serializable(package="official_albert")
class Adapters(layers.ConfiguredLayer):
  """The variables of all applied blocks; R is the rank, L their number.

  KERNEL_a <float>[L, inputs, R] starts as the other kernels do, and KERNEL_b
  <float>[L, R, outputs] as zeros.
  """

  def build(self, input_shape: Optional[tf.TensorShape]) -> None:
    c = self.config
    h, i = c.hidden_size, c.intermediate_size
    sizes = zip(_KERNELS, (h, h, h, i), (3 * h, h, i, h))
    for kernel, inputs, outputs in sizes:
      for name, matrix, initializer in (
        (f"{kernel}_a", [inputs, c.adapter_rank], layers.normal(c)),
        (f"{kernel}_b", [c.adapter_rank, outputs], "zeros"),
      ):
        shape = [c.num_blocks, *matrix]
        setattr(self, name, self.add_weight(name, shape, None, initializer))
    super().build(input_shape)

  def of_blocks(self) -> list[tuple[Pair, Pair]]:
    """Returns A and B of both kernels of the attention, then of the FFN.

    A list element is for one application; tensors have the compute dtype.
    """
    stacks = [
      tf.unstack(tf.cast(getattr(self, f"{kernel}_{x}"), self.compute_dtype))
      for kernel in _KERNELS
      for x in "ab"
    ]
    return [(block[:4], block[4:]) for block in zip(*stacks)]


def project(x: tf.Tensor, kernel: tf.Tensor, pair: Pair) -> tf.Tensor:
  """Maps <float>[..., I] to <float>[..., O]: x W, plus (x A) B with a pair."""
  y = layers.project(x, kernel)
  if pair:
    a, b = pair
    y += layers.project(layers.project(x, a), b)
  return y
