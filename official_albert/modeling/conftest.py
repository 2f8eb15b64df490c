"""A stand-in for cuDNN's attention, which needs a GPU."""

from __future__ import annotations

from typing import Any, Iterator

import pytest
import tensorflow as tf

from official_albert.modeling import cudnn_attention, fused_ops


def product(a: Any, b: Any, numbers: Any) -> tf.Tensor:
  """Multiplies as StableHLO's dot_general: batch, free axes of a, then of b."""
  (left,), (right,) = (
    [int(x) for x in numbers[f"{side}_contracting_dimensions"]]
    for side in ("lhs", "rhs")
  )
  batch = [
    [int(x) for x in numbers[f"{side}_batch_dimensions"]]
    for side in ("lhs", "rhs")
  ]
  (free_a,) = {*range(4)} - {left, *batch[0]}
  (free_b,) = {*range(4)} - {right, *batch[1]}
  a = tf.transpose(a, [*batch[0], free_a, left])
  return tf.matmul(a, tf.transpose(b, [*batch[1], right, free_b]))


def call(
  target: str, operands: Any, results: Any, configuration: Any
) -> list[tf.Tensor]:
  """Computes what cuDNN's documentation says, of the same arguments.

  Probabilities and their gradients are rounded before they are multiplied.
  """
  settings = configuration["cudnn_fmha_backend_config"]
  scale, dtype = settings["fmha_scale"], operands[0].dtype
  assert settings["mask_type"] == "PADDING"
  assert operands[-2].dtype == operands[-1].dtype == tf.int32

  def multiplied(name, a, b):
    numbers = settings[f"{name}_dot_dimension_numbers"]
    return product(a, b, numbers)

  def is_token(lengths, positions):
    return tf.sequence_mask(lengths, positions)

  q, k, v, *others, q_lengths, lengths = operands
  token = is_token(lengths, k.shape[1])[:, None, None]
  is_query = is_token(q_lengths, q.shape[1])[:, None, :, None]
  forward = not target.endswith("Backward")
  if forward:
    scores = tf.cast(multiplied("bmm1", q, k), tf.float32) * scale
    scores = tf.where(token, scores, -float("inf"))
    sums = tf.reduce_logsumexp(scores, axis=-1)
    probs = tf.cast(tf.exp(scores - sums[..., None]), dtype)
    context = multiplied("bmm2", probs, v)
    found = [tf.where(is_query, context, tf.zeros_like(context)), sums]
  else:
    sums, dy, context = others
    # The products of the forward pass, which this configuration lacks.
    scores = tf.einsum("bsnd,btnd->bnst", q, k)
    scores = tf.cast(scores, tf.float32) * scale
    probs = tf.where(token & is_query, tf.exp(scores - sums[..., None]), 0.0)
    dprobs = tf.cast(multiplied("bmm2_grad_gemm2", dy, v), tf.float32)
    wide = [tf.cast(x, tf.float32) for x in (dy, context)]
    total = tf.einsum("bsnd,bsnd->bns", *wide)[..., None]
    dscores = tf.cast(scale * probs * (dprobs - total), dtype)
    found = [
      multiplied("bmm1_grad_gemm2", dscores, k),
      multiplied("bmm1_grad_gemm1", dscores, q),
      multiplied("bmm2_grad_gemm1", tf.cast(probs, dtype), dy),
    ]
  assert [(x.dtype, x.shape.as_list()) for x in found] == [*results]
  return found


@pytest.fixture
def cudnn(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
  """Replaces cuDNN's calls; the fixture is the list of their targets."""
  targets = []

  def counting(target, *arguments):
    targets.append(target)
    return call(target, *arguments)

  monkeypatch.setattr(cudnn_attention, "_custom_call", counting)
  monkeypatch.setattr(cudnn_attention, "missing", lambda *unused: "")
  fused_ops._compiled.cache_clear()
  yield targets
  fused_ops._compiled.cache_clear()
