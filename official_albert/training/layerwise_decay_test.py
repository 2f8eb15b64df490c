"""Tests of the decay by application, against copies that share nothing."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from official_albert import AlbertConfig, AlbertModel, modeling
from official_albert.testing import toy_task
from official_albert.training import (
  OPTIMIZERS,
  layerwise_decay,
  optimization,
  train_config,
)

D = 0.7
CONFIG = AlbertConfig(
  vocab_size=19,
  embedding_size=6,
  hidden_size=10,
  num_hidden_layers=3,
  num_attention_heads=2,
  intermediate_size=14,
  max_position_embeddings=11,
  initializer_range=0.3,
)
BATCH = {
  "input_ids": tf.constant([[2, 7, 11, 3, 5], [2, 13, 4, 3, 0]]),
  "input_mask": tf.constant([[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]]),
}


def made(decay=1.0, recompute=False, seed=1, **changes):
  tf.keras.utils.set_random_seed(seed)
  config = dataclasses.replace(CONFIG, **changes)
  return AlbertModel(config, recompute, decay)


def gradients(model, training=False):
  """Of a number that the pooled output and a layer have parts in.

  There is no dropout; recomputation is for training.
  """

  @tf.function
  def compute():
    with tf.GradientTape() as tape:
      outputs = model(BATCH, training=training)
      rng = np.random.default_rng(0)
      total = sum(
        tf.reduce_sum(tf.cast(x, tf.float32) * rng.normal(size=x.shape))
        for x in (outputs["pooled_output"], outputs["encoder_outputs"][0])
      )
    return tape.gradient(total, model.trainable_variables)

  return {
    v.ref(): tf.convert_to_tensor(g).numpy()
    for v, g in zip(model.trainable_variables, compute())
  }


def unshared_copy(model):
  """A model with own variables in every layer, and equal values in them."""
  copy = made(
    seed=2,
    **{
      **dataclasses.asdict(model.config),
      "sharing": "none",
      "num_hidden_groups": 1,
    },
  )
  for part in ("embedding", "pooler"):
    getattr(copy, part).set_weights(getattr(model, part).get_weights())
  for source, target in zip(model.encoder.blocks(), copy.encoder.blocks()):
    for a, b in zip(source, target):
      b.set_weights(a.get_weights())
  return copy


@pytest.mark.parametrize(
  "changes, recompute",
  [
    (dict(), False),
    (dict(sharing="attention"), False),
    (dict(sharing="ffn"), True),
    (dict(sharing="none"), False),
    (dict(num_hidden_layers=4, num_hidden_groups=2), True),
    (dict(num_hidden_layers=2, inner_group_num=2), False),
  ],
  ids=["all", "attention", "ffn", "none", "groups", "inner_groups"],
)
def test_rate_times_gradient_is_that_of_a_rate_for_each_layer(
  changes, recompute
):
  """Multiplier times gradient = the sum of d^(L-1-k) times layer k's part."""
  model = made(D, recompute, **changes)
  copy = unshared_copy(model)
  parts, got = gradients(copy), gradients(model, recompute)
  layers = model.config.num_hidden_layers
  expected = {}
  for index, (pair, own) in enumerate(
    zip(model.encoder.blocks(), copy.encoder.blocks())
  ):
    layer = index // model.config.inner_group_num
    for half, own_half in zip(pair, own):
      for v, w in zip(half.trainable_variables, own_half.trainable_variables):
        part = D ** (layers - 1 - layer) * parts[w.ref()]
        expected[v.ref()] = expected.get(v.ref(), 0) + part
  for v, w in zip(
    model.embedding.trainable_variables, copy.embedding.trainable_variables
  ):
    expected[v.ref()] = D**layers * parts[w.ref()]
  for v, w in zip(
    model.pooler.trainable_variables, copy.pooler.trainable_variables
  ):
    expected[v.ref()] = parts[w.ref()]
  rates = {v.ref(): f for v, f in model.rate_multipliers()}
  assert expected.keys() == got.keys()
  for v in model.trainable_variables:
    value = rates.get(v.ref(), 1.0) * got[v.ref()]
    scale = np.abs(parts[next(iter(parts))]).max()
    np.testing.assert_allclose(
      value, expected[v.ref()], rtol=1e-4, atol=1e-5 * scale, err_msg=v.name
    )


