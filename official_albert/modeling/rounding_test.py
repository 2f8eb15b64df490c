"""bfloat16 is rounded to nearest, with any kernels that TensorFlow has."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import tensorflow as tf

from official_albert import AlbertConfig, AlbertModel, modeling
from official_albert.modeling import fused_ops
from official_albert.testing import bfloat16

_CONFIG = AlbertConfig(
  vocab_size=9,
  embedding_size=96,
  hidden_size=256,
  num_hidden_layers=1,
  num_attention_heads=4,
  intermediate_size=31,
  hidden_dropout_prob=0.1,
)
_SHAPES = {(False, False): "ij,jk", (True, False): "ji,jk"} | {
  (False, True): "ij,kj",
  (True, True): "ji,kj",
}


def _normal(shape, seed):
  values = np.random.default_rng(seed).normal(size=shape)
  return tf.cast(values, tf.bfloat16)


@pytest.fixture(params=["here", "wide", "exported"])
def products(request, monkeypatch):
  """The choice of this machine, of one that truncates, and of a graph."""
  if request.param == "wide":
    monkeypatch.setattr(fused_ops, "_cpu_rounds_products", lambda: False)
  if request.param == "exported":
    with fused_ops.plain_operations_only():
      yield
  else:
    yield


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("transposed", _SHAPES)
@pytest.mark.parametrize("leading", [(), (2, 3)])
def test_products_and_gradients(products, leading, transposed, traced):
  left, right = _SHAPES[transposed].split(",")
  sizes = {"i": 23, "j": 41, "k": 37}
  a = _normal([*leading, *(sizes[x] for x in left)], 1)
  b = _normal([*leading, *(sizes[x] for x in right)], 2)
  dy = _normal([*leading, sizes["i"], sizes["k"]], 3)

  def run(a, b, dy):
    with tf.GradientTape() as tape:
      tape.watch((a, b))
      y = fused_ops.product(a, b, *transposed)
    return [y, *tape.gradient(y, (a, b), dy)]

  got = (tf.function(run, autograph=False) if traced else run)(a, b, dy)
  a, b, dy = (np.asarray(tf.cast(x, tf.float64)) for x in (a, b, dy))
  expected = [
    np.einsum(f"...{left},...{right}->...ik", a, b),
    np.einsum(f"...ik,...{right}->...{left}", dy, b),
    np.einsum(f"...{left},...ik->...{right}", a, dy),
  ]
  for ours, exact in zip(got, expected):
    bfloat16.check_rounded(ours, exact)


def test_column_sums(products):
  x = _normal([3, 401, 97], 1)
  sums = fused_ops.column_sums(x, compiled=True)
  exact = tf.reduce_sum(tf.cast(x, tf.float64), [0, 1])
  bfloat16.check_rounded(tf.cast(sums, tf.bfloat16), exact)


@pytest.mark.parametrize("dtype", [tf.float32, tf.float16])
def test_other_dtypes_are_multiplied_as_ever(products, dtype):
  a, b = (tf.cast(_normal([23, 23], seed), dtype) for seed in (1, 2))
  np.testing.assert_array_equal(
    fused_ops.product(a, b, transpose_b=True), tf.matmul(a, b, transpose_b=True)
  )


@pytest.mark.parametrize("kind", bfloat16.BOUNDS)
def test_the_error_of_an_encoder(kind):
  exact, rounded = (
    bfloat16.last_layer(bfloat16.model(kind, policy))
    for policy in ("float32", "mixed_bfloat16")
  )
  assert 0.001 < bfloat16.rms(rounded, exact) < bfloat16.BOUNDS[kind]


def test_all_that_without_onednn():
  """Then TensorFlow multiplies with its own kernel, which truncates."""
  command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
  bfloat16.run_without_onednn(
    *command, "-k", "products or sums or error", __file__
  )


def test_a_bias_before_dropout_is_not_rounded():
  """The sum is rounded once, as the sum without dropout is."""
  x = _normal([3, 97, 256], 1)
  bias = 12 * np.random.default_rng(2).normal(size=256)
  outputs = []
  for dtype in ("float32", "mixed_bfloat16"):
    layer = modeling.FeedForward(_CONFIG, dtype=dtype)
    layer.build([None, None, 256])
    for part, seed in ((layer.intermediate, 3), (layer.output_dense, 4)):
      values = _normal(part.kernel.shape, seed)
      part.kernel.assign(0.02 * tf.cast(values, tf.float32))
    layer.output_dense.bias.assign(bias)
    inputs = tf.cast(x, layer.compute_dtype)
    outputs.append(layer(inputs, True, tf.constant([1, 2])))
  # Two roundings of 0.17%: the sum and the result. Three have 0.29%.
  assert bfloat16.rms(outputs[1], outputs[0]) < 0.0026


@pytest.mark.parametrize("name", ["projection", "pooler", "transform"])
def test_a_bias_is_not_rounded(products, name):
  embedding = modeling.FactorizedEmbedding(_CONFIG, dtype="mixed_bfloat16")
  layer = {
    "projection": embedding.projection,
    "pooler": AlbertModel(_CONFIG, dtype="mixed_bfloat16").pooler,
    "transform": modeling.MaskedLMHead(
      _CONFIG, dtype="mixed_bfloat16"
    ).transform,
  }[name]
  x = _normal([3, 97, 96 if name == "projection" else 256], 1)
  dy = _normal([3, 97, layer.units], 2)
  if not layer.built:
    layer.build(x.shape)
  layer.bias.assign(12 * np.random.default_rng(3).normal(size=layer.units))
  with tf.GradientTape() as tape:
    y = layer(x)
  (gradient,) = tape.gradient(y, [layer.bias], dy)
  kernel = tf.cast(layer.kernel, tf.bfloat16)
  x, dy, kernel, bias = (
    np.asarray(tf.cast(value, tf.float64))
    for value in (x, dy, kernel, layer.bias)
  )
  bfloat16.check_rounded(y, x @ kernel + bias)
  assert bfloat16.rms(gradient, dy.sum((0, 1))) < 1e-6
