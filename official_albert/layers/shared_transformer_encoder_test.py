"""Tests of what is shared, in which order, and how many parameters."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from official_albert.config import AlbertConfig
from official_albert.layers import shared_transformer_encoder

B, S, H = 2, 5, 12


def make(**changes):
  values = dict(
    vocab_size=17,
    embedding_size=4,
    hidden_size=H,
    num_hidden_layers=6,
    num_hidden_groups=2,
    inner_group_num=1,
    num_attention_heads=3,
    intermediate_size=14,
  )
  config = AlbertConfig(**{**values, **changes})
  return shared_transformer_encoder.SharedTransformerEncoder(config)


def run(encoder, **kwargs):
  x = np.random.default_rng(0).normal(size=[B, S, H]).astype(np.float32)
  return encoder(tf.constant(x), tf.ones([B, S], tf.int32), **kwargs)


@pytest.mark.parametrize(
  "sharing, attentions, ffns",
  [("all", 2, 2), ("attention", 2, 6), ("ffn", 6, 2), ("none", 6, 6)],
)
def test_sets_of_parameters(sharing, attentions, ffns):
  encoder = make(sharing=sharing)
  assert len(run(encoder)) == 6
  pairs = list(encoder.blocks())
  assert len({id(attention) for attention, _ in pairs}) == attentions
  assert len({id(ffn) for _, ffn in pairs}) == ffns
  config = encoder.config
  outside = (17 + 512 + 2) * 4 + 2 * 4 + 4 * H + H + H * H + H
  assert encoder.count_params() == config.parameter_count() - outside


def test_groups_in_order():
  encoder = make()
  used = [attention.name for attention, _ in encoder.blocks()]
  assert used == ["attention_0_0"] * 3 + ["attention_1_0"] * 3


def test_inner_groups_alternate():
  encoder = make(num_hidden_layers=3, num_hidden_groups=1, inner_group_num=2)
  used = [ffn.name for _, ffn in encoder.blocks()]
  assert used == ["ffn_0_0", "ffn_0_1"] * 3
  assert len(run(encoder)) == 6


def test_unshared_copies_compute_what_the_shared_layer_computes():
  shared, own = make(), make(sharing="none")
  expected = run(shared)
  run(own)
  for source, target in zip(shared.blocks(), own.blocks()):
    for a, b in zip(source, target):
      b.set_weights(a.get_weights())
  for a, b in zip(expected, run(own)):
    np.testing.assert_array_equal(a, b)


def test_each_application_draws_its_own_dropout():
  encoder = make(
    num_hidden_groups=1, num_hidden_layers=2, hidden_dropout_prob=0.5
  )
  seed = tf.constant([4, 2])
  first = run(encoder, training=True, dropout_seed=seed)
  again = run(encoder, training=True, dropout_seed=seed)
  np.testing.assert_array_equal(first[-1], again[-1])
  # Feeding layer 1's input to layer 0 must not give layer 1's output.
  swapped = encoder(
    first[0], tf.ones([B, S], tf.int32), training=True, dropout_seed=seed
  )
  assert np.any(swapped[0].numpy() != first[1].numpy())


def test_config_round_trip():
  encoder = make(sharing="ffn", inner_group_num=2)
  clone = type(encoder).from_config(encoder.get_config())
  assert clone.config == encoder.config
  assert clone.get_config() == encoder.get_config()


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
