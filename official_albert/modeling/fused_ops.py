"""Element-wise chains of a step, each compiled to one kernel.

Matrix products are best left to the libraries below TensorFlow, but what is
between them is bound by memory: run operation by operation, the GELU of a
[1024, 512] bfloat16 tensor takes longer than the product before it. Here each
such chain, and each gradient, is one function that XLA compiles to a single
pass; little more than the chain's own inputs or its output is kept for the
gradient.

With `compiled=False` the same function runs as plain TensorFlow operations: for
exported models, since a server need not have XLA (see also
`plain_operations_only`).

All compute in float32 inside and return the dtype that came in; losses are
float32.
"""

from __future__ import annotations

import atexit
import contextlib
import contextvars
import math
from typing import Callable, Iterator, Optional

import tensorflow as tf

_GELU_SCALE, _GELU_CUBIC = math.sqrt(2 / math.pi), 0.044715
_SQRT_HALF = math.sqrt(0.5)
# Added to the scores of padding. exp(-10000) is exactly 0 in float32, so
# padding cannot leak into any row that has at least one real token.
MASKED_SCORE = -10000.0


# Plain functions to their compiled twins, which are made when first needed.
_TWINS = {}
# While TensorFlow is still whole: what it deletes later complains.
atexit.register(_TWINS.clear)


def _compiles(compiled: bool) -> bool:
  # TPUs compile the whole step, and know no second compiler inside of it.
  on_tpu = isinstance(tf.distribute.get_strategy(), tf.distribute.TPUStrategy)
  return compiled and not on_tpu and not plain_operations_wanted()


def _pick(chain, compiled: bool):
  if not _compiles(compiled):
    return chain
  if chain not in _TWINS:
    _TWINS[chain] = tf.function(chain, jit_compile=True, autograph=False)
  return _TWINS[chain]


def _mean(x: tf.Tensor) -> tf.Tensor:
  return tf.reduce_mean(x, axis=-1, keepdims=True)


def column_sums(x: tf.Tensor, compiled: bool = False) -> tf.Tensor:
  """The sum of all rows, <float>[..., N] to <float32>[N].

  Compiled, of bfloat16: a product with ones, of all ways the fastest on CPUs,
  summed in float32 and rounded to bfloat16 at its end. (In float16 that could
  overflow.) Never in a chain, because XLA sums columns one by one there.
  """
  x = tf.reshape(x, [-1, x.shape[-1]])
  if not _compiles(compiled):
    return tf.reduce_sum(tf.cast(x, tf.float32), axis=0)
  if x.dtype != tf.bfloat16:
    return tf.raw_ops.BiasAddGrad(out_backprop=tf.cast(x, tf.float32))
  ones = tf.ones([1, tf.shape(x)[0]], x.dtype)
  return tf.cast(tf.matmul(ones, x)[0], tf.float32)


def shared_kernel(
  kernel: tf.Tensor, uses: int, dtype: tf.DType, compiled: bool = False
) -> list[tf.Tensor]:
  """A kernel for each of several products, cast once.

  Compiled, the gradients from the products are added up in float32 in one
  pass, while a tape would cast each of them, and keep the casts until the last
  is there. TPUs get one cast a product, which costs them nothing.

  Args:
    kernel: <float32>[I, O].
    uses: how many products.
    dtype: of the products.
    compiled: whether XLA compiles the sum.

  Returns:
    `uses` tensors <dtype>[I, O].
  """
  if kernel.dtype == dtype:
    return [kernel] * uses
  if not _compiles(compiled):
    return [tf.cast(kernel, dtype) for _ in range(uses)]

  @tf.custom_gradient
  def run(kernel):
    cast = tf.cast(kernel, dtype)
    copies = [tf.identity(cast) for _ in range(uses)]
    return copies, lambda *slopes: _pick(_sum_in_float32, True)(*slopes)

  return run(kernel)


def _sum_in_float32(*terms):
  return sum(tf.cast(term, tf.float32) for term in terms)


def _gelu(x, bias):
  y = _sum(x, bias)
  # No constant times y: TFLite would have the product before three times.
  t = tf.tanh(y * (_GELU_SCALE + _GELU_SCALE * _GELU_CUBIC * (y * y)))
  return tf.cast(y * (0.5 + 0.5 * t), x.dtype)


def _gelu_gradient(x, bias, dy):
  y, dy = _sum(x, bias), tf.cast(dy, tf.float32)
  square = _GELU_SCALE * _GELU_CUBIC * y * y
  t = tf.tanh(y * (_GELU_SCALE + square))
  slope = y * (1 - t * t) * (_GELU_SCALE + 3 * square)
  return tf.cast(0.5 * dy * (1 + t + slope), x.dtype)


def _gelu_erf(x, bias):
  y = _sum(x, bias)
  # In the form that TFLite takes for its own GELU; it has no erf.
  return tf.cast((y * 0.5) * (tf.math.erf(y * _SQRT_HALF) + 1.0), x.dtype)