def test_what_each_sharing_leaves_to_the_optimizer():
  shared = made(D)
  known = {v.ref(): f for v, f in shared.rate_multipliers()}
  for v in shared.encoder.trainable_variables:
    assert known[v.ref()] == 1.0
  for v in shared.embedding.trainable_variables:
    assert known[v.ref()] == pytest.approx(D**3)
  assert shared.pooler.kernel.ref() not in known
  # A rate for each layer, and gradients that are those without decay.
  own, plain = made(D, sharing="none"), made(sharing="none")
  known = {v.ref(): f for v, f in own.rate_multipliers()}
  for layer, block in enumerate(own.encoder.blocks()):
    for half in block:
      for v in half.trainable_variables:
        assert known[v.ref()] == pytest.approx(D ** (2 - layer))
  for a, b in zip(gradients(own).values(), gradients(plain).values()):
    np.testing.assert_array_equal(a, b)


def test_the_decay_changes_gradients_and_no_output():
  model, plain = made(D), made()
  for name in ("sequence_output", "pooled_output"):
    np.testing.assert_array_equal(
      model(BATCH, training=True)[name], plain(BATCH, training=True)[name]
    )
  norms = [
    [np.linalg.norm(g) for g in gradients(m).values()] for m in (model, plain)
  ]
  differ = [abs(a / b - 1) > 0.01 for a, b in zip(*norms) if b > 1e-3]
  assert sum(differ) > 10


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_optimizer_moves_a_variable_by_its_rate(name, policy):
  tf.keras.mixed_precision.set_global_policy(policy)
  try:
    layers = [tf.keras.layers.Dense(3) for _ in range(3)]
    for layer in layers:
      layer.build([None, 2])
      layer.kernel.assign([[1.0, 2.0, -1.0], [0.5, -0.5, 3.0]])
    variables = [layer.kernel for layer in layers]
    optimizer = optimization.make_optimizer(name, 0.1)
    optimizer.set_rate_multipliers([(variables[0], 0.5), (variables[2], 0.1)])
    before = variables[0].numpy()
    g = tf.constant([[1.0, -2.0, 0.5], [3.0, 1.0, -1.0]])

    @tf.function
    def update():
      optimizer.apply_gradients([(g, v) for v in variables])

    update()
    half, whole, tenth = (v.numpy() - before for v in variables)
    assert np.abs(whole).max() > 0.01
    np.testing.assert_allclose(half, 0.5 * whole, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(tenth, 0.1 * whole, rtol=1e-4, atol=1e-6)
    rates = [optimizer.rate_multiplier(v) for v in variables]
    assert rates == [0.5, 1.0, 0.1]
  finally:
    tf.keras.mixed_precision.set_global_policy("float32")


def test_the_head_keeps_the_rate():
  model = modeling.AlbertForSequenceClassification(
    CONFIG, 3, layerwise_lr_decay=D
  )
  pairs = layerwise_decay.rate_multipliers(model, D)
  assert {v.name.split("/")[0] for v, _ in pairs}.isdisjoint({"classifier"})
  embeddings = model.albert.embedding.trainable_variables
  assert len(pairs) == len(embeddings)
  assert all(factor == pytest.approx(D**3) for _, factor in pairs)
  assert {v.ref() for v, _ in pairs} == {v.ref() for v in embeddings}
  clone = type(model).from_config(model.get_config())
  assert clone.albert.layerwise_lr_decay == D


def test_settings_and_model_have_to_agree(tmp_path):
  assert layerwise_decay.rate_multipliers(made(), 1.0) == []
  with pytest.raises(ValueError, match="is 0.7 in the settings, .* with 1.0"):
    layerwise_decay.rate_multipliers(made(), 0.7)
  with pytest.raises(ValueError, match="is 1.0 in the settings, .* with 0.7"):
    layerwise_decay.rate_multipliers(made(0.7), 1.0)
  with pytest.raises(ValueError, match="is 0.9 in the settings"):
    cfg = toy_task.config(tmp_path, layerwise_lr_decay=0.9)
    toy_task.run(toy_task.ToyTask(), cfg)


@pytest.mark.parametrize("decay", [0.0, -0.5, 1.5, float("nan")])
def test_factors_that_are_none(decay):
  with pytest.raises(ValueError, match=r"must be in \(0, 1\], got"):
    train_config.TrainConfig("run", 6, 2, 0.01, 12, layerwise_lr_decay=decay)
  with pytest.raises(ValueError, match=r"must be in \(0, 1\], got"):
    made(decay)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
