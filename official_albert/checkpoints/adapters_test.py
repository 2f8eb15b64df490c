"""Tests of adapters and of merging them: first values, gradients, outputs."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from official_albert import AlbertModel, checkpoints, modeling
from official_albert.testing import toy_models

_CONFIG = toy_models.config(
  29,
  11,
  num_hidden_layers=3,
  num_hidden_groups=2,
  inner_group_num=2,
  adapter_rank=3,
  hidden_dropout_prob=0.2,
)
_RNG = np.random.default_rng(7)
_BATCH = {
  "input_ids": tf.constant(_RNG.integers(0, 29, [2, 7]), tf.int32),
  "input_mask": tf.sequence_mask([7, 4], 7, tf.int32),
}
_SEED = tf.constant([4, 2])


@pytest.fixture(params=["float32", "mixed_bfloat16"])
def policy(request):
  tf.keras.mixed_precision.set_global_policy(request.param)
  yield request.param
  tf.keras.mixed_precision.set_global_policy("float32")


def make(recompute=False, trained=True, **changes):
  """Returns a model; all weights of a trained one are random."""
  tf.keras.utils.set_random_seed(3)
  model = AlbertModel(dataclasses.replace(_CONFIG, **changes), recompute)
  rng = np.random.default_rng(5)
  for path, variable in sorted(checkpoints.by_path(model).items()):
    noise = rng.normal(0, 0.2, variable.shape)
    if trained or not path.startswith("encoder/adapters/"):
      variable.assign_add(noise.astype(np.float32))
  return model


def outputs(model, **kwargs):
  run = tf.function(lambda: dict(model(_BATCH, **kwargs)), autograph=False)
  return run()


@pytest.mark.parametrize(
  "kwargs",
  [
    {},
    {"training": True, "dropout_seed": _SEED},
    {"output_positions": tf.constant([[5, 2], [0, 6]])},
  ],
  ids=["inference", "training", "rows"],
)
def test_new_adapters_change_no_bit(policy, kwargs):
  del policy
  plain, adapted = make(adapter_rank=0), make(trained=False)
  own, other = map(checkpoints.by_path, (plain, adapted))
  for path, variable in own.items():
    other[path].assign(variable)
  assert len(other) == len(own) + 8
  expected, got = outputs(plain, **kwargs), outputs(adapted, **kwargs)
  tf.nest.map_structure(np.testing.assert_array_equal, expected, got)


def test_names_shapes_and_first_values():
  plain, model = make(adapter_rank=0), make(trained=False)
  assert plain.encoder.adapters is None
  assert model.count_params() == model.config.parameter_count()
  variables = {
    name: variable
    for name, variable in vars(model.encoder.adapters).items()
    if isinstance(variable, tf.Variable)
  }
  # Six blocks of rank 3; H is 10 and I is 14.
  assert {name: x.shape.as_list() for name, x in variables.items()} == {
    "attention_a": [6, 10, 3],
    "attention_b": [6, 3, 30],
    "attention_output_a": [6, 10, 3],
    "attention_output_b": [6, 3, 10],
    "ffn_a": [6, 10, 3],
    "ffn_b": [6, 3, 14],
    "ffn_output_a": [6, 14, 3],
    "ffn_output_b": [6, 3, 10],
  }
  # Each is drawn on its own.
  assert (variables["attention_a"] != variables["ffn_a"]).numpy().all()
  for name, variable in variables.items():
    assert np.std(variable) == pytest.approx(
      0.0 if name.endswith("_b") else 0.2 * 0.88, rel=0.2, abs=0
    )


@pytest.mark.parametrize("rows", [None, tf.constant([[5, 2], [0, 6]])])
def test_each_application_has_its_own_difference(rows):
  """The merged model has a block for each layer, and no adapters."""
  model = make()
  stored = checkpoints.tf1_variables(model)
  merged = checkpoints.merge_adapters(
    checkpoints.PortableCheckpoint("x", _CONFIG, stored, "none")
  )
  assert merged.config == dataclasses.replace(
    _CONFIG, adapter_rank=0, num_hidden_groups=3
  )
  assert {row.tf1 for row in merged.rows} == {*merged.tensors}
  other = AlbertModel(merged.config)
  assert not checkpoints.fill(other, merged).missing
  expected, got = (outputs(x, output_positions=rows) for x in (model, other))
  for a, b in zip(expected["encoder_outputs"], got["encoder_outputs"]):
    np.testing.assert_allclose(a, b, rtol=0, atol=2e-5)
  # Without them, it is another model.
  shared = {name: x for name, x in stored.items() if "adapters" not in name}
  plain = AlbertModel(dataclasses.replace(_CONFIG, adapter_rank=0))
  shared_only = dataclasses.replace(merged, config=plain.config, tensors=shared)
  assert not checkpoints.fill(plain, shared_only).missing
  y = outputs(plain)["sequence_output"]
  assert np.abs(y - outputs(model)["sequence_output"]).max() > 0.1


def test_gradients_reach_all_variables(policy):
  del policy

  def gradients(model):
    names = checkpoints.by_path(model)
    names = {k: x for k, x in names.items() if not k.startswith("pooler/")}
    with tf.GradientTape() as tape:
      y = model(_BATCH, training=True, dropout_seed=_SEED)["sequence_output"]
      loss = tf.reduce_sum(tf.cast(y, tf.float32) ** 3)
    found = tape.gradient(loss, list(names.values()))
    return dict(zip(names, map(tf.convert_to_tensor, found)))

  found = gradients(make())
  assert sum(name.startswith("encoder/adapters/") for name in found) == 8
  for name, value in found.items():
    each = value if name.startswith("encoder/adapters/") else [value]
    # Only softmax ignores the biases of keys.
    if not name.endswith("key/bias"):
      assert all(np.any(x != 0) for x in each), name
  # At the start, A has none, because B is zero.
  for name, value in gradients(make(trained=False)).items():
    if name.startswith("encoder/adapters/"):
      assert np.any(np.asarray(value) != 0) == name.endswith("_b"), name
  # Recomputation gives the same, to the bit.
  for name, value in gradients(make(recompute=True)).items():
    np.testing.assert_array_equal(value, found[name], err_msg=name)


def test_other_depths_are_refused():
  model = make(num_hidden_groups=1)
  assert model.config.at_depth(3) is model.config
  with pytest.raises(ValueError, match="adapter_rank 3 and 3 layers cannot"):
    model(_BATCH, num_layers=2)


def test_layers_without_adapters_are_called_alone():
  """A sublayer that is called alone has no application, so no adapter."""
  layer = modeling.FeedForward(_CONFIG)
  assert layer(tf.zeros([2, 3, 10])).shape == (2, 3, 10)