def _gelu_erf_gradient(x, bias, dy):
  y, dy = _sum(x, bias), tf.cast(dy, tf.float32)
  phi = tf.exp(-0.5 * (y * y)) / math.sqrt(2 * math.pi)
  slope = 0.5 + 0.5 * tf.math.erf(y * _SQRT_HALF) + y * phi
  return tf.cast(dy * slope, x.dtype)


def gelu(
  x: tf.Tensor,
  bias: Optional[tf.Tensor] = None,
  compiled: bool = False,
  approximate: bool = True,
) -> tf.Tensor:
  """The GELU of y = x + bias.

  y/2 (1 + tanh(sqrt(2/pi) (y + 0.044715 y^3))), as in every release, or the
  exact y/2 (1 + erf(y / sqrt(2))).

  Args:
    x: <float>[..., I].
    bias: <float32>[I], or None.
    compiled: whether XLA compiles it.
    approximate: whether it is the tanh approximation.

  Returns:
    <float>[..., I] in the dtype of `x`.
  """
  if approximate:
    value_of, gradient_of = _gelu, _gelu_gradient
  else:
    value_of, gradient_of = _gelu_erf, _gelu_erf_gradient

  def run(x, *biases):
    bias = biases[0] if biases else None

    def gradient(dy):
      dx = _pick(gradient_of, compiled)(x, bias, dy)
      return (dx, *(column_sums(dx, compiled) for _ in biases))

    return _pick(value_of, compiled)(x, bias), gradient

  biases = () if bias is None else (bias,)
  return with_gradient(run)(x, *biases)


def _sum(x, bias, residual=None):
  y = tf.cast(x, tf.float32)
  if bias is not None:
    y += bias
  if residual is not None:
    y += tf.cast(residual, tf.float32)
  return y


def _add_layer_norm(x, bias, residual, gamma, beta, epsilon):
  y = _sum(x, bias, residual)
  mean = _mean(y)
  y -= mean
  scale = tf.math.rsqrt(_mean(y * y) + epsilon)
  return tf.cast(y * scale * gamma + beta, x.dtype), mean, scale


def _add_layer_norm_gradient(x, bias, residual, gamma, mean, scale, dy):
  y = (_sum(x, bias, residual) - mean) * scale
  dy = tf.cast(dy, tf.float32)
  slope = dy * gamma
  dx = scale * (slope - _mean(slope) - y * _mean(slope * y))
  # What is summed up next: in float16 it could overflow.
  wide = x.dtype if x.dtype == tf.bfloat16 else tf.float32
  return tf.cast(dx, x.dtype), tf.cast(dy * y, wide)


def add_layer_norm(
  x: tf.Tensor,
  bias: Optional[tf.Tensor],
  residual: Optional[tf.Tensor],
  gamma: tf.Tensor,
  beta: tf.Tensor,
  epsilon: float,
  compiled: bool = False,
) -> tf.Tensor:
  """LayerNorm(x + bias + residual) over the last axis.

  Args:
    x: <float>[..., H].
    bias: <float32>[H], or None.
    residual: <float>[..., H] of the dtype of `x`, or None.
    gamma: <float32>[H], the scale.
    beta: <float32>[H], the offset.
    epsilon: added to the variance.
    compiled: whether XLA compiles it.

  Returns:
    <float>[..., H] in the dtype of `x`.
  """
  optional = {"bias": bias, "residual": residual}
  optional = {name: y for name, y in optional.items() if y is not None}

  def run(x, gamma, beta, *others):
    others = dict(zip(optional, others))
    bias, residual = others.get("bias"), others.get("residual")
    kernel = _pick(_add_layer_norm, compiled)
    y, mean, scale = kernel(x, bias, residual, gamma, beta, epsilon)

    def gradient(dy):
      kernel = _pick(_add_layer_norm_gradient, compiled)
      dx, dgamma = kernel(x, bias, residual, gamma, mean, scale, dy)
      slopes = {"residual": dx}
      if "bias" in others:
        slopes["bias"] = column_sums(dx, compiled)
      dgamma, dbeta = (column_sums(d, compiled) for d in (dgamma, dy))
      return (dx, dgamma, dbeta, *(slopes[name] for name in others))

    return y, gradient

  others = optional.values()
  return with_gradient(run)(x, gamma, beta, *others)


