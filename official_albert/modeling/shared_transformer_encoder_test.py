"""Tests of sharing, depth, dropout, recomputation and layer-wise rates."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from official_albert.config import AlbertConfig
from official_albert.modeling import (
  attention_program,
  layers,
  shared_transformer_encoder,
)

B, S, H = 2, 5, 12
CONFIG = AlbertConfig(
  vocab_size=17,
  embedding_size=4,
  hidden_size=H,
  num_hidden_layers=4,
  num_hidden_groups=2,
  num_attention_heads=3,
  intermediate_size=14,
)


def make(recompute=False, **changes):
  return shared_transformer_encoder.SharedTransformerEncoder(
    dataclasses.replace(CONFIG, **changes), recompute
  )


def run(encoder, **kwargs):
  x = np.random.default_rng(0).normal(size=[B, S, H]).astype(np.float32)
  return encoder(tf.constant(x), tf.ones([B, S], tf.int32), **kwargs)


def test_order_of_sublayers():
  """Keras files name layers by the order of `sublayers`; it must not change."""
  used = [attention.name for attention, _ in make().blocks()]
  assert used == ["attention_0_0"] * 2 + ["attention_1_0"] * 2
  encoder = make(sharing="ffn", inner_group_num=2)
  assert [ffn.name for _, ffn in encoder.blocks()] == [
    *["ffn_0_0", "ffn_0_1"] * 2,
    *["ffn_1_0", "ffn_1_1"] * 2,
  ]
  assert [layer.name for layer in encoder.sublayers] == [
    *(f"attention_{layer}_{i}" for layer in range(4) for i in range(2)),
    *(f"ffn_{group}_{i}" for group in range(2) for i in range(2)),
  ]
  used = {id(layer) for block in encoder.blocks() for layer in block}
  assert {id(layer) for layer in encoder.sublayers} == used


@pytest.mark.parametrize("sharing", ["none", "ffn", "attention", "all"])
def test_each_block_computes_itself(sharing):
  encoder = make(sharing=sharing)
  before = run(encoder)
  # What the Python code of a layer does, not one of its weights.
  list(encoder.blocks())[-1][1].layer_norm.epsilon = 1.0
  own = sharing in ("none", "attention")
  for call in (run, tf.function(run, autograph=False)):
    changed = [
      not np.allclose(old, new, atol=1e-5)
      for old, new in zip(before, call(encoder), strict=True)
    ]
    assert changed == [False] * (3 if own else 2) + [True] * (1 if own else 2)


def test_num_layers_applies_the_same_layers_with_the_same_dropout():
  encoder = make(
    num_hidden_groups=1, inner_group_num=2, hidden_dropout_prob=0.5
  )
  settings = dict(training=True, dropout_seed=tf.constant([4, 2]))
  full = run(encoder, **settings)
  shallow = run(encoder, num_layers=3, **settings)
  deep = run(encoder, num_layers=7, **settings)
  assert [len(outputs) for outputs in (shallow, full, deep)] == [6, 8, 14]
  for a, b, c in zip(shallow, full, deep):
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(b, c)


@pytest.mark.parametrize("seed", [None, [4, 2]])
def test_each_application_draws_its_own_dropout(seed):
  encoder = make(
    num_hidden_groups=1, num_hidden_layers=3, hidden_dropout_prob=0.5
  )
  run(encoder)
  _, ffn = next(encoder.blocks())
  ffn.output_dense.kernel.assign(tf.zeros_like(ffn.output_dense.kernel))
  ffn.output_dense.bias.assign(tf.fill([H], 1e4))  # Only the mask is left.
  tf.random.set_seed(7)  # Used if there is no seed.
  # In a graph, where the block is traced only once.
  outputs = tf.function(
    lambda: run(encoder, training=True, dropout_seed=seed and tf.constant(seed))
  )()
  masks = [np.asarray(y) > 0 for y in outputs]
  assert 0.2 < masks[0].mean() < 0.8
  assert np.any(masks[0] != masks[1]) and np.any(masks[1] != masks[2])


@pytest.fixture(params=["float32", "mixed_bfloat16"])
def policy(request):
  tf.keras.mixed_precision.set_global_policy(request.param)
  yield request.param
  tf.keras.mixed_precision.set_global_policy("float32")


def outputs_and_gradients(encoder, x, seed):
  """The output of each block contributes to the gradient."""
  mask = tf.constant([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
  blocks = len(list(encoder.blocks()))
  weights = np.random.default_rng(1).normal(size=[blocks, B, S, H])
  tf.random.set_seed(3)  # Used if there is no dropout seed.

  @tf.function
  def compute(x):
    with tf.GradientTape() as tape:
      tape.watch(x)
      y = encoder(x, mask, training=True, dropout_seed=seed)
      total = tf.reduce_sum(tf.cast(tf.stack(y), tf.float32) * weights)
    return y, total, tape.gradient(total, [x, *encoder.trainable_variables])

  return compute(x)


def test_recomputation_keeps_outputs_and_gradients(policy):
  """Includes dropout, whose masks must be the same both times."""
  tf.keras.utils.set_random_seed(0)  # Rounding depends on the weights.
  plain, encoder = (
    make(
      recompute,
      hidden_dropout_prob=0.3,
      attention_probs_dropout_prob=0.2,
      num_hidden_layers=2,
      num_hidden_groups=1,
      inner_group_num=2,
      initializer_range=0.3,
    )
    for recompute in (False, True)
  )
  for each in (plain, encoder):
    run(each)
  encoder.set_weights(plain.get_weights())
  x = tf.constant(np.random.default_rng(0).normal(size=[B, S, H]), tf.float32)
  seed = tf.constant([4, 2])
  expected, _, expected_gradients = outputs_and_gradients(plain, x, seed)
  outputs, _, gradients = outputs_and_gradients(encoder, x, seed)
  assert len(outputs) == 4 and outputs[0].dtype == plain.compute_dtype
  for a, b in zip(expected, outputs):
    np.testing.assert_array_equal(a, b)
  for a, b in zip(expected_gradients, gradients):
    a, b = tf.convert_to_tensor(a), tf.convert_to_tensor(b)
    # Gradients that arrive at the output of a block are summed in another
    # order: four roundings of 0.4% in bfloat16. The floor of 10 is for the
    # bias of the keys, whose gradient is nothing but rounding errors.
    tolerance = 1e-5 if policy == "float32" else 0.03
    assert tf.norm(a - b) <= tolerance * tf.maximum(tf.norm(a), 10.0)


@pytest.mark.parametrize("kind", ["compiled", "fused"])
@pytest.mark.parametrize("recompute", [False, True])
def test_attention_as_one_program_equals_single_operations(
  cudnn, policy, recompute, kind
):
  tf.keras.utils.set_random_seed(0)
  encoder = make(
    recompute,
    attention_probs_dropout_prob=0.0,
    num_hidden_layers=2,
    num_hidden_groups=1,
    initializer_range=0.3,
    adapter_rank=2,
  )
  run(encoder)
  for variable in encoder.adapters.weights:
    values = np.random.default_rng(2).normal(size=variable.shape)
    variable.assign(0.1 * values)
  x = tf.constant(np.random.default_rng(0).normal(size=[B, S, H]), tf.float32)
  seed = tf.constant([4, 2])
  expected, _, expected_gradients = outputs_and_gradients(encoder, x, seed)
  with attention_program.attention_as(kind):
    outputs, _, gradients = outputs_and_gradients(encoder, x, seed)
  # As for recomputation above.
  tolerance = 1e-5 if policy == "float32" else 0.03
  expected += [tf.convert_to_tensor(x) for x in expected_gradients]
  outputs += [tf.convert_to_tensor(x) for x in gradients]
  for a, b in zip(expected, outputs, strict=True):
    assert a.dtype == b.dtype
    a, b = tf.cast(a, tf.float32), tf.cast(b, tf.float32)
    assert tf.norm(a - b) <= tolerance * tf.maximum(tf.norm(a), 10.0)
  assert bool(cudnn) == (kind == "fused")


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("training", [None, True])
def test_attention_with_dropout_is_never_one_program(
  monkeypatch, training, dropout
):
  encoder = make(num_hidden_layers=2, attention_probs_dropout_prob=dropout)
  calls, function = [], attention_program.attention

  def counting(*arguments):
    calls.append(1)
    return function(*arguments)

  monkeypatch.setattr(attention_program, "attention", counting)
  with attention_program.attention_as("compiled"):
    run(encoder, training=training)
  assert len(calls) == (0 if training and dropout else 2)


@pytest.mark.parametrize("attention", ["plain", "compiled", "fused"])
@pytest.mark.parametrize("recompute", [False, True])
def test_rows_equal_the_rows_of_the_full_output(cudnn, recompute, attention):
  """One row is asked for twice; gradients flow through the last layer only."""
  encoder = make(
    recompute, num_hidden_layers=2, num_hidden_groups=1, initializer_range=0.3
  )
  run(encoder)
  x = np.random.default_rng(0).normal(size=[B, S, H]).astype(np.float32)
  mask = tf.constant([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
  rows = tf.constant([[0, 3, 3], [2, 0, 1]])
  weights = np.random.default_rng(1).normal(size=[B, 3, H])

  @tf.function
  def compute(x, rows_only):
    with tf.GradientTape() as tape:
      tape.watch(x)
      outputs = encoder(
        x, mask, training=True, rows=rows if rows_only else None
      )
      last = outputs[-1]
      picked = last if rows_only else tf.gather(last, rows, batch_dims=1)
      total = tf.reduce_sum(picked * weights)
    gradients = tape.gradient(total, [x, *encoder.trainable_variables])
    return outputs[0], picked, gradients

  with attention_program.attention_as(attention):
    expected = compute(tf.constant(x), False)
    actual = compute(tf.constant(x), True)
  assert actual[1].shape == [B, 3, H]
  for a, b in zip(tf.nest.flatten(expected), tf.nest.flatten(actual)):
    np.testing.assert_allclose(a, b, atol=2e-5)


def test_the_block_is_traced_once(monkeypatch):
  encoder = make(num_hidden_groups=1)
  run(encoder)
  attention, _ = next(encoder.blocks())
  plain, calls = attention.call, []

  def counting(*args, **kwargs):
    calls.append(1)
    return plain(*args, **kwargs)

  monkeypatch.setattr(attention, "call", counting)
  outputs_and_gradients(encoder, tf.zeros([B, S, H]), None)
  assert len(calls) == 1


@pytest.mark.parametrize("whole", [False, True])
def test_what_xla_compiles_as_a_whole_has_no_function_of_the_block(whole):
  """XLA would compile such a function's gradient anew for each batch."""
  encoder = make(num_hidden_layers=2, num_hidden_groups=1)
  run(encoder)

  @tf.function(jit_compile=whole, autograph=False)
  def last(x):
    return encoder(x, tf.ones([B, S], tf.int32))[-1]

  graph = last.get_concrete_function(tf.TensorSpec([B, S, H])).graph
  calls = [op for op in graph.get_operations() if "PartitionedCall" in op.type]
  assert bool(calls) is not whole


