"""Tests that an encoder computes the same without its padding."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from official_albert import modeling
from official_albert.config import AlbertConfig
from official_albert.modeling import fused_ops, packing

CONFIG = AlbertConfig(
  vocab_size=17,
  embedding_size=5,
  hidden_size=12,
  num_hidden_layers=2,
  num_attention_heads=3,
  intermediate_size=14,
)
B, S = 4, 19
# The last row only fills a batch.
LENGTHS = np.array([7, 19, 1, 0])
MASK = (np.arange(S) < LENGTHS[:, None]).astype(np.int32)


def test_positions_are_tokens_and_the_padding_of_a_whole_part():
  mask = np.array([[1, 0, 1, 0], [0, 1, 0, 0], [1, 1, 0, 0]], np.int32)
  mask = np.tile(mask, [1, 24])[:, :92]
  mask[1, 1:] = 0  # No token.
  mask[2, 61:] = 0
  exact = packing.Packing.of(mask)
  tokens = np.flatnonzero(exact.is_token)
  # 91 of the first row: the mask ends in 1, 0. All of the second.
  assert len(tokens) == 91 + 92 + 61
  np.testing.assert_array_equal(exact.positions, tokens)
  packed = packing.Packing.of(mask, 32)  # B S 276, a part has 9
  np.testing.assert_array_equal(packed.is_token, exact.is_token)
  positions = packed.positions.numpy()
  assert len(positions) == 252 and set(tokens) < set(positions)
  np.testing.assert_array_equal(
    packed.rows.numpy().reshape(-1)[positions], np.arange(252)
  )
  for full in (0, 1):
    packed = packing.Packing.of(tf.fill([3, 5], full), 32)
    assert len(packed.positions) == 15
    assert packed.rows.shape == [3, 5]


def _random(shape, seed):
  values = np.random.default_rng(seed).normal(size=shape)
  return tf.constant(values, tf.float32)


def _gradients(encoder, active, rows=None, **options):
  """Returns outputs, those of the last block, and gradients."""
  x, weights = _random([B, S, 12], 1), _random([B, S, 12], 2)
  mask = tf.constant(MASK)
  variables = encoder.trainable_variables

  @tf.function(autograph=False)
  def compute(x):
    with packing.without_padding(active), tf.GradientTape() as tape:
      tape.watch(x)
      y = encoder(
        tf.cast(x, encoder.compute_dtype), mask, True, rows=rows, **options
      )
      last = tf.cast(y[-1], tf.float32)
      if rows is None:
        last *= tf.cast(mask[..., None], tf.float32)
        loss = tf.reduce_sum(last * weights)
      else:
        loss = tf.reduce_sum((last * weights[:, : rows.shape[1]])[:3])
    return y, last[:3], tape.gradient(loss, [x, *variables])

  outputs, last, gradients = compute(x)
  return outputs, [last, *map(tf.convert_to_tensor, gradients)]


@pytest.mark.parametrize(
  "dtype, options, attention, rows",
  [
    ("float32", {}, "plain", None),
    ("float32", {}, "single", [[0, 2], [18, 5], [0, 0], [0, 0]]),
    ("float32", {}, "compiled", [[0, 6, 3], [1, 18, 0], [0, 0, 0], [0, 0, 0]]),
    ("float32", {"adapter_rank": 2}, "single", [[6], [18], [0], [0]]),
    ("float32", {"sharing": "none"}, "single", None),
    ("float32", {"recompute": True}, "single", None),
    ("mixed_bfloat16", {}, "plain", None),
    ("mixed_float16", {}, "single", [[0], [18], [0], [0]]),
    ("float64", {}, "single", None),
  ],
)
def test_outputs_and_gradients_are_those_with_padding(
  dtype, options, attention, rows
):
  options = dict(options)
  recompute = options.pop("recompute", False)
  encoder = modeling.SharedTransformerEncoder(
    dataclasses.replace(CONFIG, **options),
    recompute,
    dtype=tf.keras.mixed_precision.Policy(dtype),
  )
  encoder.build([None, None, 12])
  for seed, variable in enumerate(encoder.trainable_variables):
    variable.assign_add(
      0.1 * tf.cast(_random(variable.shape, seed), variable.dtype)
    )
  rows = None if rows is None else tf.constant(rows)
  single = fused_ops.without_compilation()  # XLA takes most of the time.
  with single if attention == "single" else modeling.attention_as(attention):
    outputs, found = _gradients(encoder, True, rows)
    _, expected = _gradients(encoder, False, rows)
  error = {"float32": 2e-6, "float64": 1e-9}.get(dtype, 2e-2)
  for a, b in zip(found, expected, strict=True):
    largest = max(1.0, np.abs(b).max())
    np.testing.assert_allclose(a, b, rtol=0, atol=error * largest)
  for y in outputs[:-1] if rows is not None else outputs:
    assert y.shape == [B, S, 12]
    assert not np.any(y.numpy()[:3][MASK[:3] == 0])
    assert np.all(np.any(y.numpy()[:3][MASK[:3] == 1], axis=-1))


def test_dropout_is_a_function_of_its_seed():
  encoder = modeling.SharedTransformerEncoder(
    dataclasses.replace(
      CONFIG, hidden_dropout_prob=0.5, attention_probs_dropout_prob=0.2
    )
  )
  encoder.build([None, None, 12])
  seeds = [tf.constant(x) for x in ([3, 1], [3, 1], [3, 2])]
  with fused_ops.without_compilation():
    a, b, c = (_gradients(encoder, True, dropout_seed=x)[1] for x in seeds)
  for x, y in zip(a, b):
    np.testing.assert_array_equal(x, y)
  assert np.any(a[0] != c[0])


def test_xla_of_a_whole_step_computes_the_padding():
  encoder = modeling.SharedTransformerEncoder(CONFIG)

  @tf.function(jit_compile=True, autograph=False)
  def compute(x):
    with packing.without_padding():
      return encoder(x, tf.constant(MASK), True)[-1]

  y = compute(_random([B, S, 12], 1))
  assert np.all(np.any(y.numpy(), axis=-1))
