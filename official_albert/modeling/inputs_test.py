"""Tests of the checks of model inputs."""

from __future__ import annotations

import pytest
import tensorflow as tf

from official_albert.modeling import inputs

POSITIONS = 11


def test_check_ids_names_the_tensor():
  inputs.check_ids("input_ids", tf.zeros([3, 5], tf.int64))
  with pytest.raises(ValueError, match=r"input_ids .*\[B, S\], got \[3\]"):
    inputs.check_ids("input_ids", tf.zeros([3], tf.int32))
  with pytest.raises(ValueError, match="input_mask .*int32.*float32"):
    inputs.check_ids("input_mask", tf.zeros([3, 5]))


@pytest.mark.parametrize("name", ["input_mask", "segment_ids"])
@pytest.mark.parametrize("shape", [(3, 1), (1, 5), (3, 4)])
def test_encoder_inputs_do_not_broadcast(name, shape):
  values = {
    "input_ids": tf.zeros([3, 5], tf.int32),
    name: tf.ones(shape, tf.int32),
  }
  with pytest.raises(ValueError, match=f"{name} has .* input_ids has"):
    inputs.encoder_inputs(values, POSITIONS)
  with pytest.raises(ValueError, match=f"{name} .*float32"):
    inputs.encoder_inputs({**values, name: tf.ones([3, 5])}, POSITIONS)


def test_long_sequences_are_refused():
  def encoder_ids(ids):
    return inputs.encoder_inputs({"input_ids": ids}, POSITIONS)[0]

  with pytest.raises(ValueError, match="only 11 position embeddings"):
    encoder_ids(tf.zeros([3, POSITIONS + 1], tf.int32))
  any_length = tf.function(
    encoder_ids, input_signature=[tf.TensorSpec([None, None], tf.int32)]
  )
  assert any_length(tf.zeros([3, POSITIONS], tf.int32)).shape == [3, POSITIONS]
  with pytest.raises(tf.errors.InvalidArgumentError, match="longer than"):
    any_length(tf.zeros([3, POSITIONS + 1], tf.int32))


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
