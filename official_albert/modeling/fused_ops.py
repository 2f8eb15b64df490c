"""Matrix products, and chains of element-wise operations between them.

Matrix products run fastest in TensorFlow's libraries, but the element-wise
operations between them are limited by memory bandwidth. One by one, the
operations of a GELU can take longer than the product before it. XLA compiles
each chain, and each gradient, to a single pass over memory. The gradient keeps
little more than the input or the output of the chain.

With `compiled=False`, the same functions run as plain TensorFlow operations.
All functions sum in float32 and return the dtype of their input. Losses are
float32. Where the input is float64, all is float64.
"""

from __future__ import annotations

import atexit
import contextlib
import contextvars
import functools
import math
from concurrent import futures
from typing import Any, Callable, Iterator, Optional

import tensorflow as tf

# No public name tells whether XLA will compile what is being traced.
from tensorflow.python.ops import control_flow_util

# Added to the scores of padding. exp(-10000) is exactly 0 in float32, so
# padding does not change any row that has at least one token.
MASKED_SCORE = -10000.0

_GELU_SCALE, _GELU_CUBIC = math.sqrt(2 / math.pi), 0.044715
_SQRT_HALF = math.sqrt(0.5)

_PLAIN_OPERATIONS = contextvars.ContextVar("plain_operations", default=False)
_COMPILES = contextvars.ContextVar("compiles", default=True)


@contextlib.contextmanager
def within(mode: contextvars.ContextVar, value: Any) -> Iterator[None]:
  """Sets a variable in this context or decorated function."""
  token = mode.set(value)
  try:
    yield
  finally:
    mode.reset(token)


def plain_operations_only() -> contextlib.AbstractContextManager:
  """Disables XLA and custom gradients in this context, for exported graphs.

  The program that loads an exported graph may lack XLA, and may differentiate
  the graph twice or with a persistent tape. Values and gradients are the same
  but take more operations.
  """
  return within(_PLAIN_OPERATIONS, True)


def without_compilation() -> Any:
  """Computes the chains without XLA in this context or decorated function.

  That is for devices that XLA cannot compile for. The results are the same, but
  training takes longer, see ARCHITECTURE.md.
  """
  return within(_COMPILES, False)


def on_tpu() -> bool:
  """Returns whether the current strategy is that of TPUs."""
  return isinstance(tf.distribute.get_strategy(), tf.distribute.TPUStrategy)


def compiled_as_a_whole() -> bool:
  """Returns whether XLA, but not that of a TPU, compiles the traced function.

  The gradient of a function inside it would get axes and permutations from the
  function as tensors. XLA for CPUs and GPUs wants to know their values, takes
  all inputs of the function as constants too, and compiles anew for each batch.
  """
  if on_tpu():
    return False
  graph = tf.compat.v1.get_default_graph()
  return control_flow_util.GraphOrParentsInXlaContext(graph)


def uses_xla(compiled: bool) -> bool:
  """Returns whether XLA compiles the chains here, if that is requested."""
  # On TPUs the whole step is compiled, and compilations cannot be nested.
  plain = _PLAIN_OPERATIONS.get() or not _COMPILES.get()
  return compiled and not plain and not on_tpu()


@functools.cache
def _compiled(function: Callable) -> Callable:
  return tf.function(function, jit_compile=True, autograph=False)


# Compiled functions print errors if they outlive TensorFlow at exit.
atexit.register(_compiled.cache_clear)


def run(function: Callable, compiled: bool, *arguments: Any) -> Any:
  """Calls `function`, compiled by XLA if requested and possible."""
  if uses_xla(compiled):
    function = _compiled(function)
  return function(*arguments)


def _with_gradient(chain: Callable) -> Callable:
  """Adds the custom gradient, except within `plain_operations_only`."""
  if _PLAIN_OPERATIONS.get():
    return lambda *arguments: chain(*arguments)[0]
  return tf.custom_gradient(chain)


