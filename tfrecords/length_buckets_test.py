"""Tests of the lengths of batches and of what goes into them."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tfrecords import length_buckets, schemas


@pytest.mark.parametrize(
  "longest, lengths",
  [
    (1, (1,)),
    (16, (16,)),
    (17, (16, 17)),
    (24, (16, 24)),
    (48, (16, 24, 32, 48)),
    (50, (16, 24, 32, 48, 50)),
    (512, (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)),
  ],
)
def test_default_lengths(longest, lengths):
  assert length_buckets.default_lengths(longest) == lengths
  length_buckets.check_lengths(lengths, longest)
  assert all(b <= 1.5 * a for a, b in zip(lengths, lengths[1:]))


@pytest.mark.parametrize(
  "lengths", [(), (7,), (5, 7, 10), (0, 11), (-3, 11), (7, 5, 11), (5, 5, 11)]
)
def test_lengths_that_batches_cannot_have(lengths):
  with pytest.raises(ValueError, match=r"must be positive.* the records, 11\."):
    length_buckets.check_lengths(lengths, 11)


@pytest.mark.parametrize(
  "records, batch_size, batches", [(1000, 3, 32), (95, 3, 31), (2, 3, 1)]
)
def test_a_window_is_no_longer_than_an_epoch(records, batch_size, batches):
  assert length_buckets.window_batches(records, batch_size) == batches


def test_features_of_each_token():
  features = [
    schemas.Feature("input_mask", "int64", (3, 7)),
    schemas.Feature("p_mask", "float32", (7,)),
    schemas.Feature("label_ids", "int64", ()),
    schemas.Feature("one", "int64", (1,)),
    schemas.Feature("other", "int64", (7, 3)),
  ]
  names = length_buckets.sequence_features(features, 7)
  assert names == ["input_mask", "p_mask"]
  for broken in (features[1:], []):
    with pytest.raises(ValueError, match="need input_mask with 7 values"):
      length_buckets.sequence_features(broken, 7)
  with pytest.raises(ValueError, match="need input_mask with 8 values"):
    length_buckets.sequence_features(features, 8)


def mask_of(*lengths):
  return np.int32([[1] * n + [0] * (11 - n) for n in lengths])


def test_the_shortest_bucket_that_holds_an_example():
  buckets = length_buckets.bucket_of(mask_of(0, 1, 4, 5, 6, 7, 11), (4, 6, 11))
  assert buckets.numpy().tolist() == [0, 0, 0, 1, 1, 2, 2]


def test_of_several_sequences_the_longest_counts():
  mask = mask_of(4, 2, 3, 1, 2, 5).reshape(2, 3, 11)
  assert length_buckets.bucket_of(mask, (3, 4, 11)).numpy().tolist() == [1, 2]


def test_rows_are_those_of_one_bucket_in_their_order():
  buckets = tf.constant([2, 0, 1, 0, 2, 0, 1, 0, 0], tf.int32)
  rows = length_buckets.batch_rows(buckets, 3, tf.constant([1, 2]), False)
  assert rows.numpy().tolist() == [[1, 3, 5], [7, 8, 2], [6, 0, 4]]


def test_shuffled_batches_are_the_same_ones():
  buckets = tf.constant([5, 3, 4, 0, 1, 2] * 3, tf.int32)
  in_order = length_buckets.batch_rows(buckets, 2, tf.constant([1, 2]), False)
  orders = set()
  for seed in range(4):
    key = tf.constant([seed, 2], tf.int64)
    rows = length_buckets.batch_rows(buckets, 2, key, True).numpy()
    again = length_buckets.batch_rows(buckets, 2, key, True).numpy()
    np.testing.assert_array_equal(rows, again)
    assert sorted(rows.tolist()) == sorted(in_order.numpy().tolist())
    orders.add(tuple(rows[:, 0]))
  assert len(orders) == 4


def test_trim_cuts_sequences_only():
  batch = {
    "ids": tf.reshape(tf.range(2 * 3 * 7), [2, 3, 7]),
    "mask": tf.ones([2, 7]),
    "label": tf.range(2),
    "wide": tf.ones([2, 7]),
  }
  cut = length_buckets.trim(batch, ["ids", "mask"], tf.constant(5))
  np.testing.assert_array_equal(cut["ids"], batch["ids"][:, :, :5])
  shapes = {name: x.shape.as_list() for name, x in cut.items()}
  assert shapes == {
    "ids": [2, 3, 5],
    "mask": [2, 5],
    "label": [2],
    "wide": [2, 7],
  }


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
