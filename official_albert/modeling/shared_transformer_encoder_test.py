"""Tests of what is shared, in which order, and how many parameters."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from official_albert.modeling import shared_transformer_encoder
from official_albert.modeling.config import AlbertConfig

B, S, H = 2, 5, 12


def make(recompute=False, **changes):
  values = dict(
    vocab_size=17,
    embedding_size=4,
    hidden_size=H,
    num_hidden_layers=6,
    num_hidden_groups=2,
    inner_group_num=1,
    num_attention_heads=3,
    intermediate_size=14,
  )
  config = AlbertConfig(**{**values, **changes})
  return shared_transformer_encoder.SharedTransformerEncoder(config, recompute)


def run(encoder, **kwargs):
  x = np.random.default_rng(0).normal(size=[B, S, H]).astype(np.float32)
  return encoder(tf.constant(x), tf.ones([B, S], tf.int32), **kwargs)


@pytest.mark.parametrize(
  "sharing, attentions, ffns",
  [("all", 2, 2), ("attention", 2, 6), ("ffn", 6, 2), ("none", 6, 6)],
)
def test_sets_of_parameters(sharing, attentions, ffns):
  encoder = make(sharing=sharing)
  assert len(run(encoder)) == 6
  pairs = list(encoder.blocks())
  assert len({id(attention) for attention, _ in pairs}) == attentions
  assert len({id(ffn) for _, ffn in pairs}) == ffns
  config = encoder.config
  outside = (17 + 512 + 2) * 4 + 2 * 4 + 4 * H + H + H * H + H
  assert encoder.count_params() == config.parameter_count() - outside


def test_groups_in_order():
  encoder = make()
  used = [attention.name for attention, _ in encoder.blocks()]
  assert used == ["attention_0_0"] * 3 + ["attention_1_0"] * 3


def test_inner_groups_alternate():
  encoder = make(num_hidden_layers=3, num_hidden_groups=1, inner_group_num=2)
  used = [ffn.name for _, ffn in encoder.blocks()]
  assert used == ["ffn_0_0", "ffn_0_1"] * 3
  assert len(run(encoder)) == 6


def test_flat_list_of_sublayers():
  """Keras' files name layers by this order, which must not change."""
  encoder = make(sharing="ffn", num_hidden_layers=3, inner_group_num=2)
  assert [half.name for half in encoder.sublayers] == [
    *(f"attention_{layer}_{i}" for layer in range(3) for i in range(2)),
    *(f"ffn_{group}_{i}" for group in range(2) for i in range(2)),
  ]
  used = {id(half) for pair in encoder.blocks() for half in pair}
  assert {id(half) for half in encoder.sublayers} == used


def test_unshared_copies_compute_what_the_shared_layer_computes():
  shared, own = make(), make(sharing="none")
  expected = run(shared)
  run(own)
  for source, target in zip(shared.blocks(), own.blocks()):
    for a, b in zip(source, target):
      b.set_weights(a.get_weights())
  for a, b in zip(expected, run(own)):
    np.testing.assert_array_equal(a, b)


def test_another_depth_is_the_same_layers_applied_so_often():
  """With dropout, too; more often than the model does, too."""
  encoder = make(
    num_hidden_groups=1, num_hidden_layers=4, hidden_dropout_prob=0.5
  )
  settings = dict(training=True, dropout_seed=tf.constant([4, 2]))
  own = run(encoder, **settings)
  shallow = run(encoder, num_layers=3, **settings)
  deep = run(encoder, num_layers=7, **settings)
  assert [len(outputs) for outputs in (shallow, own, deep)] == [3, 4, 7]
  for a, b, c in zip(shallow, own, deep):
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(b, c)


def test_another_depth_of_inner_groups():
  encoder = make(num_hidden_layers=3, num_hidden_groups=1, inner_group_num=2)
  own, shallow = run(encoder), run(encoder, num_layers=2)
  assert len(shallow) == 4
  np.testing.assert_array_equal(shallow[-1], own[3])