def _probe(one: tf.Tensor) -> tf.Tensor:
  """Returns whether a product of <bfloat16> rounds, <bool>[]; `one` is 1.

  1 + 3/512 is rounded to 1 + 1/128, or truncated to 1.
  """
  row = tf.stack([one, tf.cast(3 / 512, tf.bfloat16) * one])[None]
  return tf.matmul(row, tf.ones([2, 1], tf.bfloat16))[0, 0] > 1


@functools.cache
def _cpu_rounds_products() -> bool:
  def probe():
    return bool(_probe(tf.ones([], tf.bfloat16)))

  with futures.ThreadPoolExecutor(1) as other_thread:  # It builds no graph.
    return other_thread.submit(probe).result()


def where_products_round(exact: Callable, wide: Callable) -> Any:
  """Calls one of both: `exact` if products of bfloat16 round to nearest here.

  TensorFlow's own kernel for CPUs truncates them, which doubles their error. It
  runs where oneDNN is switched off or the CPU lacks AVX-512.

  Within `plain_operations_only`, the graph holds both and decides when it runs,
  maybe on another machine. Both return tensors of the same dtypes.
  """
  if _PLAIN_OPERATIONS.get():
    # Not a constant, because TensorFlow's optimizer would compute the product
    # with another kernel than the graph.
    rounds = _probe(tf.cast(tf.timestamp() > 0, tf.bfloat16))
    return tf.cond(rounds, exact, wide)
  on_cpu = not (on_tpu() or tf.config.list_logical_devices("GPU"))
  return wide() if on_cpu and not _cpu_rounds_products() else exact()


def product(
  a: tf.Tensor,
  b: tf.Tensor,
  transpose_a: bool = False,
  transpose_b: bool = False,
) -> tf.Tensor:
  """Multiplies <float>[..., I, J] by <float>[..., J, K] to <float>[..., I, K].

  The leading dimensions of both are equal. Elements of the result and of its
  gradients are rounded once, to nearest. Where TensorFlow would truncate them
  (see `where_products_round`), this multiplies in float32, in the same time.
  """

  def product_of(a, b):
    wide = [tf.cast(x, tf.float32) for x in (a, b)]
    return tf.cast(tf.matmul(*wide, transpose_a, transpose_b), a.dtype)

  @_with_gradient  # A tape would keep the operands in float32.
  def chain(a, b):
    def gradient(dy):
      # A graph does not compute the product again.
      with tf.GradientTape() as tape:
        tape.watch((a, b))
        y = product_of(a, b)
      return tape.gradient(y, (a, b), dy)

    return product_of(a, b), gradient

  def exact():
    return tf.matmul(a, b, transpose_a, transpose_b)

  if a.dtype != tf.bfloat16:
    return exact()
  return where_products_round(exact, lambda: chain(a, b))


def wide(dtype: tf.DType) -> tf.DType:
  """Returns what sums of this dtype are computed in."""
  return tf.float64 if dtype == tf.float64 else tf.float32


def _widened(x: tf.Tensor) -> tf.Tensor:
  return tf.cast(x, wide(x.dtype))


def column_sums(x: tf.Tensor, compiled: bool = False) -> tf.Tensor:
  """Returns the sum of all rows: <float>[..., N] to <float32>[N].

  For bfloat16, the compiled version is a product with ones, which is fastest
  on CPUs. It sums in float32 and rounds to bfloat16 at the end. float16 does
  not use it, because the rounding could overflow. Sums are never part of a
  chain, because XLA would sum the columns one by one.
  """
  x = tf.reshape(x, [-1, x.shape[-1]])
  if not uses_xla(compiled):
    return tf.reduce_sum(_widened(x), axis=0)
  if x.dtype != tf.bfloat16:
    return tf.raw_ops.BiasAddGrad(out_backprop=_widened(x))
  ones = tf.ones([1, tf.shape(x)[0]], x.dtype)
  return tf.cast(product(ones, x)[0], tf.float32)


