"""A frozen encoder computes what the model does."""

from __future__ import annotations

import gc
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from official_albert import AlbertModel, settings
from official_albert.serving import frozen_encoder
from official_albert.testing import toy_models

_LAYERS = {"num_hidden_layers": 3}
_IDS = tf.TensorSpec([None, None], tf.int32, "input_ids")
_RNG = np.random.default_rng(3)
_FEATURES = {
  "input_ids": tf.constant(_RNG.integers(0, 97, [3, 7]), tf.int32),
  "input_mask": tf.sequence_mask([7, 2, 5], 7, tf.int32),
  "segment_ids": tf.constant(_RNG.integers(0, 2, [3, 7]), tf.int32),
}


def _model(**changes) -> AlbertModel:
  """A model without zeros, which would hide a missing bias."""
  model = AlbertModel(toy_models.config(97, 14, **_LAYERS | changes))
  generator = np.random.default_rng(5)
  for variable in model.variables:
    noise = generator.normal(0, 0.3, variable.shape)
    variable.assign_add(noise.astype(np.float32))
  return model


def _frozen(model):
  return tf.function(frozen_encoder.freeze_encoder(model, "float32"))


@pytest.mark.parametrize(
  "changes",
  [
    {},
    {"num_hidden_layers": 4, "num_hidden_groups": 2, "inner_group_num": 2},
    {"sharing": "attention"},
    {"sharing": "none"},
    {"embedding_size": 10},
    {"embedding_size": 10, "always_project_embedding": True},
    {"hidden_act": "relu"},
    {"hidden_act": "gelu_erf"},
    {"num_hidden_groups": 2, "inner_group_num": 2, "adapter_rank": 3},
  ],
  ids=lambda changes: ",".join(f"{k}={v}" for k, v in changes.items()),
)
def test_it_equals_the_model(changes):
  model = _model(**changes)
  _compare(model, _frozen(model), _FEATURES["input_mask"])


def _compare(model, frozen, mask, is_padding=None):
  """Compares outputs; those of padding, not input_mask 0, are 0."""
  features = {**_FEATURES, "input_mask": mask}
  expected, got = model(features), frozen(features)
  is_padding = mask == 0 if is_padding is None else is_padding
  sequence = tf.where(is_padding[..., None], 0.0, expected["sequence_output"])
  # Sums of at most 14 numbers of size 3, in another order, in three layers.
  exact = {"rtol": 0, "atol": 5e-5}
  np.testing.assert_allclose(got["sequence_output"], sequence, **exact)
  pooled = expected["pooled_output"]
  np.testing.assert_allclose(got["pooled_output"], pooled, **exact)


def test_only_padding_at_the_end_is_not_computed():
  model = _model()
  frozen = _frozen(model)
  mask = [[0, 1, 0, 1, 1, 0, 0], [0] * 7, [0, 0, 0, 0, 0, 1, 1]]
  is_padding = np.zeros([3, 7], bool)
  is_padding[0, 5:] = True
  # 19 of 21 positions: more than nine tenths, so all are computed.
  _compare(model, frozen, tf.constant(mask), is_padding)
  mask[2], is_padding[2, 3:] = [1, 1, 1, 0, 0, 0, 0], True
  _compare(model, frozen, tf.constant(mask), is_padding)
  mask[0], is_padding[0, 1:] = [1, 0, 0, 0, 0, 0, 0], True
  _compare(model, frozen, tf.constant(mask), is_padding)


def test_optional_features_and_chosen_positions():
  model, positions = _model(), tf.constant([[5, 2], [0, 6], [1, 1]])
  features = {"input_ids": _FEATURES["input_ids"]}
  frozen = _frozen(model)
  for inputs in (features, _FEATURES):  # Without padding, and with it.
    expected = model(inputs, output_positions=positions)
    got = frozen(inputs, output_positions=positions)
    sequence = expected["sequence_output"].numpy()
    if inputs is _FEATURES:
      sequence[1, 2] = 0.0  # Position 6 of two tokens.
    exact = {"rtol": 0, "atol": 2e-5}
    np.testing.assert_allclose(got["sequence_output"], sequence, **exact)
    pooled = expected["pooled_output"]
    np.testing.assert_allclose(got["pooled_output"], pooled, **exact)


@pytest.mark.parametrize(
  "changes, functions",
  [({}, 1), ({"num_hidden_groups": 3}, 3), ({"adapter_rank": 3}, 1)],
)
def test_the_graph_has_each_block_once(changes, functions):
  concrete = _frozen(_model(**changes)).get_concrete_function(
    {"input_ids": _IDS}
  )
  graph = concrete.graph.as_graph_def()
  nodes = [n for f in graph.library.function for n in f.node_def]
  calls = [n.attr["f"].func.name for n in nodes if "Call" in n.op]
  # For batches with and without padding.
  assert len(calls) == 2 * 3 and len(set(calls)) == 2 * functions
  # A server may have no XLA compiler.
  for node in [*graph.node, *nodes]:
    assert "_XlaMustCompile" not in node.attr


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_signatures_share_one_copy(tmp_path, precision):
  dtype = settings.EXPORT_PRECISIONS[precision]
  model = AlbertModel(toy_models.config(9997, 14), dtype=dtype)
  frozen = frozen_encoder.freeze_encoder(model, precision)
  run = frozen_encoder.FrozenFunction(
    lambda features: {"pooled": frozen(features)["pooled_output"]}, [_IDS]
  )
  root = tf.Module()
  root.weights = run.weights
  signatures = {
    name: tf.function(run).get_concrete_function({"input_ids": _IDS})
    for name in ("one", "other")
  }
  tf.saved_model.save(root, str(tmp_path), signatures=signatures)
  data = tmp_path / "variables" / "variables.data-00000-of-00001"
  # Nearly all weights are those of the embedding, which stay float32; biases
  # and the weights of LayerNorm are constants of the graph.
  weights = sum(tf.size(v).numpy() for v in model.variables)
  assert 0.95 < os.path.getsize(data) / weights / 4 < 1.01


def test_a_frozen_function_outlives_its_model():
  models = [_model()]
  run = frozen_encoder.FrozenFunction(
    lambda features: {"pooled": models[0](features)["pooled_output"]}, [_IDS]
  )
  expected = tf.function(run)(_FEATURES)["pooled"]
  models.clear()
  gc.collect()
  pooled = tf.function(run)(_FEATURES)["pooled"]
  np.testing.assert_array_equal(pooled, expected)


_THREADS = """
from concurrent import futures
import numpy as np
import tensorflow as tf
from official_albert import AlbertModel
from official_albert.serving import frozen_encoder
from official_albert.testing import toy_models

model = AlbertModel(toy_models.config(97, 14))
frozen = frozen_encoder.freeze_encoder(model, "float32")
run = tf.function(
  lambda ids: frozen({"input_ids": ids})["pooled_output"],
  input_signature=[tf.TensorSpec([None, None], tf.int32)],
)
requests = [tf.ones([1, 1 + length], tf.int32) for length in range(8)]
expected = [run(ids).numpy() for ids in requests]

def ask(ids, values):
  for _ in range(150):
    np.testing.assert_allclose(run(ids).numpy(), values, atol=1e-5)

with futures.ThreadPoolExecutor(8) as pool:
  print(len(list(pool.map(ask, requests, expected))))
"""


def test_threads_may_ask_with_different_lengths():
  """A kernel that is not safe damages the memory of the process."""
  done = subprocess.run(
    [sys.executable, "-c", _THREADS], capture_output=True, text=True
  )
  assert (done.returncode, done.stdout) == (0, "8\n"), done.stderr
