"""Exports in bfloat16 are as exact on other machines."""

from __future__ import annotations

import functools
import sys

import numpy as np
import pytest
import tensorflow as tf

from official_albert.serving import frozen_encoder
from official_albert.testing import bfloat16


@functools.cache
def _exact(kind="random"):
  """Returns the model, and the last layer, in float32."""
  model = bfloat16.model(kind)
  return model, bfloat16.last_layer(model)


@functools.cache
def _frozen(kind="random"):
  model = bfloat16.model(kind, "mixed_bfloat16")
  return frozen_encoder.freeze_encoder(model, "bfloat16")


@pytest.mark.parametrize("kind", bfloat16.BOUNDS)
def test_the_error_of_a_frozen_encoder(kind):
  error = bfloat16.rms(bfloat16.last_layer(_frozen(kind)), _exact(kind)[1])
  assert 0.001 < error < bfloat16.BOUNDS[kind]


def _export(folder):
  frozen = _frozen()

  def encode(features):
    outputs = frozen(features)
    states = tf.reshape(outputs["sequence_output"], [-1, 256])[:, 192:]
    scores = frozen.embedding.vocabulary_scores(states)
    return {"sequence_output": outputs["sequence_output"], "scores": scores}

  specs = [
    tf.TensorSpec([None, None], tf.int32, name) for name in bfloat16.features()
  ]
  root = tf.Module()
  root.run = frozen_encoder.FrozenFunction(encode, specs)
  root.weights = root.run.weights
  signature = tf.function(root.run).get_concrete_function(
    {spec.name: spec for spec in specs}
  )
  tf.saved_model.save(root, folder, signatures={"encode": signature})


def _serve(folder):
  """Returns the encoder's output, and checks it and the scores."""
  loaded = tf.saved_model.load(folder)  # Keeps the variables.
  encode = loaded.signatures["encode"]
  model, exact = _exact()
  served = bfloat16.last_layer(lambda x: encode(**x))
  assert bfloat16.rms(served, exact) < bfloat16.BOUNDS["random"]
  outputs = encode(**bfloat16.features())
  states = tf.reshape(outputs["sequence_output"], [-1, 256])[:, 192:]
  table = tf.cast(model.embedding.word_embeddings, tf.bfloat16)
  states, table = (tf.cast(x, tf.float64) for x in (states, table))
  bfloat16.check_rounded(
    outputs["scores"], tf.matmul(states, table, transpose_b=True)
  )
  return served


_ELSEWHERE = """
import sys
from official_albert.serving import rounding_test
rounding_test._serve(sys.argv[1])
rounding_test._export(sys.argv[2])
"""


def test_exports_are_right_on_other_machines(tmp_path):
  here, there = str(tmp_path / "here"), str(tmp_path / "there")
  _export(here)
  bfloat16.run_without_onednn(sys.executable, "-c", _ELSEWHERE, here, there)
  # TensorFlow's optimizer must not choose for the products' kernel.
  expected = bfloat16.last_layer(_frozen())
  for folder in (here, there):
    np.testing.assert_array_equal(_serve(folder), expected)
