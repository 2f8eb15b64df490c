"""Element-wise chains of a step, each compiled to one kernel.

Matrix products are best left to the libraries below TensorFlow, but what is
between them is bound by memory: run operation by operation, the GELU of a
[1024, 512] bfloat16 tensor takes longer than the product before it. Here each
such chain, and each gradient, is one function that XLA compiles to a single
pass; little more than the chain's own inputs or its output is kept for the
gradient.

With `compiled=False` the same function runs as plain TensorFlow operations: for
exported models, since a server need not have XLA.

All compute in float32 inside and return the dtype that came in; losses are
float32.
"""

from __future__ import annotations

import atexit
import math
from typing import Optional

import tensorflow as tf

_GELU_SCALE, _GELU_CUBIC = math.sqrt(2 / math.pi), 0.044715
# Added to the scores of padding. exp(-10000) is exactly 0 in float32, so
# padding cannot leak into any row that has at least one real token.
MASKED_SCORE = -10000.0


# Plain functions to their compiled twins, which are made when first needed.
_TWINS = {}
# While TensorFlow is still whole: what it deletes later complains.
atexit.register(_TWINS.clear)


def _pick(chain, compiled: bool):
  # TPUs compile the whole step, and know no second compiler inside of it.
  on_tpu = isinstance(tf.distribute.get_strategy(), tf.distribute.TPUStrategy)
  if not compiled or on_tpu:
    return chain
  if chain not in _TWINS:
    _TWINS[chain] = tf.function(chain, jit_compile=True, autograph=False)
  return _TWINS[chain]


def _mean(x: tf.Tensor) -> tf.Tensor:
  return tf.reduce_mean(x, axis=-1, keepdims=True)


def _gelu(x):
  y = tf.cast(x, tf.float32)
  t = tf.tanh(y * (_GELU_SCALE + _GELU_SCALE * _GELU_CUBIC * y * y))
  return tf.cast(0.5 * y * (1 + t), x.dtype)


def _gelu_gradient(x, dy):
  y, dy = tf.cast(x, tf.float32), tf.cast(dy, tf.float32)
  square = _GELU_SCALE * _GELU_CUBIC * y * y
  t = tf.tanh(y * (_GELU_SCALE + square))
  slope = y * (1 - t * t) * (_GELU_SCALE + 3 * square)
  return tf.cast(0.5 * dy * (1 + t + slope), x.dtype)


def gelu(x: tf.Tensor, compiled: bool = False) -> tf.Tensor:
  """0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), as in every release.

  Args:
    x: <float>[...].
    compiled: whether XLA compiles it.
  """

  @tf.custom_gradient
  def run(x):
    # Looked up when it is needed: TensorFlow keeps what a gradient holds.
    return (
      _pick(_gelu, compiled)(x),
      lambda dy: _pick(_gelu_gradient, compiled)(x, dy),
    )

  return run(x)


def _normalized(x, residual, epsilon):
  y = tf.cast(x, tf.float32)
  if residual is not None:
    y += tf.cast(residual, tf.float32)
  y -= _mean(y)
  scale = tf.math.rsqrt(_mean(y * y) + epsilon)
  return y * scale, scale


def _add_layer_norm(x, residual, gamma, beta, epsilon):
  y, _ = _normalized(x, residual, epsilon)
  return tf.cast(y * gamma + beta, x.dtype)


def _add_layer_norm_gradient(x, residual, gamma, dy, epsilon):
  y, scale = _normalized(x, residual, epsilon)
  dy = tf.cast(dy, tf.float32)
  slope = dy * gamma
  dx = scale * (slope - _mean(slope) - y * _mean(slope * y))
  return tf.cast(dx, x.dtype), dy * y, dy


def _sum_rows(x: tf.Tensor) -> tf.Tensor:
  """[..., H] to [H]; outside of XLA, whose column sums are slow on CPUs."""
  return tf.raw_ops.BiasAddGrad(out_backprop=x)


