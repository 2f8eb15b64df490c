"""What is refused in the graph, with which sentence, and what is not."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from official_albert.serving import request_checks

V, TYPES, LONGEST, OPTIONS = 11, 3, 7, 2


@tf.function(
  # As a C++ session does: nobody compares shapes beforehand.
  input_signature=[
    {n: tf.TensorSpec(None, tf.int32) for n in request_checks.IDS}
  ]
)
def checked(features):
  return request_checks.check_ids(features, "B S", V, TYPES, LONGEST)


def request(ids, mask=None, segments=None):
  ids = tf.constant(ids, tf.int32)
  return {
    "input_ids": ids,
    "input_mask": tf.ones_like(ids) if mask is None else tf.constant(mask),
    "segment_ids": tf.zeros_like(ids)
    if segments is None
    else tf.constant(segments),
  }


def test_what_is_right_passes_unchanged():
  features = request([[10, 0, 3]], [[1, 1, 0]], [[0, 2, 1]])
  for name, value in checked(features).items():
    np.testing.assert_array_equal(value, features[name])
  # No row at all is no wrong row.
  assert checked(request(np.zeros([0, 5])))["input_ids"].shape == [0, 5]


@pytest.mark.parametrize(
  "features, sentence",
  [
    (request([[3, V]]), "input_ids must be from 0 to 10, .*] \\[3] \\[11"),
    (request([[3, -1]]), "input_ids must be from 0 to 10"),
    (request([[3]], [[2]]), "input_mask must be from 0 to 1"),
    (request([[3]], [[1]], [[TYPES]]), "segment_ids must be from 0 to 2"),
    (request([[3, 4]], [[1]]), "input_mask must have the shape of input_ids"),
    (request([[3], [4]], [[1], [1]], [[0]]), "segment_ids must have the shape"),
    (request([[3] * 8]), "at least 1 token and at most 7, but it has.*8"),
    (request(np.zeros([2, 0])), "at least 1 token and at most 7"),
    (request([3, 4]), r"input_ids must have the shape \[B, S], .* is\] \[1\]"),
    (request([[[3, 4]]]), r"input_ids must have the shape \[B, S], .*\[3\]"),
  ],
)
def test_what_is_wrong_is_named(features, sentence):
  with pytest.raises(tf.errors.InvalidArgumentError, match=sentence):
    checked(features)


def test_options_are_counted():
  @tf.function(
    # Nor are sizes compared that the signature has.
    input_signature=[
      {n: tf.TensorSpec(None, tf.int32) for n in request_checks.IDS}
    ]
  )
  def of_options(features):
    return request_checks.check_ids(features, "B 2 S", V, TYPES, LONGEST)

  assert of_options(request([[[3], [4]]]))["input_ids"].shape == [1, 2, 1]
  # As many sequences as two examples have, and as one has.
  for shape in ([1, 4, 3], [2, 1, 3], [2, 3, 3]):
    with pytest.raises(
      tf.errors.InvalidArgumentError,
      match=r"must have the shape \[B, 2, S], but its shape is",
    ):
      of_options(request(np.ones(shape)))


def test_texts():
  @tf.function(
    input_signature=[{n: tf.TensorSpec(None, tf.string) for n in ("a", "b")}]
  )
  def texts(both):
    return request_checks.check_texts(both)

  assert texts({"a": tf.constant(["x"]), "b": tf.constant([""])})["a"] == b"x"
  empty = tf.zeros([0], tf.string)
  assert texts({"a": empty, "b": empty})["b"].shape == [0]
  with pytest.raises(
    tf.errors.InvalidArgumentError, match="equally many texts"
  ):
    texts({"a": tf.constant(["x", "y"]), "b": tf.constant(["z"])})
  with pytest.raises(
    tf.errors.InvalidArgumentError, match=r"b must have .*\[B"
  ):
    texts({"a": tf.constant(["x"]), "b": tf.constant([["z"]])})


def test_what_a_server_appends_is_masked():
  cls = 2
  # TF Serving fills each tensor with its first element.
  ids = [[cls, 4, 3, cls, cls], [cls, cls, 5, 6, 3]]
  features = request(ids, [[1, 1, 1, 1, 1], [1, 1, 1, 0, 1]])
  masked = request_checks.without_server_padding(features, cls)
  # Only what nothing but [CLS] follows: not the second token of row 2.
  assert masked["input_mask"].numpy().tolist() == [
    [1, 1, 1, 0, 0],
    [1, 1, 1, 0, 1],
  ]
  # The first position always stays, and so does all where [CLS] is unknown.
  alone = request_checks.without_server_padding(request([[cls, cls]]), cls)
  assert alone["input_mask"].numpy().tolist() == [[1, 0]]
  kept = request_checks.without_server_padding(features, None)
  assert kept["input_mask"] is features["input_mask"]


def serialized(*examples):
  result = []
  for lists in examples:
    example = tf.train.Example()
    for name, values in lists.items():
      example.features.feature[name].int64_list.value.extend(values)
    result.append(example.SerializeToString())
  return tf.constant(result, tf.string, [len(result)])


def test_examples_of_any_length():
  parse = tf.function(request_checks.parse_examples)
  features = parse(
    serialized(
      {"input_ids": [2, 5, 3], "segment_ids": [0, 1, 1], "places": [1, 2]},
      {"input_ids": [2, 5, 6, 7, 3], "input_mask": [1, 1, 1, 1, 0]},
      {"input_ids": [2**40]},
    ),
    0,
    ["places"],
  )
  assert {n: x.numpy().tolist() for n, x in features.items()} == {
    # Not cut off to another id, but left outside of any vocabulary.
    "input_ids": [[2, 5, 3, 0, 0], [2, 5, 6, 7, 3], [2**31 - 1, 0, 0, 0, 0]],
    "input_mask": [[1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 0, 0, 0, 0]],
    "segment_ids": [[0, 1, 1, 0, 0], [0] * 5, [0] * 5],
    "places": [[1, 2], [0, 0], [0, 0]],
  }
  nothing = parse(serialized(), 0, [])
  assert nothing["input_ids"].shape == [0, 1]
  none = parse(serialized({"input_ids": [4]}), 0, ["places"])
  assert none["places"].shape == [1, 0]


def test_examples_of_several_sequences():
  parse = tf.function(request_checks.parse_examples)
  features = parse(
    serialized(
      {"input_ids": [2, 5, 2, 6], "input_mask": [1, 1, 1, 0]},
      {"input_ids": [2, 5, 3, 2, 6, 7], "segment_ids": [0, 0, 1, 0, 1, 1]},
    ),
    OPTIONS,
    [],
  )
  assert {n: x.numpy().tolist() for n, x in features.items()} == {
    "input_ids": [[[2, 5, 0], [2, 6, 0]], [[2, 5, 3], [2, 6, 7]]],
    "input_mask": [[[1, 1, 0], [1, 0, 0]], [[1, 1, 1], [1, 1, 1]]],
    "segment_ids": [[[0, 0, 0], [0, 0, 0]], [[0, 0, 1], [0, 1, 1]]],
  }
  assert parse(serialized(), OPTIONS, [])["input_ids"].shape == [0, OPTIONS, 1]
  with pytest.raises(
    tf.errors.InvalidArgumentError, match="2 sequences of one"
  ):
    parse(serialized({"input_ids": [2, 5, 3]}), OPTIONS, [])


@pytest.mark.parametrize(
  "example, sentence",
  [
    ({"segment_ids": [0]}, "every example needs an int64 list input_ids"),
    (
      {"input_ids": [2, 3], "input_mask": [1]},
      "input_mask of an example must be as long as its input_ids",
    ),
  ],
)
def test_wrong_examples(example, sentence):
  with pytest.raises(tf.errors.InvalidArgumentError, match=sentence):
    tf.function(request_checks.parse_examples)(serialized(example), 0, [])
  with pytest.raises(tf.errors.InvalidArgumentError):
    request_checks.parse_examples(tf.constant(["no example"]), 0, [])


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
