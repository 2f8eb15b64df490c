"""Tests of packing in the graph against packing.py."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from official_albert import tokenization
from official_albert.testing import toy_vocabulary
from official_albert.tokenization.in_graph import packed_text_layer
from official_albert.tokenization.in_graph import (
  sentencepiece_layers as text_layers,
)

_WORDS = "the river runs down to a sea, 1922, Île où l'été".split()


@pytest.fixture(scope="module")
def model_file(tmp_path_factory) -> str:
  rng = np.random.default_rng(0)
  proto = toy_vocabulary.train([text(rng, 9) for _ in range(60)], 70)
  path = tmp_path_factory.mktemp("vocabulary") / "tokenizer.model"
  path.write_bytes(proto)
  return str(path)


def text(rng, words: int) -> str:
  return " ".join(rng.choice(_WORDS, words))


def padded(rows):
  """Returns ids, mask and segments [B, S], padded with 0, as in records."""
  length = max(len(ids) for ids, _ in rows)
  result = np.zeros([3, len(rows), length], np.int32)
  for i, (ids, segments) in enumerate(rows):
    result[0, i, : len(ids)] = ids
    result[1, i, : len(ids)] = 1
    result[2, i, : len(ids)] = segments
  return result


def assert_same(features, rows):
  names = ("input_ids", "input_mask", "segment_ids")
  for name, wanted in zip(names, padded(rows)):
    assert features[name].dtype == tf.int32
    np.testing.assert_array_equal(features[name], wanted, name)


@pytest.mark.parametrize("longest", [5, 6, 13])
def test_every_pair_of_lengths_equals_python(longest):
  lengths = [(a, b) for a in range(12) for b in range(11)]
  rng = np.random.default_rng(longest)
  firsts = [rng.integers(5, 90, a).tolist() for a, _ in lengths]
  seconds = [rng.integers(5, 90, b).tolist() for _, b in lengths]
  pack = tf.function(packed_text_layer.pack_pair)
  pair = [tf.ragged.constant(x, tf.int32) for x in (firsts, seconds)]
  assert_same(
    pack(*pair, longest, 2, 3),
    [
      tokenization.pack_pair(a, b, longest, 2, 3)
      for a, b in zip(firsts, seconds)
    ],
  )
  assert_same(
    pack(pair[0], None, longest, 2, 3),
    [tokenization.pack_pair(a, None, longest, 2, 3) for a in firsts],
  )


@pytest.mark.parametrize("longest", [9, 64])
def test_texts_equal_training_data(model_file, longest):
  rng = np.random.default_rng(longest)
  firsts = [text(rng, n) for n in range(41)] + ["", " \u2003", "[CLS] <pad>"]
  seconds = [text(rng, n) for n in rng.integers(0, 41, 44)]
  tokenizer = tokenization.SentencePieceTokenizer(model_file)
  layer = packed_text_layer.PackedTextLayer(
    text_layers.SentencePieceTextLayer(model_file), longest
  )
  ids = [[tokenizer.encode(t) for t in texts] for texts in (firsts, seconds)]
  assert_same(
    tf.function(layer)(tf.constant(firsts), tf.constant(seconds)),
    [tokenization.pack_pair(a, b, longest, 2, 3) for a, b in zip(*ids)],
  )
  assert_same(
    tf.function(layer)(tf.constant(firsts)),
    [tokenization.pack_pair(a, None, longest, 2, 3) for a in ids[0]],
  )
  # Invalid bytes are dropped.
  broken = layer(tf.constant([b"the \xff\xfesea"]))["input_ids"].numpy()
  assert broken[0].tolist() == [2, *tokenizer.encode("the sea"), 3]


def test_wordpiece(tmp_path):
  pieces = "[PAD] x y [UNK] [CLS] [SEP] [MASK] a ##b c".split()
  (tmp_path / "vocab.txt").write_text("\n".join(pieces))
  layer = packed_text_layer.PackedTextLayer(
    text_layers.make_text_layer("wordpiece", str(tmp_path / "vocab.txt"), True),
    7,
  )
  features = layer(tf.constant(["AB c", "q"]), tf.constant(["c c", "a"]))
  assert features["input_ids"].numpy().tolist() == [
    [4, 7, 8, 5, 9, 9, 5],
    [4, 3, 5, 7, 5, 0, 0],
  ]


def test_empty_batch(model_file):
  layer = packed_text_layer.PackedTextLayer(
    text_layers.SentencePieceTextLayer(model_file), 8
  )
  none = tf.zeros([0], tf.string)
  assert layer(none)["input_ids"].shape == [0, 2]
  assert layer(none, none)["segment_ids"].shape == [0, 3]


def test_too_small_maximum_length_is_refused():
  ids = tf.ragged.constant([[5]], tf.int32)
  with pytest.raises(ValueError, match="is 2, but .* need 3"):
    packed_text_layer.pack_pair(ids, None, 2, 2, 3)
  with pytest.raises(ValueError, match="is 4, but .* need 5"):
    packed_text_layer.pack_pair(ids, ids, 4, 2, 3)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
