"""Served vectors against the model, in float32 and bfloat16."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from official_albert import AlbertConfig, distribution, modeling
from official_albert.serving import served_encoder
from official_albert.tokenization import in_graph

_PIECES = "[PAD] [UNK] [CLS] [SEP] [MASK] rain sun wind ##y cold , 9".split()
_LONGEST = 8


def make(tmp_path, precision="float32"):
  path = tmp_path / "vocab.txt"
  path.write_text("\n".join(_PIECES), "utf-8")
  tf.keras.utils.set_random_seed(3)
  config = AlbertConfig(
    vocab_size=len(_PIECES),
    embedding_size=6,
    hidden_size=10,
    num_hidden_layers=3,
    num_attention_heads=2,
    intermediate_size=14,
    max_position_embeddings=13,
  )
  distribution.set_precision(precision)
  try:
    model = modeling.AlbertModel(config)
  finally:
    distribution.set_precision("float32")
  layer = in_graph.make_text_layer("wordpiece", str(path), True)
  return served_encoder.ServedEncoder(model, layer, _LONGEST)


def test_vectors_of_texts_and_pairs(tmp_path):
  module = make(tmp_path)
  signatures = module.signatures()
  assert list(signatures) == ["encode", "encode_pair", "ids", "examples"]
  one = signatures["encode"](text=tf.constant(["sun", "Windy, cold", ""]))
  assert set(one) == {
    "pooled_output",
    "sequence_output",
    "input_ids",
    "input_mask",
  }
  assert one["input_ids"].numpy().tolist() == [
    [2, 6, 3, 0, 0, 0],
    [2, 7, 8, 10, 9, 3],
    [2, 3, 0, 0, 0, 0],
  ]
  two = signatures["encode_pair"](
    text_a=tf.constant(["sun sun sun sun"]), text_b=tf.constant(["9 9 9"])
  )
  assert two["input_ids"].numpy().tolist() == [[2, 6, 6, 6, 3, 11, 11, 3]]
  assert two["segment_ids"].numpy().tolist() == [[0, 0, 0, 0, 0, 1, 1, 1]]
  for answers in (one, two):
    ids = ("input_ids", "input_mask", "segment_ids")
    features = {n: answers[n] for n in ids if n in answers}
    expected = module.model(features, training=False)
    for name in ("pooled_output", "sequence_output"):
      assert answers[name].dtype == tf.float32
      # The same operations but for what a graph does better.
      np.testing.assert_allclose(answers[name], expected[name], atol=1e-6)


def test_bfloat16_products_give_float32(tmp_path):
  ids = {
    "input_ids": tf.constant([[2, 6, 7, 8, 3]]),
    "input_mask": tf.constant([[1] * 5]),
    "segment_ids": tf.constant([[0] * 5]),
  }
  exact, rounded = (
    make(tmp_path, precision).signatures("ids")["ids"](**ids)
    for precision in ("float32", "mixed_bfloat16")
  )
  for name, value in rounded.items():
    assert value.dtype == tf.float32
    difference = np.abs(value - exact[name]).max()
    # Numbers of about 1 are rounded to 8 bits, 2^-9 of them, at some twenty
    # places one after the other; and they are rounded.
    assert 0 < difference < 20 * 2**-9, name


def test_no_vectors_of_no_texts(tmp_path):
  answers = make(tmp_path).signatures()["encode"](tf.zeros([0], tf.string))
  assert answers["pooled_output"].shape == [0, 10]
  assert answers["sequence_output"].shape == [0, 2, 10]


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
