"""Tests of the pretraining heads against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from official_albert.modeling import factorized_embedding, heads
from official_albert.modeling.config import AlbertConfig

B, S, P, H, E, V = 3, 7, 2, 10, 6, 23


def make_embedding():
  return factorized_embedding.FactorizedEmbedding(
    AlbertConfig(
      vocab_size=V, embedding_size=E, hidden_size=H, num_attention_heads=1
    )
  )


def test_masked_lm_equals_numpy():
  rng = np.random.default_rng(0)
  embedding = make_embedding()
  head = heads.MaskedLMHead(V, E, "relu")
  x = rng.normal(size=[B, S, H]).astype(np.float32)
  positions = np.array([[0, 6], [3, 3], [5, 1]], np.int32)
  args = (tf.constant(x), tf.constant(positions), embedding)
  head(*args)
  for variable in head.weights + embedding.weights:
    variable.assign(rng.normal(size=variable.shape))
  gathered = np.stack([x[b, positions[b]] for b in range(B)])
  y = gathered @ head.transform.kernel.numpy() + head.transform.bias.numpy()
  y = np.maximum(y, 0)
  y = (y - y.mean(-1, keepdims=True)) / y.std(-1, keepdims=True)
  y = y * head.layer_norm.gamma.numpy() + head.layer_norm.beta.numpy()
  expected = y @ embedding.word_embeddings.numpy().T + head.output_bias.numpy()
  logits = head(*args)
  assert logits.shape == [B, P, V] and logits.dtype == tf.float32
  np.testing.assert_allclose(logits, expected, atol=1e-4)


def test_masked_lm_is_tied_to_the_table():
  embedding = make_embedding()
  head = heads.MaskedLMHead(V, E)
  x = tf.random.normal([B, S, H])
  with tf.GradientTape() as tape:
    loss = tf.reduce_sum(head(x, tf.zeros([B, P], tf.int32), embedding) ** 2)
  assert tape.gradient(loss, embedding.word_embeddings) is not None
  names = {v.name.split("/")[-1] for v in head.weights}
  assert not any("word" in name for name in names)


def test_sentence_order_equals_numpy():
  head = heads.SentenceOrderHead(H)
  pooled = np.random.default_rng(1).normal(size=[B, H]).astype(np.float32)
  head.output_bias.assign([0.25, -0.5])
  assert head.output_weights.shape == [2, H]
  expected = pooled @ head.output_weights.numpy().T + [0.25, -0.5]
  np.testing.assert_allclose(head(tf.constant(pooled)), expected, atol=1e-6)


def test_wrong_positions_are_refused():
  embedding = make_embedding()
  head = heads.MaskedLMHead(V, E)
  with pytest.raises(ValueError, match="masked_lm_positions"):
    head(tf.zeros([B, S, H]), tf.zeros([B, P]), embedding)


@pytest.mark.parametrize(
  "head", [heads.MaskedLMHead(V, E, "relu", 0.3), heads.SentenceOrderHead(H)]
)
def test_config_round_trip(head):
  clone = type(head).from_config(head.get_config())
  assert clone.get_config() == head.get_config()


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
