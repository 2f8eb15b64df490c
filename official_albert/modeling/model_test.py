"""Tests of the models: golden values, inputs, padding, precision, saving."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from official_albert import AlbertModel
from official_albert.modeling import layers
from official_albert.modeling.classifier import AlbertForSequenceClassification
from official_albert.modeling.inputs import check_ids
from official_albert.testing import toy_models

B, S = 3, 7
SMALL = toy_models.config(29, 11, num_hidden_layers=3, initializer_range=0.3)


def batch(seed=0):
  rng = np.random.default_rng(seed)
  return {
    "input_ids": tf.constant(rng.integers(0, 29, [B, S]), tf.int32),
    "input_mask": tf.constant(np.arange(S) < [[S], [4], [2]], tf.int32),
    "segment_ids": tf.constant(rng.integers(0, 2, [B, S]), tf.int32),
  }


@pytest.fixture(scope="module")
def model():
  tf.keras.utils.set_random_seed(1)
  return AlbertModel(SMALL, name="mine")


def test_each_dropout_has_its_rate_and_its_own_seed(monkeypatch):
  """Those of the embedding, of three in each block, and of the classifier."""
  config = dataclasses.replace(
    SMALL, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.2
  )
  rates, seeds, logits = [], set(), []

  def record(x, rate, training, seed):
    rates.append(rate if training else 0.0)
    seeds.add(tuple(seed.numpy()))
    return 2 * x if len(rates) == doubled else x

  tf.keras.utils.set_random_seed(1)
  classifier = AlbertForSequenceClassification(config, 3, 0.5)
  monkeypatch.setattr(layers, "seeded_dropout", record)
  expected = [0.1, *[0.2, 0.1, 0.1] * config.num_hidden_layers, 0.5]
  for doubled in range(len(expected) + 1):
    rates.clear()
    logits.append(classifier(batch(), True, tf.constant([1, 2]))["logits"])
    assert rates == expected
    assert doubled == 0 or np.abs(logits[0] - logits[-1]).max() > 1e-4
  assert len(seeds) == len(expected)


@pytest.mark.parametrize("sharing", ["all", "attention", "ffn", "none"])
@pytest.mark.parametrize("embedding_size, projects", [(6, 0), (10, 0), (10, 1)])
@pytest.mark.parametrize("groups, inner", [(1, 1), (3, 2)])
def test_closed_form_count_equals_the_built_model(
  sharing, embedding_size, projects, groups, inner
):
  config = dataclasses.replace(
    SMALL,
    sharing=sharing,
    embedding_size=embedding_size,
    always_project_embedding=bool(projects),
    num_hidden_groups=groups,
    inner_group_num=inner,
  )
  assert AlbertModel(config).count_params() == config.parameter_count()


def test_padding_does_not_change_other_positions(model):
  inputs = batch()
  real = inputs["input_mask"].numpy() == 1
  other = {**inputs, "input_ids": tf.where(real, inputs["input_ids"], 28)}
  expected, changed = (
    model(x)["sequence_output"].numpy()[real] for x in (inputs, other)
  )
  np.testing.assert_array_equal(expected, changed)


def test_mask_and_segments_have_defaults(model):
  ids = batch()["input_ids"]
  mask, segments = tf.ones_like(ids), tf.zeros_like(ids)
  full = model({"input_ids": ids, "input_mask": mask, "segment_ids": segments})
  np.testing.assert_array_equal(
    full["sequence_output"], model({"input_ids": ids})["sequence_output"]
  )


def _ids(*shape):
  return tf.zeros(shape, tf.int32)


@pytest.mark.parametrize(
  "changes, message",
  [
    ({"attention_maks": _ids(B, S)}, "unknown input 'attention_maks': .*_mask"),
    ({"attention_mask": _ids(B, S)}, "attention_mask and input_mask are two"),
    ({"input_ids": _ids(B)}, r"input_ids must .* \[B, S\], got \[3\]"),
    ({"input_ids": tf.zeros([B, S])}, "input_ids must .*int32.*float32"),
    ({"input_ids": _ids(B, 12)}, "input_mask has .* input_ids has"),
    # TensorFlow would broadcast it.
    ({"input_mask": _ids(B, 1)}, "input_mask has .* input_ids has"),
    ({"segment_ids": tf.zeros([B, S])}, "segment_ids must .*float32"),
  ],
)
def test_wrong_inputs_are_refused(model, changes, message):
  with pytest.raises(ValueError, match=message):
    model({**batch(), **changes})


def test_missing_and_unnamed_inputs_are_refused(model):
  inputs, ids = batch(), batch()["input_ids"]
  for ask, message in (
    (lambda: model({"input_mask": ids}), "needs input_ids, got only: input_m"),
    (lambda: model([*inputs.values()]), "takes a dict, such as .*, not list"),
    (lambda: model(ids), r"dict, such as model\({'input_ids'"),
    (lambda: model.predict(ids, verbose=0), r"dict, such as model\({'input_"),
    (lambda: model(tf.keras.Input([S], dtype=tf.int32)), r"dict, such as mod"),
    (
      lambda: model(inputs, output_positions=_ids(B)),
      r"output_positions must .*\[B, Q\]",
    ),
  ):
    with pytest.raises(ValueError, match=message):
      ask()
  check_ids("input_ids", tf.zeros([3, 5], tf.int64))


@pytest.mark.parametrize(
  "name, value, message",
  [
    ("input_ids", SMALL.vocab_size, "the model has vocab_size"),
    ("input_ids", -1, "the lowest is -1"),
    ("token_type_ids", 2, "segment_ids must be from 0 to 1, as"),
  ],
)
def test_ids_out_of_range(model, name, value, message):
  wrong = np.ones([B, S], np.int32)
  wrong[1, 2] = value
  inputs = {"input_ids": _ids(B, S), name: wrong}
  for ask in (
    lambda: model(inputs),
    lambda: model.predict(inputs, verbose=0),
    lambda: model({n: tf.constant(x) for n, x in inputs.items()}),
  ):
    with pytest.raises(ValueError, match=message):
      ask()
  graph = tf.function(model)
  tensors = {n: tf.constant(x) for n, x in inputs.items()}
  with pytest.raises(
    tf.errors.InvalidArgumentError, match=rf"\[1,2\] = {value} is not in"
  ):
    graph(tensors)
  if name == "token_type_ids":  # Training takes no further operation.
    graph(tensors, training=True)
  model({"input_ids": np.zeros([0, S], np.int32)})


def test_graph_with_unknown_batch_and_length(model):
  spec = tf.TensorSpec([None, None], tf.int32)
  run = tf.function(
    lambda ids: model({"input_ids": ids})["sequence_output"],
    input_signature=[spec],
  )
  for shape in ([1, 1], [5, 3], [2, 11]):
    ids = tf.ones(shape, tf.int32)
    np.testing.assert_allclose(
      run(ids), model({"input_ids": ids})["sequence_output"], atol=1e-5
    )
  with pytest.raises(tf.errors.InvalidArgumentError, match="longer than"):
    run(_ids(B, 12))
  with pytest.raises(ValueError, match="only 11 position embeddings"):
    model({"input_ids": _ids(B, 12)})


def test_presets_have_random_weights_and_say_so():
  with pytest.warns(UserWarning, match="random weights: AlbertModel.from_che"):
    model = AlbertModel.from_preset("albert_tiny", name="mine")
  assert model.config.num_hidden_layers == 4 and model.name == "mine"
  with pytest.raises(FileNotFoundError, match="no checkpoint at albert_bose"):
    AlbertModel.from_checkpoint("albert_bose")
