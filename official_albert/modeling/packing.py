"""Rows of tokens without padding, which the blocks of an encoder compute.

Products, activations and norms take each position on its own. So the encoder
gathers the tokens of a batch into one matrix, and only attention puts them back
into sequences.

Letters: B batch, S sequence, C computed rows, H hidden.
"""

from __future__ import annotations

import contextvars
from typing import Any, NamedTuple, Optional

import tensorflow as tf

from official_albert.modeling import fused_ops

_PACKS = contextvars.ContextVar("packs", default=False)
# The number of computed rows is a multiple of B * S / 32, because a CPU or GPU
# compiles the element-wise chains for each number.
_PARTS = 32


def without_padding(active: bool = True) -> Any:
  """Lets encoders leave out padding at the end of sequences in this context.

  The outputs of tokens are the same but for rounding. TPUs, and XLA where it
  compiles a whole step, need static shapes, so there padding is computed.

  Deviation: the outputs of padding after the last token are 0; the original's
  are those of a token of padding, as here in a sequence without tokens.
  """
  return fused_ops.within(_PACKS, active)


class Packing(NamedTuple):
  """Which positions of a batch are computed, and where."""

  positions: tf.Tensor  # <int64>[C], each in [0, B * S), ascending.
  rows: tf.Tensor  # <int64>[B, S], in [0, C); any for what is not computed.
  is_token: tf.Tensor  # <bool>[B, S], also before the last token.

  @classmethod
  def of(cls, mask: tf.Tensor, parts: Optional[int] = None) -> Packing:
    """Packs up to the last token of each sequence of a mask <int32>[B, S].

    A sequence without tokens is computed as a whole. With `parts`, C is a
    multiple of B * S / parts.
    """
    # On the host, where the size of a result has to be known: a GPU would be
    # waited for.
    with tf.device("CPU:0"):
      is_token = tf.cumsum(mask, axis=1, reverse=True) > 0
      is_token |= ~tf.reduce_any(is_token, axis=1, keepdims=True)
      computed = tf.reshape(is_token, [-1])  # [B * S]
      if parts:
        tokens = tf.reduce_sum(tf.cast(computed, tf.int32))
        part = -(-tf.size(computed) // parts)
        more = -(-tokens // part) * part - tokens
        computed |= tf.cumsum(tf.cast(~computed, tf.int32)) <= more
      positions = tf.where(computed)[:, 0]
      # As int32, each block would copy them to a GPU.
      rows = tf.cumsum(tf.cast(computed, tf.int64)) - 1
    return cls(positions, tf.reshape(rows, tf.shape(mask)), is_token)

  def pack(self, x: tf.Tensor) -> tf.Tensor:
    """Returns the computed rows <float>[C, H] of <float>[B, S, H]."""

    @tf.custom_gradient
    def gather(x):
      return self._pack(x), lambda dy: self._zeroed(tf.gather(dy, self.rows))

    return gather(x)

  def unpack(self, x: tf.Tensor) -> tf.Tensor:
    """Returns <float>[C, H] as <float>[B, S, H], with any row as padding.

    No gradient may come from padding.
    """

    @tf.custom_gradient
    def gather(x):
      return tf.gather(x, self.rows), self._pack

    return gather(x)

  def unpack_or_zero(self, x: tf.Tensor) -> tf.Tensor:
    """Returns <float>[C, H] as <float>[B, S, H], with zeros as padding."""
    return self._zeroed(self.unpack(x))

  def _pack(self, x):
    # The gradient of a gather would add rows one by one.
    return tf.gather(tf.reshape(x, [-1, x.shape[-1]]), self.positions)

  def _zeroed(self, x):
    return tf.where(self.is_token[..., None], x, tf.zeros([], x.dtype))


def of_batch(mask: tf.Tensor) -> Optional[Packing]:
  """Returns the packing of a mask <int32>[B, S]; None computes the padding."""
  is_static = fused_ops.on_tpu() or fused_ops.compiled_as_a_whole()
  return Packing.of(mask, _PARTS) if _PACKS.get() and not is_static else None