def add_layer_norm(
  x: tf.Tensor,
  residual: Optional[tf.Tensor],
  gamma: tf.Tensor,
  beta: tf.Tensor,
  epsilon: float,
  compiled: bool = False,
) -> tf.Tensor:
  """LayerNorm(x + residual) over the last axis.

  Args:
    x: <float>[..., H].
    residual: <float>[..., H] of the dtype of `x`, or None.
    gamma: <float32>[H], the scale.
    beta: <float32>[H], the offset.
    epsilon: added to the variance.
    compiled: whether XLA compiles it.

  Returns:
    <float>[..., H] in the dtype of `x`.
  """

  def run(x, gamma, beta, *residuals):
    residual = residuals[0] if residuals else None

    def gradient(dy):
      kernel = _pick(_add_layer_norm_gradient, compiled)
      dx, dgamma, dbeta = kernel(x, residual, gamma, dy, epsilon)
      gradients = (dx, _sum_rows(dgamma), _sum_rows(dbeta))
      return (*gradients, *(dx for _ in residuals))

    kernel = _pick(_add_layer_norm, compiled)
    return kernel(x, residual, gamma, beta, epsilon), gradient

  residuals = () if residual is None else (residual,)
  return tf.custom_gradient(run)(x, gamma, beta, *residuals)


def _attention_probs(scores, mask):
  padding = 1.0 - tf.cast(mask[:, None, None, :], tf.float32)
  y = tf.cast(scores, tf.float32) + padding * MASKED_SCORE
  return tf.cast(tf.nn.softmax(y), scores.dtype)


def _attention_probs_gradient(probs, dy):
  p, dy = tf.cast(probs, tf.float32), tf.cast(dy, tf.float32)
  total = tf.reduce_sum(p * dy, axis=-1, keepdims=True)
  return tf.cast(p * (dy - total), probs.dtype)


def attention_probs(
  scores: tf.Tensor, mask: tf.Tensor, compiled: bool = False
) -> tf.Tensor:
  """Softmax over the real tokens.

  Args:
    scores: <float>[B, N, S, T].
    mask: <int32>[B, T], 1 for tokens and 0 for padding.
    compiled: whether XLA compiles it.

  Returns:
    <float>[B, N, S, T] in the dtype of `scores`.
  """

  @tf.custom_gradient
  def run(scores):
    probs = _pick(_attention_probs, compiled)(scores, mask)
    return (
      probs,
      lambda dy: _pick(_attention_probs_gradient, compiled)(probs, dy),
    )

  return run(scores)


def _cross_entropy(logits, labels):
  logits = tf.cast(logits, tf.float32)
  top = tf.reduce_max(logits, axis=-1, keepdims=True)
  total = tf.reduce_sum(tf.exp(logits - top), axis=-1, keepdims=True)
  normalizer = tf.math.log(total) + top  # log sum exp
  hits = _hits(logits, labels)
  right = tf.reduce_sum(tf.where(hits, logits, 0.0), -1)
  right = tf.where(tf.reduce_any(hits, -1), right, math.nan)
  return normalizer[..., 0] - right, normalizer


def _cross_entropy_gradient(logits, labels, normalizer, dy):
  hits = tf.cast(_hits(logits, labels), tf.float32)
  probs = tf.exp(tf.cast(logits, tf.float32) - normalizer)
  return tf.cast((probs - hits) * dy[..., None], logits.dtype)


def _hits(logits, labels):
  # Where positions are the classes, as in spans, their number may vary.
  count = logits.shape[-1]
  count = tf.shape(logits)[-1] if count is None else count
  classes = tf.range(tf.cast(count, labels.dtype), dtype=labels.dtype)
  return classes == labels[..., None]


def cross_entropy(
  logits: tf.Tensor, labels: tf.Tensor, compiled: bool = False
) -> tf.Tensor:
  """-log softmax(logits)[label].

  Args:
    logits: <float>[..., V].
    labels: <int32>[...], in [0, V); the loss of any other is NaN.
    compiled: whether XLA compiles it.

  Returns:
    <float32>[...] in nats.
  """

  @tf.custom_gradient
  def run(logits):
    loss, normalizer = _pick(_cross_entropy, compiled)(logits, labels)

    def gradient(dy):
      slope = _pick(_cross_entropy_gradient, compiled)
      return slope(logits, labels, normalizer, dy)

    return loss, gradient

  return run(logits)
