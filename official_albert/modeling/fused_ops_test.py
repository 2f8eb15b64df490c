"""Tests of the fused chains against TensorFlow's operations and gradients."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from official_albert.modeling import attention_program, fused_ops

B, S, N, H, V = 3, 7, 2, 10, 97

compiled_or_not = pytest.mark.parametrize("compiled", [False, True])
dtypes = pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])


def normal(*shape, seed=0, dtype=tf.float32):
  values = np.random.default_rng(seed).normal(size=shape)
  return tf.cast(values, dtype)


def with_gradients(function, inputs):
  """Returns the value, and the gradients of a weighted sum of it."""
  with tf.GradientTape() as tape:
    tape.watch(inputs)
    y = function(*inputs)
    weighted = tf.cast(y, tf.float32) * normal(*y.shape, seed=9)
    total = tf.reduce_sum(weighted)
  return [y, *tape.gradient(total, inputs)]


def compare(ours, theirs, inputs, dtype=tf.float32):
  """Compares values and gradients; `theirs` is computed in float32.

  bfloat16 has 8 bits, so rounding errors are 0.4% of values up to about 5.
  """
  atol = 2e-6 if dtype == tf.float32 else 0.04
  got = with_gradients(ours, inputs)
  expected = with_gradients(theirs, [tf.cast(x, tf.float32) for x in inputs])
  assert [x.dtype for x in got] == [x.dtype for x in (inputs[0], *inputs)]
  for index, (a, b) in enumerate(zip(got, expected, strict=True)):
    a, bound = tf.cast(a, tf.float32), 4 * atol if index else atol
    np.testing.assert_allclose(a, b, atol=bound)


MASK = tf.constant((np.arange(S) < [[S], [4], [1]]).astype(np.int32))
_GELU_INPUT = tf.reshape(tf.linspace(-6.0, 6.0, 77), [7, 11])


def layer_norm(x, gamma, beta, *terms):
  x = sum(terms, x)
  mean, variance = tf.nn.moments(x, [-1], keepdims=True)
  return tf.nn.batch_normalization(x, mean, variance, beta, gamma, 1e-12)


def split_heads(x, bias):
  x = tf.reshape(x + bias, [B, S, 3, N, -1])
  return tf.transpose(x, [2, 0, 3, 1, 4])


def attention_probs(q, k):
  real = tf.cast(MASK, tf.bool)[:, None, None, :]
  scores = tf.matmul(q, k, transpose_b=True) / np.sqrt(H)
  return tf.nn.softmax(tf.where(real, scores, -np.inf))


# For each chain: our function, the same of TensorFlow, the inputs that may be
# bfloat16, and further inputs in float32.
_NORM = [normal(H, seed=1), normal(H, seed=2)]
_CHAINS = {
  "gelu": (
    lambda x, compiled: fused_ops.gelu(x, None, compiled),
    lambda x: tf.nn.gelu(x, approximate=True),
    [_GELU_INPUT],
    [],
  ),
  "exact gelu with bias": (
    lambda x, b, compiled: fused_ops.gelu(x, b, compiled, approximate=False),
    lambda x, b: tf.nn.gelu(x + b),
    [_GELU_INPUT],
    [normal(11, seed=1)],
  ),
  "norm": (
    lambda x, gamma, beta, compiled: fused_ops.add_layer_norm(
      x, None, None, gamma, beta, 1e-12, compiled
    ),
    layer_norm,
    [normal(B, S, H)],
    _NORM,
  ),
  "norm with bias and residual": (
    lambda x, residual, gamma, beta, bias, compiled: fused_ops.add_layer_norm(
      x, bias, residual, gamma, beta, 1e-12, compiled
    ),
    lambda x, residual, *others: layer_norm(x + residual, *others),
    [normal(B, S, H), normal(B, S, H, seed=3)],
    [*_NORM, normal(H, seed=4)],
  ),
  "split_heads": (
    lambda x, bias, compiled: tf.stack(
      fused_ops.split_heads(x, bias, 3, N, compiled)
    ),
    split_heads,
    [normal(B, S, 3 * H)],
    [normal(3 * H, seed=1)],
  ),
  "attention_probs": (
    lambda q, k, compiled: fused_ops.attention_probs(q, k, MASK, compiled),
    attention_probs,
    [normal(B, N, S, H), normal(B, N, S, H, seed=1)],
    [],
  ),
}


@dtypes
@compiled_or_not
@pytest.mark.parametrize("chain", _CHAINS)
def test_chains_equal_tensorflow(chain, compiled, dtype):
  ours, theirs, inputs, others = _CHAINS[chain]
  inputs = [*(tf.cast(x, dtype) for x in inputs), *others]
  compare(
    lambda *inputs: ours(*inputs, compiled=compiled), theirs, inputs, dtype
  )


def projections(rows):
  """Returns products and biases of queries, keys and values, or of `rows`."""
  if rows is None:
    return [normal(B, S, 3 * H)], [normal(3 * H, seed=1)]
  return (
    [normal(B, rows, H), normal(B, S, 2 * H, seed=2)],
    [normal(H, seed=1), normal(2 * H, seed=3)],
  )


def plain_attention(mask, *inputs):
  """The same by TensorFlow, in float32."""
  count = len(inputs) // 2
  parts = [x + bias for x, bias in zip(inputs[:count], inputs[count:])]
  if count == 1:
    q, k, v = tf.split(parts[0], 3, axis=-1)
  else:
    q, k, v = parts[0], *tf.split(parts[1], 2, axis=-1)
  q, k, v = (tf.reshape(x, [B, -1, N, H // N]) for x in (q, k, v))
  scores = tf.einsum("bsnd,btnd->bnst", q, k) / np.sqrt(H // N)
  scores = tf.where(tf.cast(mask, tf.bool)[:, None, None], scores, -np.inf)
  context = tf.einsum("bnst,btnd->bsnd", tf.nn.softmax(scores), v)
  return tf.reshape(context, [B, -1, H])


HOLES = tf.constant([[0, 1, 1, 0, 1, 0, 1], [1] * 7, [0, 0, 0, 0, 0, 1, 0]])


@dtypes
@pytest.mark.parametrize("rows", [None, 4])
@pytest.mark.parametrize("mask", [MASK, HOLES], ids=["prefix", "holes"])
def test_attention_as_one_program(mask, rows, dtype):
  products, biases = projections(rows)
  products = [tf.cast(x, dtype) for x in products]
  count = len(products)
  compare(
    lambda *inputs: attention_program.attention(
      inputs[:count], inputs[count:], mask, N
    ),
    lambda *inputs: plain_attention(mask, *inputs),
    [*products, *biases],
    dtype,
  )


@pytest.mark.parametrize("rows", [None, 4])
def test_one_program_takes_batches_of_all_lengths(rows):
  """As in fine-tuning, whose batches have several lengths."""
  products, biases = projections(rows)
  count = len(products)
  inputs = [MASK, *products, *biases]

  def gradients(mask, *inputs):
    with tf.GradientTape() as tape:
      tape.watch(inputs)
      y = attention_program.attention(inputs[:count], inputs[count:], mask, N)
      total = tf.reduce_sum(y**2)
    return tape.gradient(total, inputs)

  shapes = [[None, None], *[[None, None, x.shape[2]] for x in products]]
  shapes += [x.shape for x in biases]
  signature = [tf.TensorSpec(s, x.dtype) for s, x in zip(shapes, inputs)]
  traced = tf.function(gradients, input_signature=signature, autograph=False)
  for found, expected in zip(traced(*inputs), gradients(*inputs)):
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_fused_attention_to_no_token_is_finite(cudnn):
  products, biases = projections(None)
  mask = [[0] * S, [1] * S, [1] + [0] * (S - 1)]
  mask = tf.constant(mask, tf.int64)  # Models take both.
  with attention_program.attention_as("fused"):
    found = with_gradients(
      lambda *x: attention_program.attention(x[:1], x[1:], mask, N),
      [*products, *biases],
    )
  assert cudnn and all(np.isfinite(x).all() for x in found)


def test_no_scores_outlive_the_programs_of_attention():
  products, biases = projections(None)

  @tf.function(autograph=False)
  def both(x, bias):
    return with_gradients(
      lambda *y: attention_program.attention(y[:1], y[1:], MASK, N), [x, bias]
    )

  operations = both.get_concrete_function(*products, *biases).graph
  operations = operations.get_operations()
  tensors = [tensor for op in operations for tensor in op.outputs]
  assert all(tensor.shape.rank < 4 for tensor in tensors)
  # Nor does XLA keep them if it compiles both passes together.
  whole = tf.function(both, jit_compile=True, autograph=False)
  get = whole.experimental_get_compiler_ir(*products, *biases)
  assert get(stage="optimized_hlo").count(" exponential(") == 2


def test_attention_is_one_program_where_xla_compiles():
  assert not attention_program.attention_is_one_program()
  with attention_program.attention_as("compiled"):
    assert attention_program.attention_is_one_program()
    with fused_ops.without_compilation():
      assert not attention_program.attention_is_one_program()
    with fused_ops.plain_operations_only():
      assert not attention_program.attention_is_one_program()


@compiled_or_not
def test_bfloat16_probabilities_are_summed_in_float32(compiled):
  """A sum of 600 terms in bfloat16 would be wrong by 10%.

  All scores are 0, so nothing is rounded before the softmax.
  """
  q = tf.zeros([1, 1, 1, 4], tf.bfloat16)
  k = normal(1, 1, 600, 4, dtype=tf.bfloat16)
  mask = tf.ones([1, 600], tf.int32)
  probs = tf.cast(fused_ops.attention_probs(q, k, mask, compiled), tf.float32)
  np.testing.assert_allclose(probs, 1 / 600, rtol=2**-8)


@dtypes
@compiled_or_not
def test_column_sums(compiled, dtype):
  x = normal(B, S, H, dtype=dtype)
  sums = fused_ops.column_sums(x, compiled)
  assert sums.dtype == tf.float32
  expected = tf.reduce_sum(tf.cast(x, tf.float32), [0, 1])
  # The result of a product of bfloat16 is rounded to bfloat16.
  rtol = 1e-6 if dtype == tf.float32 or not compiled else 2**-8
  np.testing.assert_allclose(sums, expected, rtol=rtol, atol=1e-6)
  # float16 would overflow above 65504.
  large = tf.fill([4096, 3], tf.constant(20.0, tf.float16))
  sums = fused_ops.column_sums(large, compiled)
  np.testing.assert_array_equal(sums, [81920.0] * 3)


@compiled_or_not
def test_gradients_of_a_shared_kernel_are_summed_in_float32(compiled):
  """1 + 12 * 2^-9 is exact in float32; in bfloat16 the sum would stay 1."""
  kernel, uses = normal(H, 3), 13
  with tf.GradientTape() as tape:
    tape.watch(kernel)
    copies = fused_ops.shared_kernel(kernel, uses, tf.bfloat16, compiled)
    terms = [tf.cast(copies[0], tf.float32)]
    terms += [tf.cast(copy, tf.float32) * 2.0**-9 for copy in copies[1:]]
    total = tf.reduce_sum(tf.add_n(terms))
  assert len(copies) == uses and copies[0].dtype == tf.bfloat16
  gradient = tape.gradient(total, kernel)
  np.testing.assert_array_equal(gradient, np.full([H, 3], 1 + 12 * 2.0**-9))


@compiled_or_not
def test_cross_entropy(compiled):
  labels = tf.constant(np.arange(B * S).reshape(B, S) * 4, tf.int32)
  compare(
    lambda x: fused_ops.cross_entropy(x, labels, compiled),
    lambda x: tf.nn.sparse_softmax_cross_entropy_with_logits(labels, x),
    [30 * normal(B, S, V)],
  )
  # Labels out of range give NaN.
  labels = tf.constant([-1, 3, V])
  loss = fused_ops.cross_entropy(normal(3, V), labels, compiled).numpy()
  assert np.isnan(loss).tolist() == [True, False, True]


def _traced(chain, compiled):
  run, _, inputs, others = _CHAINS[chain]
  function = tf.function(
    lambda *inputs: run(*inputs, compiled=compiled), autograph=False
  )
  graph = function.get_concrete_function(*inputs, *others).graph
  return function, str(graph.as_graph_def())


@dtypes
def test_on_gpus_xla_compiles_the_softmax(monkeypatch, dtype):
  _, graph = _traced("attention_probs", compiled=True)
  assert "XlaMustCompile" not in graph
  monkeypatch.setattr(tf.config, "list_physical_devices", lambda _: ["a GPU"])
  _, graph = _traced("attention_probs", compiled=True)
  assert "XlaMustCompile" in graph
  test_chains_equal_tensorflow("attention_probs", True, dtype)


@pytest.mark.parametrize("chain", _CHAINS)
def test_plain_operations_only(chain):
  """The graphs have no XLA and no custom gradients, but the same results."""
  usual, usual_graph = _traced(chain, compiled=True)
  has_own_gradient = chain != "exact gelu with bias"
  assert ("gradient_op_type" in usual_graph) == has_own_gradient
  assert "XlaMustCompile" not in _traced(chain, compiled=False)[1]
  with pytest.raises(KeyError), fused_ops.plain_operations_only():
    plain, graph = _traced(chain, compiled=True)
    raise KeyError  # An error must not leave the mode switched on.
  assert "gradient_op_type" not in graph and "XlaMustCompile" not in graph
  assert "XlaMustCompile" in _traced("gelu", compiled=True)[1]
  inputs = [*_CHAINS[chain][2], *_CHAINS[chain][3]]
  pairs = zip(with_gradients(usual, inputs), with_gradients(plain, inputs))
  for a, b in pairs:
    # The sums have another order; the largest values are about 10.
    np.testing.assert_allclose(a, b, atol=2e-5)