def shared_kernel(
  kernel: tf.Tensor, uses: int, dtype: tf.DType, compiled: bool = False
) -> list[tf.Tensor]:
  """Casts <float32>[I, O] to `dtype` once and returns it for each of `uses`.

  If compiled, the gradients of all products are summed in float32 in one pass.
  A gradient tape would cast each of them and keep all casts until the last
  gradient is known. On TPUs each product has its own cast, which is free there.
  """
  if kernel.dtype == dtype:
    return [kernel] * uses
  if not uses_xla(compiled):
    return [tf.cast(kernel, dtype) for _ in range(uses)]

  @tf.custom_gradient
  def chain(kernel):
    cast = tf.cast(kernel, dtype)
    return [tf.identity(cast) for _ in range(uses)], (
      lambda *gradients: run(_sum_in_float32, True, *gradients)
    )

  return chain(kernel)


def sums_for(weight: tf.Tensor, x: tf.Tensor, compiled: bool) -> tf.Tensor:
  """Returns `column_sums` as the gradient of a weight."""
  return tf.cast(column_sums(x, compiled), weight.dtype)


def _sum_in_float32(*terms):
  return sum(tf.cast(term, tf.float32) for term in terms)


def wide_sum(
  x: tf.Tensor, bias: Optional[tf.Tensor], residual: Optional[tf.Tensor] = None
) -> tf.Tensor:
  """Returns x + bias + residual, <float32 or float64>[..., H]."""
  y = _widened(x)
  if bias is not None:
    y += tf.cast(bias, y.dtype)
  if residual is not None:
    y += tf.cast(residual, y.dtype)
  return y


def _gelu(x, bias):
  y = wide_sum(x, bias)
  # y itself is not multiplied by a constant, because TFLite would fold the
  # constant into the preceding matrix product and compute it three times.
  t = tf.tanh(y * (_GELU_SCALE + _GELU_SCALE * _GELU_CUBIC * (y * y)))
  return tf.cast(y * (0.5 + 0.5 * t), x.dtype)


def _gelu_gradient(x, bias, dy):
  y, dy = wide_sum(x, bias), _widened(dy)
  square = _GELU_SCALE * _GELU_CUBIC * y * y
  t = tf.tanh(y * (_GELU_SCALE + square))
  of_tanh = y * (1 - t * t) * (_GELU_SCALE + 3 * square)
  return tf.cast(0.5 * dy * (1 + t + of_tanh), x.dtype)


def _gelu_erf(x, bias):
  y = wide_sum(x, bias)
  # TFLite has no erf, but recognizes its own GELU in this form.
  return tf.cast((y * 0.5) * (tf.math.erf(y * _SQRT_HALF) + 1.0), x.dtype)


def gelu(
  x: tf.Tensor,
  bias: Optional[tf.Tensor] = None,
  compiled: bool = False,
  approximate: bool = True,
) -> tf.Tensor:
  """Returns the GELU of y = x + bias.

  This is y/2 (1 + tanh(sqrt(2/pi) (y + 0.044715 y^3))), as in every release,
  or the exact y/2 (1 + erf(y / sqrt(2))) if not `approximate`, which is never
  compiled. `x` is <float>[..., I] and `bias` <float>[I].
  """
  if not approximate:
    # Compiled, its gradient would take half as long again on a CPU.
    return _gelu_erf(x, bias)

  @_with_gradient
  def chain(*_):
    def gradient(dy):
      dx = run(_gelu_gradient, compiled, x, bias, dy)
      return [dx] if bias is None else [dx, sums_for(bias, dx, compiled)]

    return run(_gelu, compiled, x, bias), gradient

  return chain(*([x] if bias is None else [x, bias]))


def _mean(x):
  return tf.reduce_mean(x, axis=-1, keepdims=True)


def _add_layer_norm(x, bias, residual, gamma, beta, epsilon):
  y = wide_sum(x, bias, residual)
  mean = _mean(y)
  y -= mean
  scale = tf.math.rsqrt(_mean(y * y) + epsilon)
  gamma, beta = tf.cast(gamma, y.dtype), tf.cast(beta, y.dtype)
  return tf.cast(y * scale * gamma + beta, x.dtype), mean, scale


