"""The encoder against TensorFlow's own protocol buffers, byte for byte."""

import numpy as np
import pytest
import tensorflow as tf

from tfrecords import encoding, schemas

_SCHEMA = (
  schemas.Feature("ids", "int64", (5,)),
  schemas.Feature("a_matrix", "int64", (2, 3)),
  schemas.Feature("weights", "float32", (3,)),
  schemas.Feature("nothing", "int64", (0,)),
)


def _features(ids):
  num_records = len(ids)
  rng = np.random.default_rng(3)
  return {
    "ids": np.asarray(ids),
    "a_matrix": rng.integers(0, 2, (num_records, 2, 3)).astype(np.int8),
    "weights": rng.random((num_records, 3)).astype(np.float32),
    "nothing": np.zeros((num_records, 0), np.int32),
  }


def _reference(features, row):
  """The same record by way of tf.train.Example."""
  example = tf.train.Example()
  for name, value in features.items():
    values = value[row].ravel().tolist()
    feature = example.features.feature[name]
    if value.dtype.kind == "f":
      feature.float_list.value.extend(values)
    else:
      feature.int64_list.value[:] = values
      feature.int64_list.SetInParent()
  return example.SerializeToString(deterministic=True)


@pytest.mark.parametrize(
  "ids",
  [
    [[0, 1, 2, 3, 127]],  # One byte each.
    [[0, 127, 128, 16383, 16384], [29999, 5, 300, 0, 1]],
    [[2**21 - 1, 2**21, 2**31 - 1, 0, 2**28]],
    [[2**31, 2**62, 2**63 - 1, 0, 1]],
    [[-1, -(2**63), 5, 0, 300], [1, 2, 3, 4, 5]],
  ],
)
def test_same_bytes_as_tensorflow(ids):
  features = _features(np.array(ids, np.int64))
  records = encoding.encode_examples(_SCHEMA, features)
  assert records == [_reference(features, row) for row in range(len(ids))]


def test_long_rows_have_lengths_of_more_than_one_byte():
  schema = (schemas.Feature("ids", "int64", (9001,)),)
  ids = np.random.default_rng(0).integers(0, 30000, (2, 9001), np.int32)
  assert encoding.encode_examples(schema, {"ids": ids}) == [
    _reference({"ids": ids}, 0),
    _reference({"ids": ids}, 1),
  ]


def test_no_records():
  assert (
    encoding.encode_examples(_SCHEMA, _features(np.zeros((0, 5), int))) == []
  )


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"ids": None}, "lacks ids"),
    ({"extra": np.zeros((2, 1))}, "not in the schema: extra"),
    ({"ids": np.zeros((2, 4), int)}, r"shape \[5\] in each of 2 .* \[2, 4\]"),
    ({"ids": np.zeros((3, 5), int)}, "must have shape"),
    ({"ids": np.zeros((2, 5))}, "'ids' must be int64, not float64"),
    ({"ids": np.zeros((2, 5), np.uint64)}, "must be int64, not uint64"),
    ({"weights": np.zeros((2, 3))}, "must be float32, not float64"),
    ({"weights": np.zeros((2, 3), int)}, "must be float32, not int64"),
  ],
)
def test_record_that_does_not_fit_is_refused(change, message):
  features = {**_features(np.zeros((2, 5), np.int64)), **change}
  features = {k: v for k, v in features.items() if v is not None}
  with pytest.raises(ValueError, match=message):
    encoding.encode_examples(_SCHEMA, features)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