def test_layers_of_their_own_have_one_depth():
  for changes in (dict(), dict(num_hidden_groups=1, sharing="ffn")):
    encoder = make(**changes)
    assert len(run(encoder, num_layers=6)) == 6
    with pytest.raises(ValueError, match="6 layers .* cannot have 5"):
      run(encoder, num_layers=5)
  encoder = shared_transformer_encoder.SharedTransformerEncoder(
    make(num_hidden_groups=1).config, layerwise_lr_decay=0.9
  )
  with pytest.raises(ValueError, match="0.9 needs a fixed number of layers"):
    run(encoder, num_layers=5)


def test_each_application_draws_its_own_dropout():
  encoder = make(
    num_hidden_groups=1, num_hidden_layers=2, hidden_dropout_prob=0.5
  )
  seed = tf.constant([4, 2])
  first = run(encoder, training=True, dropout_seed=seed)
  again = run(encoder, training=True, dropout_seed=seed)
  np.testing.assert_array_equal(first[-1], again[-1])
  # Feeding layer 1's input to layer 0 must not give layer 1's output.
  swapped = encoder(
    first[0], tf.ones([B, S], tf.int32), training=True, dropout_seed=seed
  )
  assert np.any(swapped[0].numpy() != first[1].numpy())


def test_without_a_seed_each_application_draws_its_own_mask():
  """Also where a global seed is set, in a graph that holds the block once."""
  encoder = make(
    num_hidden_groups=1, num_hidden_layers=3, hidden_dropout_prob=0.5
  )
  run(encoder)
  _, ffn = next(encoder.blocks())
  ffn.output_dense.kernel.assign(tf.zeros_like(ffn.output_dense.kernel))
  ffn.output_dense.bias.assign(tf.fill([H], 1e4))  # What is left is the mask.
  tf.random.set_seed(7)
  outputs = tf.function(lambda: run(encoder, training=True))()
  masks = [np.asarray(y) > 0 for y in outputs]
  assert 0.2 < masks[0].mean() < 0.8
  assert np.any(masks[0] != masks[1]) and np.any(masks[1] != masks[2])


@pytest.fixture(params=["float32", "mixed_bfloat16"])
def policy(request):
  tf.keras.mixed_precision.set_global_policy(request.param)
  yield request.param
  tf.keras.mixed_precision.set_global_policy("float32")


def recomputing(recompute):
  """An encoder with dropout and two blocks in each of two groups."""
  encoder = make(
    recompute,
    hidden_dropout_prob=0.3,
    attention_probs_dropout_prob=0.2,
    inner_group_num=2,
    num_hidden_layers=2,
    initializer_range=0.3,
  )
  run(encoder)
  return encoder