def _add_layer_norm_gradient(x, bias, residual, gamma, mean, scale, dy):
  y = (wide_sum(x, bias, residual) - mean) * scale
  dy = _widened(dy)
  scaled = dy * tf.cast(gamma, dy.dtype)
  dx = scale * (scaled - _mean(scaled) - y * _mean(scaled * y))
  # dgamma is the sum of dy * y, which could overflow in float16.
  kept = x.dtype if x.dtype == tf.bfloat16 else dy.dtype
  return tf.cast(dx, x.dtype), tf.cast(dy * y, kept)


def add_layer_norm(
  x: tf.Tensor,
  bias: Optional[tf.Tensor],
  residual: Optional[tf.Tensor],
  gamma: tf.Tensor,
  beta: tf.Tensor,
  epsilon: float,
  compiled: bool = False,
) -> tf.Tensor:
  """Returns LayerNorm(x + bias + residual) over the last axis.

  `x` and `residual` are <float>[..., H]; `bias`, the scale `gamma` and the
  offset `beta` are <float>[H]. `epsilon` is added to the variance.
  """

  @_with_gradient
  def chain(*_):
    y, mean, scale = run(
      _add_layer_norm, compiled, x, bias, residual, gamma, beta, epsilon
    )

    def gradient(dy):
      dx, dy_times_y = run(
        _add_layer_norm_gradient,
        *(compiled, x, bias, residual, gamma, mean, scale, dy),
      )
      terms = (gamma, dy_times_y), (beta, dy)
      gradients = [dx, *(sums_for(w, d, compiled) for w, d in terms)]
      if bias is not None:
        gradients.append(sums_for(bias, dx, compiled))
      if residual is not None:
        gradients.append(dx)
      return gradients

    return y, gradient

  given = [term for term in (bias, residual) if term is not None]
  return chain(x, gamma, beta, *given)


def _split_heads(x, bias, parts, heads):
  batch, length = tf.unstack(tf.shape(x)[:2])
  y = tf.cast(wide_sum(x, bias), x.dtype)
  head_size = x.shape[-1] // parts // heads
  y = tf.reshape(y, [batch, length, parts, heads, head_size])
  return tf.unstack(tf.transpose(y, [2, 0, 3, 1, 4]))


def split_heads(
  x: tf.Tensor, bias: tf.Tensor, parts: int, heads: int, compiled: bool = False
) -> tuple[tf.Tensor, ...]:
  """Adds a bias and splits the result into query, key and value and into heads.

  `x` is <float>[B, S, parts * N * D], `bias` <float>[parts * N * D] and each
  result <float>[B, N, S, D], with N = `heads`.
  """

  @_with_gradient
  def chain(x, bias):
    def gradient(*gradients):
      # Not compiled, because XLA is five times slower at this transpose.
      dx = tf.concat([merge_heads(dy) for dy in gradients], axis=-1)
      return dx, sums_for(bias, dx, compiled)

    return run(_split_heads, compiled, x, bias, parts, heads), gradient

  return tuple(chain(x, bias))


def merge_heads(x: tf.Tensor) -> tf.Tensor:
  """Transposes <float>[B, N, S, D] to <float>[B, S, N * D]."""
  y = tf.transpose(x, [0, 2, 1, 3])  # [B, S, N, D]
  return tf.reshape(y, [*tf.unstack(tf.shape(y)[:2]), x.shape[1] * x.shape[3]])


def masked_softmax(
  scores: tf.Tensor,
  mask: tf.Tensor,
  scale: float,
  dtype: Optional[tf.DType] = None,
  sizes: Optional[tf.Tensor] = None,
) -> tf.Tensor:
  """Returns softmax(scale * scores) over tokens, <float>[B, N, S, T].

  It is computed in `dtype`, by default a wide one. `mask` is <int32>[B, T], and
  `sizes` <int32>[4] are those of the scores, if known.
  """
  dtype = dtype or wide(scores.dtype)
  # TFLite does not support mask[:, None, None] with an unknown length.
  padding = tf.expand_dims(tf.expand_dims(1 - mask, 1), 1)  # [B, 1, 1, T]
  padding = tf.cast(padding, dtype) * MASKED_SCORE
  y = tf.cast(scores, dtype) * tf.cast(scale, dtype) + padding
  # A matrix, because TensorFlow's optimizer does not know the rank of the
  # operation that it makes of these, and would print a warning.
  sizes = tf.shape(scores) if sizes is None else sizes
  probs = tf.nn.softmax(tf.reshape(y, [-1, sizes[3]]))  # [B * N * S, T]
  return tf.reshape(tf.cast(probs, scores.dtype), sizes)  # [B, N, S, T]


