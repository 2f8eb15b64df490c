"""Rows that leave early have the outputs of a model with so many layers."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from official_albert import (
  AlbertForSequenceClassification,
  AlbertModel,
  serving,
)
from official_albert.testing import toy_models

_LABELS, _DEPTH = ("bad", "good", "so so"), 5
_RNG = np.random.default_rng(3)
_LENGTHS = [7, 2, 5, 4]
_FEATURES = {
  "input_ids": tf.constant(_RNG.integers(0, 97, [4, 7]), tf.int32),
  "input_mask": tf.sequence_mask(_LENGTHS, 7, tf.int32),
  "segment_ids": tf.constant(_RNG.integers(0, 2, [4, 7]), tf.int32),
}


def _model(kind=AlbertForSequenceClassification, dtype="float32", **changes):
  changes = {"num_hidden_layers": _DEPTH, **changes}
  tf.keras.utils.set_random_seed(7)
  config = toy_models.config(97, 14, **changes)
  model = kind(config, *([3] if kind is not AlbertModel else []), dtype=dtype)
  generator = np.random.default_rng(5)
  for variable in model.variables:
    noise = generator.normal(0, 0.5, variable.shape)
    variable.assign_add(tf.cast(noise, variable.dtype))
  return model


def _ask(model, precision="float32"):
  """Returns the signature for ids with the depth as input."""
  served = serving.ServedTextTask(model, None, 14, _LABELS, False)
  served.freeze(precision)
  function = served.signatures("ids", at_depth=True)["ids_at_depth"]

  def ask(exit_layer, exit_threshold=(0.0,) * 4, rows=slice(4)):
    return function(
      exit_layer=tf.constant(exit_layer, tf.int32),
      exit_threshold=tf.constant(exit_threshold, tf.float32),
      **{name: x[rows] for name, x in _FEATURES.items()},
    )

  return ask


@pytest.fixture(scope="module")
def model():
  return _model()


@pytest.fixture(scope="module")
def ask(model):
  return _ask(model)


@pytest.mark.parametrize("changes", [{}, {"inner_group_num": 2}])
def test_every_depth_is_that_of_the_model(changes):
  model = _model(**changes)
  ask = _ask(model)
  wanted = [model(_FEATURES, num_layers=1 + d)["logits"] for d in range(_DEPTH)]
  for depth in range(_DEPTH):
    found = ask([1 + depth] * 4)
    # Sums of at most 14 numbers of size 1, in another order.
    np.testing.assert_allclose(
      found["logits"], wanted[depth], rtol=0, atol=2e-5
    )
    assert found["exit_layer"].numpy().tolist() == [1 + depth] * 4
  np.testing.assert_array_equal(ask([0] * 4)["logits"], ask([5] * 4)["logits"])
  # Each row has its own depth, and keeps its place.
  depths = [3, 1, 0, 2]
  found = ask(depths)
  assert found["exit_layer"].numpy().tolist() == [3, 1, 5, 2]
  for row, depth in enumerate(depths):
    logits = wanted[depth - 1][row]
    np.testing.assert_allclose(found["logits"][row], logits, rtol=0, atol=2e-5)


@pytest.mark.parametrize(
  "changes",
  [{"sharing": "none"}, {"num_hidden_groups": 2}, {"adapter_rank": 2}],
)
def test_layers_with_weights_of_their_own(changes):
  model = _model(num_hidden_layers=4, **changes)
  ask, hidden = _ask(model), model(_FEATURES)["encoder_outputs"]
  for depth in range(4):
    pooled = tf.tanh(model.albert.pooler(hidden[depth][:, 0]))
    np.testing.assert_allclose(
      ask([1 + depth] * 4)["logits"], model.classifier(pooled), atol=2e-5
    )


def test_rows_leave_when_a_class_reaches_the_threshold(ask):
  each = [ask([1 + depth] * 4) for depth in range(_DEPTH)]
  highest = np.stack([x["probabilities"].numpy().max(1) for x in each])
  ways = set()
  for threshold in np.sort(highest.ravel()) - 1e-4:
    reached = highest >= threshold
    wanted = np.where(reached.any(0), reached.argmax(0), _DEPTH - 1)
    found = ask([0] * 4, [threshold] * 4)
    assert (found["exit_layer"].numpy() == 1 + wanted).all()
    logits = [each[layer]["logits"][row] for row, layer in enumerate(wanted)]
    np.testing.assert_allclose(found["logits"], logits, rtol=0, atol=2e-5)
    ways.add(tuple(wanted))
    # The most layers count, too, and the thresholds of the other rows do not.
    found = ask([2] * 4, [threshold, 0, 1, 0])
    wanted = np.minimum(1 + wanted, 2)
    assert found["exit_layer"].numpy().tolist() == [wanted[0], 2, 2, 2]
  assert len(ways) > 4 and (0,) * 4 in ways  # All leave after the first layer.


@pytest.mark.parametrize(
  "exit_layers, sizes",
  [
    ([3, 1, 0, 3], [4, 3, 3, 1, 1]),
    # 13 rows leave in steps of 3, the others fill up the batch.
    ([1, 4, 2, 0, 1, 2, 2, 4, 1, 1, 2, 0, 3], [13, 9, 6, 6, 3]),
  ],
)
def test_rows_that_have_left_are_not_computed(model, exit_layers, sizes):
  served = serving.ServedTextTask(model, None, 14, _LABELS, False)
  served.freeze("float32")
  blocks, found = served.model.albert.encoder, []
  apply_layer = blocks.apply_layer

  def count(layer, x, padding, batch, length):
    found.append(int(batch))
    return apply_layer(layer, x, padding, batch, length)

  blocks.apply_layer = count
  rows = np.arange(len(exit_layers)) % 4
  outputs = served._at_depth(
    lambda module: module.ids_outputs(
      {name: tf.gather(x, rows) for name, x in _FEATURES.items()}
    ),
    exit_layer=tf.constant(exit_layers),
    exit_threshold=tf.zeros([len(exit_layers)]),
  )
  assert found == sizes
  wanted = [x or _DEPTH for x in exit_layers]
  assert outputs["exit_layer"].numpy().tolist() == wanted
  for row, depth in enumerate(wanted):
    logits = model(_FEATURES, num_layers=depth)["logits"][rows[row]]
    np.testing.assert_allclose(outputs["logits"][row], logits, atol=2e-5)


def test_a_batch_without_rows(ask):
  found = ask([], [], slice(0))
  assert found["logits"].shape == (0, 3) and found["exit_layer"].shape == (0,)


def test_bfloat16():
  ask, exact = _ask(_model(dtype="mixed_bfloat16"), "bfloat16"), _ask(_model())
  for depth in (1, 3, 0):
    found, wanted = ask([depth] * 4), exact([depth] * 4)
    # Eight bits of products in up to five layers.
    np.testing.assert_allclose(found["logits"], wanted["logits"], atol=0.2)
    assert (found["exit_layer"] == wanted["exit_layer"]).numpy().all()


def test_all_positions_of_an_encoder():
  model = _model(AlbertModel)
  served = serving.ServedEncoder(model, None, 14)
  served.freeze("float32")
  function = served.signatures("ids", at_depth=True)["ids_at_depth"]
  found = function(**_FEATURES, exit_layer=tf.constant([2, 5, 1, 2]))
  assert "exit_threshold" not in function.structured_input_signature[1]
  for row, depth in enumerate([2, 5, 1, 2]):
    wanted = model(_FEATURES, num_layers=depth)
    for name in ("sequence_output", "pooled_output"):
      np.testing.assert_allclose(
        found[name][row], wanted[name][row], rtol=0, atol=2e-5
      )


@pytest.mark.parametrize(
  "exit_layer, exit_threshold, message",
  [
    ([1, 2, 6, 1], [0.0] * 4, "exit_layer must have a value from 0 to 5 for"),
    ([1, 2, -1, 1], [0.0] * 4, "exit_layer must have a value from 0 to 5 for"),
    ([1, 2, 1], [0.0] * 4, "exit_layer must have a value from 0 to 5 for each"),
    ([1] * 4, [0.0, 1.1, 0, 0], "exit_threshold must have a value from 0 to 1"),
    ([1] * 4, [np.nan] * 4, "exit_threshold must have a value from 0 to 1 for"),
    ([1] * 4, [0.5], "exit_threshold must have a value from 0 to 1 for each"),
  ],
)
def test_wrong_depths(ask, exit_layer, exit_threshold, message):
  with pytest.raises(tf.errors.InvalidArgumentError, match=message):
    ask(exit_layer, exit_threshold)