def block(x, weights):
  return tf.tanh(tf.matmul(x, weights["kernel"]) + weights["bias"])


def ancestors(op, data_only):
  seen, todo = set(), [op]
  while todo:
    op = todo.pop()
    if op.name not in seen:
      seen.add(op.name)
      todo.extend(x.op for x in op.inputs)
      todo.extend([] if data_only else op.control_inputs)
  return seen


def test_recomputation_waits_for_the_incoming_gradient():
  """It waits by a control input for TensorFlow, and by data for XLA.

  Otherwise they would merge both computations, which saves no memory.
  """
  weights = {"kernel": tf.eye(H), "bias": tf.zeros([H])}

  @tf.function
  def run(x, dy):
    with tf.GradientTape() as tape:
      tape.watch(x)
      y = layers.recomputed(block, x, weights)
    return tape.gradient(y, x, dy)

  spec = tf.TensorSpec([S, H])
  graph = run.get_concrete_function(spec, spec).graph
  first, second = [op for op in graph.get_operations() if op.type == "Tanh"]
  for data_only in (False, True):
    assert "dy" not in ancestors(first, data_only)
    assert "dy" in ancestors(second, data_only)
  controls = [c for op in graph.get_operations() for c in op.control_inputs]
  assert "dy" in [op.name for op in controls]