def attention_probs_gradient(
  probs: tf.Tensor, dy: tf.Tensor, scale: float
) -> tf.Tensor:
  """Returns the gradient of `masked_softmax` to the scores."""
  p, dy = _widened(probs), _widened(dy)
  total = tf.reduce_sum(p * dy, axis=-1, keepdims=True)
  return tf.cast(scale * p * (dy - total), probs.dtype)


def attention_probs(
  q: tf.Tensor, k: tf.Tensor, mask: tf.Tensor, compiled: bool = False
) -> tf.Tensor:
  """Returns softmax(q k^T / sqrt(D)) over the tokens that are not padding.

  `q` is <float>[B, N, S, D], `k` <float>[B, N, T, D], the result
  <float>[B, N, S, T]. `mask` <int32>[B, T] is 1 for tokens, 0 for padding.
  """
  scale = q.shape[-1] ** -0.5

  @_with_gradient
  def chain(q, k):
    scores = product(q, k, transpose_b=True)  # [B, N, S, T]
    xla = uses_xla(compiled)
    if xla and tf.config.list_physical_devices("GPU"):
      probs = run(masked_softmax, True, scores, mask, scale)
    else:
      # On CPUs, oneDNN fuses product, scale and mask into one operation that
      # rounds once, if nothing else needs the product, not even its sizes. Its
      # softmax computes in float32.
      sizes = tf.concat([tf.shape(q)[:3], tf.shape(k)[2:3]], axis=0)
      dtype = q.dtype if xla else None
      probs = masked_softmax(scores, mask, scale, dtype, sizes)

    def gradient(dy):
      dscores = run(attention_probs_gradient, compiled, probs, dy, scale)
      return product(dscores, k), product(dscores, q, transpose_a=True)

    return probs, gradient

  return chain(q, k)


def _hits(logits, labels):
  # In span prediction, the classes are positions and their number varies.
  classes = tf.range(tf.shape(logits, labels.dtype)[-1])
  return classes == labels[..., None]


def _cross_entropy(logits, labels):
  logits = _widened(logits)
  top = tf.reduce_max(logits, axis=-1, keepdims=True)
  total = tf.reduce_sum(tf.exp(logits - top), axis=-1, keepdims=True)
  normalizer = tf.math.log(total) + top  # log sum exp
  hits = _hits(logits, labels)
  label_logit = tf.reduce_sum(tf.where(hits, logits, 0.0), -1)
  label_logit = tf.where(tf.reduce_any(hits, -1), label_logit, math.nan)
  return normalizer[..., 0] - label_logit, normalizer


def _cross_entropy_gradient(logits, labels, normalizer, dy):
  hits = tf.cast(_hits(logits, labels), normalizer.dtype)
  probs = tf.exp(_widened(logits) - normalizer)
  return tf.cast((probs - hits) * dy[..., None], logits.dtype)


def cross_entropy(
  logits: tf.Tensor, labels: tf.Tensor, compiled: bool = False
) -> tf.Tensor:
  """Returns -log softmax(logits)[label], <float32>[...] in nats.

  `logits` are <float>[..., V]; `labels` are <int32>[...] in [0, V). Any other
  label gives NaN.
  """

  @tf.custom_gradient
  def chain(logits):
    loss, normalizer = run(_cross_entropy, compiled, logits, labels)
    return loss, lambda dy: run(
      _cross_entropy_gradient, compiled, logits, labels, normalizer, dy
    )

  return chain(logits)
