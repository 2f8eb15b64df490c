"""A stand-in for cuDNN's attention, which needs a GPU."""

from __future__ import annotations

from typing import Any, Iterator

import pytest
import tensorflow as tf

from official_albert.modeling import cudnn_attention, fused_ops


def call(
  target: str, operands: Any, results: Any, configuration: Any
) -> list[tf.Tensor]:
  """Computes what cuDNN's documentation says, of the same arguments.

  Probabilities and their gradients are rounded before they are multiplied. Of
  the configuration, it reads the scale only: cudnn_attention_test.py compares
  all of it with that of JAX.
  """
  settings = configuration["cudnn_fmha_backend_config"]
  scale, dtype = settings["fmha_scale"], operands[0].dtype
  q, k, v, *others, q_lengths, lengths = operands
  assert q_lengths.dtype == lengths.dtype == tf.int32
  token = tf.sequence_mask(lengths, k.shape[1])[:, None, None]
  is_query = tf.sequence_mask(q_lengths, q.shape[1])[:, None, :, None]
  scores = tf.cast(tf.einsum("bsnd,btnd->bnst", q, k), tf.float32) * scale
  scores = tf.where(token & is_query, scores, -float("inf"))
  if not target.endswith("Backward"):
    sums = tf.reduce_logsumexp(scores, axis=-1)
    probs = tf.cast(tf.exp(scores - sums[..., None]), dtype)
    found = [tf.einsum("bnst,btnd->bnsd", probs, v), sums]
  else:
    sums, dy, context = others
    probs = tf.exp(scores - sums[..., None])
    dprobs = tf.cast(tf.einsum("bsnd,btnd->bnst", dy, v), tf.float32)
    wide = [tf.cast(x, tf.float32) for x in (dy, context)]
    total = tf.einsum("bsnd,bsnd->bns", *wide)[..., None]
    dscores = tf.cast(scale * probs * (dprobs - total), dtype)
    found = [
      tf.einsum("bnst,btnd->bnsd", dscores, k),
      tf.einsum("bnst,bsnd->bntd", dscores, q),
      tf.einsum("bnst,bsnd->bntd", tf.cast(probs, dtype), dy),
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
