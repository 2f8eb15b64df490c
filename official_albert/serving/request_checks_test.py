"""Requests that the graph refuses, and the sentences."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from official_albert.serving import request_checks
from official_albert.testing import toy_models

V, TYPES, LONGEST = 11, 3, 7
_CONFIG = toy_models.config(V, LONGEST, type_vocab_size=TYPES)
_WRONG = tf.errors.InvalidArgumentError
# A C++ session does not compare shapes with the signature either.
_ANY_SHAPE = [{n: tf.TensorSpec(None, tf.int32) for n in request_checks.IDS}]


@tf.function(input_signature=_ANY_SHAPE)
def checked(features):
  return request_checks.check_ids(features, "B S", _CONFIG)


def request(ids, mask=None, segments=None):
  ids = tf.constant(ids, tf.int32)
  return {
    "input_ids": ids,
    "input_mask": tf.ones_like(ids) if mask is None else tf.constant(mask),
    "segment_ids": tf.constant(segments) if segments else tf.zeros_like(ids),
  }


def test_valid_requests_pass_unchanged():
  features = request([[10, 0, 3]], [[1, 1, 0]], [[0, 2, 1]])
  for name, value in checked(features).items():
    np.testing.assert_array_equal(value, features[name])
  assert checked(request(np.zeros([0, 5])))["input_ids"].shape == [0, 5]


@pytest.mark.parametrize(
  "features, sentence",
  [
    (request([[3, V]]), "input_ids must be from 0 to 10, .*] \\[3] \\[11"),
    (request([[3]], [[2]]), "input_mask must be from 0 to 1"),
    (request([[3]], [[1]], [[TYPES]]), "segment_ids must be from 0 to 2"),
    (request([[3, 4]], [[1]]), "input_mask must have the shape of input_ids"),
    (request([[3], [4]], [[1], [1]], [[0]]), "segment_ids must have the shape"),
    (request([[3] * 8]), "at least 1 token and at most 7, but it has.*8"),
    (request(np.zeros([2, 0])), "at least 1 token and at most 7"),
    (request([3, 4]), r"input_ids must have the shape \[B, S], .* is\] \[1\]"),
  ],
)
def test_invalid_ids(features, sentence):
  with pytest.raises(_WRONG, match=sentence):
    checked(features)


def test_shapes_are_compared_with_the_signature(tmp_path):
  @tf.function(
    input_signature=[
      tf.TensorSpec([None], tf.string, "text"),
      tf.TensorSpec([None, 2, None], tf.int32, "ids"),
    ],
    autograph=False,
  )
  def check(text, ids):
    features = dict.fromkeys(request_checks.IDS, ids)
    checked = request_checks.check_ids(features, "B 2 S", _CONFIG)
    return {
      **request_checks.check_texts({"text": text}),
      "ids": checked["input_ids"],
    }

  path = str(tmp_path / "export")
  signatures = {"check": check.get_concrete_function()}
  tf.saved_model.save(tf.Module(), path, signatures)
  # The optimizer of a loaded graph takes the signature's shapes for true.
  loaded = tf.saved_model.load(path).signatures["check"]
  text, ids = tf.constant(["a"]), tf.ones([1, 2, 3], tf.int32)
  assert loaded(text=text, ids=ids)["ids"].shape == [1, 2, 3]
  with pytest.raises(_WRONG, match=r"text must have the shape \[B], .* \[2]"):
    loaded(text=tf.constant([["a", "b"]]), ids=ids)
  # As many sequences as two examples have, and as one has.
  for shape in ([1, 4, 3], [2, 1, 3], [2, 3, 3]):
    with pytest.raises(_WRONG, match=r"the shape \[B, 2, S], but its shape is"):
      loaded(text=text, ids=tf.ones(shape, tf.int32))


def test_padding_of_a_server_is_masked():
  cls = 2
  ids = [[cls, 4, 3, cls, cls], [cls, cls, 5, 6, 3]]
  features = request(ids, [[1, 1, 1, 1, 1], [1, 1, 1, 0, 1]])
  masked = request_checks.without_server_padding(features, cls)
  # Not the second token of row 2, which others follow.
  assert masked["input_mask"].numpy().tolist() == [
    [1, 1, 1, 0, 0],
    [1, 1, 1, 0, 1],
  ]
  alone = request_checks.without_server_padding(request([[cls, cls]]), cls)
  assert alone["input_mask"].numpy().tolist() == [[1, 0]]
  kept = request_checks.without_server_padding(features, None)
  assert kept["input_mask"] is features["input_mask"]


# The list of input_ids is field 9 of its feature, not field 1.
_UNKNOWN_FIELD = b"\n\x16\n\x14\n\tinput_ids\x12\x07\x1a\x05J\x03\x01\x01\x01"


def serialized(*examples):
  result = []
  for lists in examples:
    example = tf.train.Example()
    for name, values in lists.items():
      example.features.feature[name].int64_list.value.extend(values)
    result.append(example.SerializeToString())
  return tf.constant(result, tf.string, [len(result)])


parse = tf.function(
  lambda examples, options, extra: request_checks.parse_examples(
    examples, options, extra, LONGEST
  )
)


def lists_of(features):
  return {name: x.numpy().tolist() for name, x in features.items()}


def test_examples_of_any_length():
  examples = serialized(
    {"input_ids": [2, 5, 3], "segment_ids": [0, 1, 1], "places": [1, 2]},
    {"input_ids": [2, 5, 6, 7, 3], "input_mask": [1, 1, 1, 1, 0]},
    {"input_ids": [2**40]},
  )
  assert lists_of(parse(examples, 0, ["places"])) == {
    # A large id must not become another valid one.
    "input_ids": [[2, 5, 3, 0, 0], [2, 5, 6, 7, 3], [2**31 - 1, 0, 0, 0, 0]],
    "input_mask": [[1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 0, 0, 0, 0]],
    "segment_ids": [[0, 1, 1, 0, 0], [0] * 5, [0] * 5],
    "places": [[1, 2], [0, 0], [0, 0]],
  }
  assert parse(serialized(), 0, [])["input_ids"].shape == [0, 1]
  none = parse(serialized({"input_ids": [4]}), 0, ["places"])
  assert none["places"].shape == [1, 0]


def test_examples_of_several_sequences():
  examples = serialized(
    {"input_ids": [2, 5, 2, 6], "input_mask": [1, 1, 1, 0]},
    {"input_ids": [2, 5, 3, 2, 6, 7], "segment_ids": [0, 0, 1, 0, 1, 1]},
  )
  assert lists_of(parse(examples, 2, [])) == {
    "input_ids": [[[2, 5, 0], [2, 6, 0]], [[2, 5, 3], [2, 6, 7]]],
    "input_mask": [[[1, 1, 0], [1, 0, 0]], [[1, 1, 1], [1, 1, 1]]],
    "segment_ids": [[[0, 0, 0], [0, 0, 0]], [[0, 0, 1], [0, 1, 1]]],
  }
  assert parse(serialized(), 2, [])["input_ids"].shape == [0, 2, 1]


@pytest.mark.parametrize(
  "examples, options, sentence",
  [
    (serialized({"segment_ids": [0]}), 0, "needs an int64 list input_ids"),
    (
      serialized({"input_ids": [2, 3], "input_mask": [1]}),
      0,
      "input_mask of an example must be as long as its input_ids",
    ),
    (serialized({"input_ids": [2, 5, 3]}), 2, "of 2 sequences of one length"),
    # Padded to them, many short ones would take all memory.
    (serialized({"input_ids": [3] * 8}), 0, "input_ids .* at most 7 values.*8"),
    (serialized({"input_ids": [3] * 16}), 2, "at most 14 values, but has.*16"),
    (
      serialized({"input_ids": [3], "places": [1] * 9}),
      0,
      "places of an example may have at most 7 values, but has.*9",
    ),
    # The words of TensorFlow itself.
    (tf.constant(["no example"]), 0, "Could not parse"),
    (tf.constant([_UNKNOWN_FIELD]), 0, "Can't parse serialized Example"),
  ],
)
def test_invalid_examples(examples, options, sentence):
  with pytest.raises(_WRONG, match=sentence):
    parse(examples, options, ["places"])