def _split_heads(x, bias, parts, heads):
  batch, length = tf.unstack(tf.shape(x)[:2])
  y = tf.cast(tf.cast(x, tf.float32) + bias, x.dtype)
  y = tf.reshape(
    y, [batch, length, parts, heads, x.shape[-1] // parts // heads]
  )
  return tf.unstack(tf.transpose(y, [2, 0, 3, 1, 4]))


def split_heads(
  x: tf.Tensor, bias: tf.Tensor, parts: int, heads: int, compiled: bool = False
) -> tuple[tf.Tensor, ...]:
  """Query, key and value of every head, from one product.

  Args:
    x: <float>[B, S, parts * N * D].
    bias: <float32>[parts * N * D].
    parts: 3 for query, key and value, fewer for some of them.
    heads: N.
    compiled: whether XLA compiles it.

  Returns:
    The parts, each <float>[B, N, S, D] in the dtype of `x`.
  """

  @with_gradient
  def run(x, bias):
    def gradient(*slopes):
      # Outside of XLA, which is five times as slow with this transpose.
      dx = tf.concat([merge_heads(dy) for dy in slopes], axis=-1)
      return dx, column_sums(dx, compiled)

    return _pick(_split_heads, compiled)(x, bias, parts, heads), gradient

  return tuple(run(x, bias))


def merge_heads(x: tf.Tensor) -> tf.Tensor:
  """<float>[B, N, S, D] to <float>[B, S, N * D]."""
  y = tf.transpose(x, [0, 2, 1, 3])  # [B, S, N, D]
  return tf.reshape(y, [*tf.unstack(tf.shape(y)[:2]), x.shape[1] * x.shape[3]])


def _attention_probs_gradient(probs, dy, scale):
  p, dy = tf.cast(probs, tf.float32), tf.cast(dy, tf.float32)
  total = tf.reduce_sum(p * dy, axis=-1, keepdims=True)
  return tf.cast(scale * p * (dy - total), probs.dtype)


def attention_probs(
  q: tf.Tensor, k: tf.Tensor, mask: tf.Tensor, compiled: bool = False
) -> tf.Tensor:
  """softmax(q k^T / sqrt(D)) over the real tokens.

  Args:
    q: <float>[B, N, S, D].
    k: <float>[B, N, T, D].
    mask: <int32>[B, T], 1 for tokens and 0 for padding.
    compiled: whether chains are compiled, by XLA or by oneDNN.

  Returns:
    <float>[B, N, S, T] in the dtype of `q`.
  """
  scale = q.shape[-1] ** -0.5

  @with_gradient
  def run(q, k):
    scores = tf.matmul(q, k, transpose_b=True)
    # On CPUs the product, scale and mask become one operation of oneDNN's,
    # rounded once, and its softmax computes in float32 inside.
    cpu = not tf.config.list_physical_devices("GPU")
    dtype = q.dtype if _compiles(compiled) and cpu else tf.float32
    # Not mask[:, None, None]: TFLite has no such operation for any length.
    padding = tf.expand_dims(tf.expand_dims(1 - mask, 1), 1)  # [B, 1, 1, T]
    padding = tf.cast(padding, dtype) * MASKED_SCORE
    scores = tf.cast(scores, dtype) * tf.cast(scale, dtype) + padding
    # As a matrix: of the one operation TensorFlow's optimizer does not know the
    # rank, and says so on stderr.
    sizes = tf.concat([tf.shape(q)[:3], tf.shape(k)[2:3]], axis=0)
    probs = tf.nn.softmax(tf.reshape(scores, [-1, sizes[3]]))
    probs = tf.reshape(tf.cast(probs, q.dtype), sizes)

    def gradient(dy):
      kernel = _pick(_attention_probs_gradient, compiled)
      slopes = kernel(probs, dy, scale)
      return tf.matmul(slopes, k), tf.matmul(slopes, q, transpose_a=True)

    return probs, gradient

  return run(q, k)


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


def _adam_direction(gradient, m, v, w, beta_1, beta_2, bias, epsilon, decay):
  m = beta_1 * m + (1.0 - beta_1) * gradient
  v = beta_2 * v + (1.0 - beta_2) * gradient * gradient
  slope = m / bias[0] / (tf.sqrt(v / bias[1]) + epsilon)
  return m, v, slope + decay * w


def adam_direction(
  gradient: tf.Tensor,
  m: tf.Tensor,
  v: tf.Tensor,
  w: tf.Tensor,
  *settings: tf.Tensor,
  compiled: bool = False,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
  """Moments after an update, and where it goes.

  Args:
    gradient: <float32>[...], as all of the next three.
    m: the first moment.
    v: the second moment.
    w: the weights.
    *settings: <float32>[] each: beta_1, beta_2, what m and v are divided by
      (two in one tensor, <float32>[2]), epsilon and the weight decay.
    compiled: whether XLA compiles it.

  Returns:
    m, v and m / (sqrt(v) + epsilon) + decay * w, <float32>[...] each.
  """
  return _pick(_adam_direction, compiled)(gradient, m, v, w, *settings)


_WANTED = contextvars.ContextVar("plain_operations", default=False)


@contextlib.contextmanager
def plain_operations_only() -> Iterator[None]:
  """Computes without XLA and without gradients by hand, for exported graphs.

  The reader of such a graph may have a TensorFlow without XLA, and
  differentiates what is there, perhaps twice or with a persistent tape. Values
  and gradients are the same, computed in more steps.
  """
  token = _WANTED.set(True)
  try:
    yield
  finally:
    _WANTED.reset(token)


def plain_operations_wanted() -> bool:
  """Whether the caller is inside of `plain_operations_only`."""
  return _WANTED.get()


def with_gradient(run: Callable) -> Callable:
  """tf.custom_gradient; in `plain_operations_only`, the forward function.

  Args:
    run: returns its result, and a function for the gradient.
  """
  if plain_operations_wanted():
    return lambda *arguments: run(*arguments)[0]
  return tf.custom_gradient(run)
