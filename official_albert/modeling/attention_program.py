"""Attention between its products as one program of XLA for each pass.

Single operations write the scores [B, N, S, T] to memory several times. Here
XLA compiles each pass as a whole, or cuDNN computes it.

Letters: B batch, S query position, T key position, N heads, D head size.
"""

from __future__ import annotations

import contextvars
import warnings
from typing import Any, Sequence

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from official_albert.modeling import cudnn_attention, fused_ops
from official_albert.train_config import TrainConfig

_ATTENTION = contextvars.ContextVar("attention", default="plain")


def attention_as(kind: str) -> Any:
  """Computes attention so in this context or decorated function.

  `kind` is one of `train_config.ATTENTIONS`. Values and gradients are the same
  but for rounding.
  """
  return fused_ops.within(_ATTENTION, kind)


def computed_as(config: TrainConfig) -> Any:
  """Computes as the settings say in this context or decorated function.

  Decorate what replicas run, because their threads do not inherit the context.
  """
  if not config.compile_chains:
    return fused_ops.without_compilation()
  return attention_as(config.attention)


def attention_is_one_program() -> bool:
  """Returns whether to call `attention`; see `attention_as`."""
  return _ATTENTION.get() != "plain" and fused_ops.uses_xla(True)


def _queries_keys_values(products, biases, heads):
  """Adds biases; returns <float>[B, S, N, D], then [B, T, N, D] twice."""
  hidden_size = sum(x.shape[-1] for x in products) // 3
  parts = []
  for x, bias in zip(products, biases):
    y = tf.cast(fused_ops.wide_sum(x, bias), x.dtype)
    count = x.shape[-1] // hidden_size
    sizes = [*tf.unstack(tf.shape(x)[:2]), count, heads, hidden_size // heads]
    parts += tf.unstack(tf.reshape(y, sizes), axis=2)
  return parts


def _with_heads_first(x):
  return tf.transpose(x, [0, 2, 1, 3])


def _as_products(gradients, products):
  """Joins <float>[B, S, N, D] of query, key and value as `products` are."""
  size = sum(x.shape[-1] for x in products) // 3
  # With -1, batches of several lengths would lose the static size.
  flat = [
    tf.reshape(x, [*tf.unstack(tf.shape(x)[:2]), size]) for x in gradients
  ]
  if len(products) == 1:
    return [tf.concat(flat, axis=-1)]
  return [flat[0], tf.concat(flat[1:], axis=-1)]


def _probs(q, k, mask):
  scores = tf.matmul(q, k, transpose_b=True)  # [B, N, S, T]
  return fused_ops.masked_softmax(scores, mask, q.shape[-1] ** -0.5)


def _attention(products, biases, mask, heads):
  parts = _queries_keys_values(products, biases, heads)
  q, k, v = map(_with_heads_first, parts)
  context = tf.matmul(_probs(q, k, mask), v)  # [B, N, S, D]
  return [fused_ops.merge_heads(context)]  # [B, S, N * D]


def _attention_gradient(products, biases, mask, heads, dy, *unused):
  # Without the barrier, XLA would keep the probabilities of the forward pass,
  # if it compiles both together.
  *products, dy = gen_xla_ops.xla_optimization_barrier([*products, dy])
  parts = _queries_keys_values(products, biases, heads)
  dy = tf.reshape(dy, tf.shape(parts[0]))
  q, k, v, dy = map(_with_heads_first, [*parts, dy])
  probs, dprobs = _probs(q, k, mask), tf.matmul(dy, v, transpose_b=True)
  dscores = fused_ops.attention_probs_gradient(
    probs, dprobs, q.shape[-1] ** -0.5
  )
  dq = tf.matmul(dscores, k)
  dk = tf.matmul(dscores, q, transpose_a=True)
  dv = tf.matmul(probs, dy, transpose_a=True)
  return _as_products(map(_with_heads_first, (dq, dk, dv)), products)


def _lengths(mask):
  # cuDNN's softmax of no keys is no number. Such rows count for nothing.
  lengths = tf.reduce_sum(tf.cast(mask, tf.int32), axis=-1)
  return tf.maximum(lengths, 1)


def _cudnn_attention(products, biases, mask, heads):
  q, k, v = _queries_keys_values(products, biases, heads)
  context, sums = cudnn_attention.forward(q, k, v, _lengths(mask))
  batch, length = tf.unstack(tf.shape(q)[:2])
  return [tf.reshape(context, [batch, length, q.shape[2] * q.shape[3]]), sums]


def _cudnn_attention_gradient(products, biases, mask, heads, dy, context, sums):
  q, k, v = _queries_keys_values(products, biases, heads)
  context, dy = (tf.reshape(x, tf.shape(q)) for x in (context, dy))
  gradients = cudnn_attention.backward(
    *(q, k, v, _lengths(mask), context, sums, dy)
  )
  return _as_products(gradients, products)


def attention(
  products: Sequence[tf.Tensor],
  biases: Sequence[tf.Tensor],
  mask: tf.Tensor,
  heads: int,
) -> tf.Tensor:
  """Returns softmax(q k^T / sqrt(D)) v, computed as `attention_as` says.

  Each pass is one program that XLA compiles. The backward pass computes the
  scores again, so no <float>[B, N, S, T] outlives a program. "fused" takes
  cuDNN's kernel where there is one, and warns where not. It takes the number of
  tokens for the length of a row, so padding has to follow the tokens.

  Args:
    products: <float>[B, S, 3 * N * D], the projections to queries, keys and
      values; or <float>[B, S, N * D] of the queries, and <float>[B, T, 2 * N *
      D] of keys and values.
    biases: <float>[O] for each of the products.
    mask: <int32>[B, T], 1 for tokens and 0 for padding.
    heads: N.

  Returns:
    <float>[B, S, N * D].
  """
  count = len(products)
  forward, backward = _attention, _attention_gradient
  if _ATTENTION.get() == "fused":
    missing = cudnn_attention.missing(products, heads)
    if missing:
      warnings.warn(
        f"attention 'fused' needs {missing}: it is 'compiled' here.",
        stacklevel=2,
      )
    else:
      forward, backward = _cudnn_attention, _cudnn_attention_gradient

  @tf.custom_gradient
  def chain(*arguments):
    products, biases = arguments[:count], arguments[count:]
    inputs = products, biases, mask, heads
    kept = fused_ops.run(forward, True, *inputs)  # The context first.

    def gradient(dy):
      dx = fused_ops.run(backward, True, *inputs, dy, *kept)
      sums = [
        fused_ops.sums_for(b, d, compiled=True) for b, d in zip(biases, dx)
      ]
      return [*dx, *sums]

    return kept[0], gradient

  return chain(*products, *biases)
