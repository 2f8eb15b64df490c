"""Tests of packing: as fine-tuning packs, and as TF Hub's preprocessors do."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text

from official_albert import tokenization
from official_albert.serving.hub import packing as hub_packing

CLS, SEP, PAD = 71, 72, 5


def _ids(first, length):
  return list(range(first, first + length))


def _pack(segments, seq_length):
  @tf.function
  def run(segments, seq_length):
    return hub_packing.pack_segments(segments, seq_length, CLS, SEP, PAD)

  return run(segments, tf.constant(seq_length))


@pytest.mark.parametrize("seq_length", [5, 8, 11])
def test_packs_as_fine_tuning_does(seq_length):
  lengths = list(itertools.product(range(8), repeat=2))
  rows_a = [_ids(11, a) for a, _ in lengths]
  rows_b = [_ids(31, b) for _, b in lengths]
  pairs = _pack(
    [tf.ragged.constant(rows, dtype=tf.int32) for rows in (rows_a, rows_b)],
    seq_length,
  )
  single = _pack([tf.ragged.constant(rows_a, dtype=tf.int32)], seq_length)
  for packed, others in ((pairs, rows_b), (single, [None] * len(rows_a))):
    for row, (a, b) in enumerate(zip(rows_a, others)):
      ids, types = tokenization.pack_pair(a, b, seq_length, CLS, SEP)
      room = seq_length - len(ids)
      expected = {
        "input_word_ids": ids + [PAD] * room,
        "input_mask": [1] * len(ids) + [0] * room,
        "input_type_ids": types + [0] * room,
      }
      for name, values in expected.items():
        assert packed[name].dtype == tf.int32
        assert packed[name][row].numpy().tolist() == values, (name, a, b)


def test_cuts_as_the_trimmer_of_tensorflow_text():
  rng = np.random.default_rng(3)
  segments = [
    tf.ragged.constant(
      [_ids(first, n) for n in rng.integers(0, 19, 97)], dtype=tf.int32
    )
    for first in (11, 41)
  ]
  for seq_length in (3, 4, 12, 17):
    trimmer = tensorflow_text.RoundRobinTrimmer(seq_length - 3)
    ids, types = tensorflow_text.combine_segments(
      trimmer.trim(segments), start_of_sequence_id=CLS, end_of_segment_id=SEP
    )
    got = _pack(segments, seq_length)
    shape = [None, seq_length]
    np.testing.assert_array_equal(
      got["input_word_ids"], ids.to_tensor(PAD, shape=shape)
    )
    np.testing.assert_array_equal(
      got["input_type_ids"], types.to_tensor(0, shape=shape)
    )


def test_words_are_flattened_and_empty_batches_stay_empty():
  words = tf.ragged.constant([[[11, 12], [13]], [], [[14]]], dtype=tf.int32)
  got = _pack([words], 6)["input_word_ids"].numpy().tolist()
  assert got == [
    [CLS, 11, 12, 13, SEP, PAD],
    [CLS, SEP, PAD, PAD, PAD, PAD],
    [CLS, 14, SEP, PAD, PAD, PAD],
  ]
  none = tf.RaggedTensor.from_row_lengths(tf.zeros([0], tf.int32), [])
  assert _pack([none, none], 6)["input_mask"].shape == [0, 6]


def test_a_fixed_length_is_known_before_the_graph_runs():
  @tf.function(input_signature=[tf.RaggedTensorSpec([None, None], tf.int32)])
  def run(segment):
    packed = hub_packing.pack_segments([segment], 9, CLS, SEP, PAD)
    assert all(value.shape.as_list() == [None, 9] for value in packed.values())
    return packed

  run.get_concrete_function()


def test_what_cannot_be_packed():
  one = tf.ragged.constant([[11], [12]], dtype=tf.int32)
  with pytest.raises(ValueError, match="one or two segments"):
    _pack([one] * 3, 9)
  with pytest.raises(tf.errors.InvalidArgumentError, match="too small"):
    _pack([one, one], 2)
  other = tf.ragged.constant([[11]], dtype=tf.int32)
  with pytest.raises(tf.errors.InvalidArgumentError, match="batch sizes"):
    _pack([one, other], 9)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
