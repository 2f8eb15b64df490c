"""Tests of the initial weights that look at neighboring positions."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from official_albert import modeling


@pytest.mark.parametrize("size", (18, 150, 160))
@pytest.mark.parametrize("sharing", ("all", "none"))
def test_heads_look_at_their_offsets(size, sharing):
  config = modeling.AlbertConfig(
    vocab_size=97,
    max_position_embeddings=23,
    embedding_size=size,
    hidden_size=160,
    intermediate_size=14,
    num_attention_heads=10,
    num_hidden_layers=2,
    sharing=sharing,
  )
  model = modeling.AlbertModel(config)
  modeling.attend_to_neighbors(model)
  # Only positions differ.
  for table in ("word_embeddings", "token_type_embeddings"):
    variable = getattr(model.embedding, table)
    variable.assign(tf.zeros_like(variable))
  ids = tf.ones([1, 23], tf.int32)
  hidden, _ = model.embedding(ids)
  for (attention,) in model.encoder.attentions:
    # Inputs of later blocks are no projected embeddings. A kernel that inverts
    # a badly conditioned projection would make any score of theirs sharp.
    gain = np.linalg.norm(attention.query.kernel.numpy()[:, :16], ord=2)
    assert gain == pytest.approx((9 / 4) ** 0.5 * (size / 160) ** 0.5, rel=0.1)
    probs = attention(hidden, ids, return_probs=True)[0].numpy()  # [N, S, S]
    for head, offset in enumerate((-1, 1, -2, 2, -3)):
      rows = np.arange(6, 19)
      np.testing.assert_array_equal(
        probs[head, rows].argmax(axis=1), rows + offset
      )


def test_odd_sizes_and_one_head():
  config = modeling.AlbertConfig(
    vocab_size=17,
    max_position_embeddings=7,
    embedding_size=5,
    hidden_size=9,
    intermediate_size=11,
    num_attention_heads=3,
  )
  for heads in (3, 1):
    config = dataclasses.replace(config, num_attention_heads=heads)
    model = modeling.AlbertModel(config)
    query = model.encoder.attentions[0][0].query
    before = query.kernel.numpy()
    modeling.attend_to_neighbors(model)
    changed = (query.kernel.numpy() != before).any(axis=0)
    # Heads have 3 or 9 columns, of which the last has no pair.
    expected = [True, True, False] * 2 + [False] * 3
    if heads == 1:
      expected = [True] * 8 + [False]
    np.testing.assert_array_equal(changed, expected)