def outputs_and_gradients(encoder, x, seed):
  """Every block's output has a part in the gradient."""
  mask = tf.constant([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
  blocks = len(list(encoder.blocks()))
  weights = np.random.default_rng(1).normal(size=[blocks, B, S, H])
  tf.random.set_seed(3)  # Where there is no dropout seed.

  @tf.function
  def compute(x):
    with tf.GradientTape() as tape:
      tape.watch(x)
      y = encoder(x, mask, training=True, dropout_seed=seed)
      total = tf.reduce_sum(tf.cast(tf.stack(y), tf.float32) * weights)
    return y, total, tape.gradient(total, [x, *encoder.trainable_variables])

  return compute(x)


def test_recomputation_changes_no_output_and_no_gradient(policy):
  """With dropout, whose masks have to be the same both times."""
  plain, encoder = recomputing(False), recomputing(True)
  encoder.set_weights(plain.get_weights())
  x = tf.constant(np.random.default_rng(0).normal(size=[B, S, H]), tf.float32)
  seed = tf.constant([4, 2])
  expected, _, expected_slopes = outputs_and_gradients(plain, x, seed)
  outputs, _, slopes = outputs_and_gradients(encoder, x, seed)
  assert len(outputs) == 4 and outputs[0].dtype == plain.compute_dtype
  for a, b in zip(expected, outputs):
    np.testing.assert_array_equal(a, b)
  for a, b in zip(expected_slopes, slopes):
    a, b = tf.convert_to_tensor(a), tf.convert_to_tensor(b)
    # The same products, but what flows back into a block's output is added
    # up in another order: a rounding of 0.4% in bfloat16, four times. The
    # bias of the keys, whose gradient is nothing but rounding, asks for the 10.
    share = 1e-5 if policy == "float32" else 0.03
    assert tf.norm(a - b) <= share * tf.maximum(tf.norm(a), 10.0)


def test_without_a_seed_both_computations_draw_the_same_masks():
  """Against finite differences: other masks would have another slope."""
  encoder = recomputing(True)
  rng = np.random.default_rng(0)
  x, way = rng.normal(size=[2, B, S, H]).astype(np.float32)
  ends = [
    float(outputs_and_gradients(encoder, tf.constant(x + h * way), None)[1])
    for h in (1e-2, -1e-2)
  ]
  slope = outputs_and_gradients(encoder, tf.constant(x), None)[2][0]
  np.testing.assert_allclose(
    (ends[0] - ends[1]) / 2e-2, np.sum(slope * way), rtol=0.02
  )


@pytest.mark.parametrize("recompute", [False, True])
def test_rows_are_rows_of_the_whole(recompute):
  """Twice the same row among them, and gradients only through the last."""
  encoder = make(recompute, num_hidden_layers=2, initializer_range=0.3)
  run(encoder)
  x = np.random.default_rng(0).normal(size=[B, S, H]).astype(np.float32)
  mask = tf.constant([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
  rows = tf.constant([[0, 3, 3], [2, 0, 1]])
  weights = np.random.default_rng(1).normal(size=[B, 3, H])

  @tf.function
  def compute(x, some):
    with tf.GradientTape() as tape:
      tape.watch(x)
      outputs = encoder(x, mask, training=True, rows=rows if some else None)
      last = outputs[-1]
      picked = last if some else tf.gather(last, rows, batch_dims=1)
      total = tf.reduce_sum(picked * weights)
    slopes = tape.gradient(total, [x, *encoder.trainable_variables])
    return outputs[0], picked, slopes

  expected = compute(tf.constant(x), False)
  got = compute(tf.constant(x), True)
  assert got[1].shape == [B, 3, H]
  for a, b in zip(tf.nest.flatten(expected), tf.nest.flatten(got)):
    np.testing.assert_allclose(a, b, atol=2e-5)


@pytest.mark.parametrize("layers", [1, 4])
def test_the_block_is_traced_once_whatever_the_depth(layers, monkeypatch):
  encoder = make(num_hidden_layers=layers, num_hidden_groups=1)
  run(encoder)
  attention, _ = next(encoder.blocks())
  plain, calls = attention.call, []

  def counting(*args, **kwargs):
    calls.append(1)
    return plain(*args, **kwargs)

  monkeypatch.setattr(attention, "call", counting)
  outputs_and_gradients(encoder, tf.zeros([B, S, H]), None)
  assert len(calls) == 1


def test_config_round_trip():
  encoder = make(True, sharing="ffn", inner_group_num=2)
  clone = type(encoder).from_config(encoder.get_config())
  assert clone.config == encoder.config
  assert clone.get_config() == encoder.get_config()
  assert clone.recompute_activations


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
@pytest.mark.parametrize("factor", [1.0, 0.25])
def test_the_variables_have_the_factor_and_the_input_has_not(
  factor, dtype, recompute
):
  rng = np.random.default_rng(0)
  kernel = tf.Variable(rng.normal(size=[5, 5]), dtype=tf.float32)
  x = tf.cast(rng.normal(size=[3, 5]), dtype)

  def block(x):
    return tf.tanh(tf.matmul(x, tf.cast(kernel, x.dtype)))

  def weighted(x):
    return shared_transformer_encoder.scaled(block, x, factor)

  def gradients(apply):
    with tf.GradientTape() as tape:
      tape.watch(x)
      y = apply(x)
    return y, *tape.gradient(y, [x, kernel])

  y, dx, dk = gradients(block)
  apply = weighted
  if recompute:
    apply = lambda x: shared_transformer_encoder.recomputed(weighted, x)  # noqa: E731
  got = gradients(apply)
  # A power of two: the factor itself rounds nothing.
  np.testing.assert_array_equal(got[0], y)
  np.testing.assert_array_equal(got[1], dx)
  np.testing.assert_array_equal(got[2], factor * dk)
  assert got[1].dtype == dtype


ROWS, WIDTH = 3, 5


def make_block():
  rng = np.random.default_rng(0)
  kernel = tf.Variable(
    rng.normal(size=[WIDTH, WIDTH]), dtype=tf.float32, name="k"
  )
  bias = tf.Variable(rng.normal(size=[WIDTH]), dtype=tf.float32, name="b")
  return [kernel, bias], lambda x: tf.tanh(tf.matmul(x, kernel) + bias)


def normal(seed):
  values = np.random.default_rng(seed).normal(size=[ROWS, WIDTH])
  return tf.constant(values, tf.float32)


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("applications", [1, 3])
def test_gradients_are_those_of_the_block(graph, applications):
  """Also when the variables are used many times, and elsewhere."""
  variables, block = make_block()

  def gradients(apply, x):
    with tf.GradientTape() as tape:
      tape.watch(x)
      y = x
      for _ in range(applications):
        y = apply(y)
      total = tf.reduce_sum(y * normal(2)) + tf.reduce_sum(variables[0] ** 2)
    return y, tape.gradient(total, [x, *variables])

  def ours(x):
    return gradients(
      lambda y: shared_transformer_encoder.recomputed(block, y), x
    )

  run = tf.function(ours) if graph else ours
  expected, got = gradients(block, normal(1)), run(normal(1))
  for a, b in zip(tf.nest.flatten(expected), tf.nest.flatten(got)):
    np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


def ancestors(op, data_only):
  seen, todo = set(), [op]
  while todo:
    op = todo.pop()
    if op.name not in seen:
      seen.add(op.name)
      todo.extend(x.op for x in op.inputs)
      todo.extend([] if data_only else op.control_inputs)
  return seen


def test_the_second_computation_waits_for_the_gradient():
  """By a control input for TensorFlow, and by data for XLA.

  Otherwise they merge both computations into one, and no memory is saved.
  """
  _, block = make_block()

  @tf.function
  def run(x, dy):
    with tf.GradientTape() as tape:
      tape.watch(x)
      y = shared_transformer_encoder.recomputed(block, x)
    return tape.gradient(y, x, dy)

  spec = tf.TensorSpec([ROWS, WIDTH])
  graph = run.get_concrete_function(spec, spec).graph
  first, second = [op for op in graph.get_operations() if op.type == "Tanh"]
  for data_only in (False, True):
    assert "dy" not in ancestors(first, data_only)
    assert "dy" in ancestors(second, data_only)
  controls = [c for op in graph.get_operations() for c in op.control_inputs]
  assert "dy" in [op.name for op in controls]


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16])
def test_values_keep_dtype_and_bits(dtype):
  x = tf.cast(normal(1), dtype)
  with tf.GradientTape() as tape:
    tape.watch(x)
    y = shared_transformer_encoder.recomputed(lambda x: tf.exp(-x), x)
  np.testing.assert_array_equal(y, tf.exp(-x))
  gradient = tape.gradient(y, x)
  assert gradient.dtype == dtype
  np.testing.assert_array_equal(gradient, -tf.exp(-x))


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
