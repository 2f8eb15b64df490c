"""Tests of exports in TensorFlow's C library."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from official_albert.tools.benchmarks.peers import c_api


class _Module(tf.Module):
  """Adds up features, as the second of two signatures."""

  @tf.function(
    input_signature=[
      tf.TensorSpec([None, None], tf.int32, name=name)
      for name in ("input_ids", "input_mask", "segment_ids")
    ]
  )
  def ids(self, input_ids, input_mask, segment_ids):
    tf.debugging.assert_less(input_ids, 97, "too large")
    total = 100 * input_ids + 10 * input_mask + segment_ids
    total = tf.cast(total, tf.float32)
    return {"pooled_output": total / 2, "sequence_output": total}

  @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
  def encode(self, text):
    return {"a": text}


def test_a_signature_is_called(tmp_path):
  module = _Module()
  signatures = {"encode": module.encode, "ids": module.ids}
  tf.saved_model.save(module, str(tmp_path / "é"), signatures)
  model = c_api.Model(str(tmp_path / "é"), 2)
  assert model.version == tf.__version__
  ids = np.arange(6, dtype=np.int32).reshape(2, 3)
  features = {"segment_ids": ids % 2, "input_mask": ids + 1, "input_ids": ids}
  for rows in (2, 1, 0):
    found = model({name: value[:rows] for name, value in features.items()})
    expected = (100 * ids + 10 * (ids + 1) + ids % 2) / 2
    np.testing.assert_array_equal(found, expected[:rows])
    assert found.dtype == np.float32
  with pytest.raises(ValueError, match="too large"):
    model({**features, "input_ids": ids + 97})
  np.testing.assert_array_equal(model(features), expected)


def test_other_folders_are_refused(tmp_path):
  with pytest.raises(ValueError, match="Could not find SavedModel"):
    c_api.Model(str(tmp_path), 2)
  module = _Module()
  tf.saved_model.save(module, str(tmp_path), {"encode": module.encode})
  with pytest.raises(ValueError, match="has no signature ids"):
    c_api.Model(str(tmp_path), 2)
