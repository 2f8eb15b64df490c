"""Tests of initial weights: heads for neighbors, and word embeddings."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from scipy import sparse

from official_albert import modeling, tfrecords
from official_albert.tasks.pretraining import initialization
from official_albert.testing import toy_models
from official_albert.tfrecords import reader


@pytest.mark.parametrize("size", (18, 150, 160))
@pytest.mark.parametrize("sharing", ("all", "none"))
def test_heads_look_at_their_offsets(size, sharing, monkeypatch):
  made, attend = [], modeling.fused_ops.attention_probs

  def attention_probs(*arguments):
    made.append(attend(*arguments))
    return made[-1]

  monkeypatch.setattr(modeling.fused_ops, "attention_probs", attention_probs)
  sizes = {"hidden_size": 160, "num_attention_heads": 10, "sharing": sharing}
  config = toy_models.config(
    97, 23, embedding_size=size, initializer_range=0.02, **sizes
  )
  model = modeling.AlbertModel(config)
  initialization.attend_to_neighbors(model)
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
    attention(hidden, ids)
    probs = made[-1][0].numpy()  # [N, S, S]
    for head, offset in enumerate((-1, 1, -2, 2, -3)):
      rows = np.arange(6, 19)
      np.testing.assert_array_equal(
        probs[head, rows].argmax(axis=1), rows + offset
      )


def test_odd_sizes_and_one_head():
  for heads in (3, 1):
    config = toy_models.config(
      17, 7, embedding_size=5, hidden_size=9, num_attention_heads=heads
    )
    model = modeling.AlbertModel(config)
    query = model.encoder.attentions[0][0].query
    before = query.kernel.numpy()
    initialization.attend_to_neighbors(model)
    changed = (query.kernel.numpy() != before).any(axis=0)
    # Heads have 3 or 9 columns, of which the last has no pair.
    expected = [True, True, False] * 2 + [False] * 3
    if heads == 1:
      expected = [True] * 8 + [False]
    np.testing.assert_array_equal(changed, expected)


def _counts(folder, size):
  """Counts pairs one by one, after the labels are put back."""
  counts = np.zeros((size, size))
  for batch in reader.read_dataset(folder, "train", 1, training=False):
    row = {name: value[0].numpy() for name, value in batch.items()}
    ids = row["input_ids"][: row["input_mask"].sum()]
    masked = range(int(sum(row.get("masked_lm_weights", ()))))
    for i in masked:
      ids[row["masked_lm_positions"][i]] = row["masked_lm_ids"][i]
    for i, first in enumerate(ids):
      for k in range(i + 1, min(i + 5, len(ids))):
        counts[first, ids[k]] += 1 / (k - i)
        counts[ids[k], first] += 1 / (k - i)
  return counts


@pytest.mark.parametrize("name", ["built", "unmasked"])
def test_pairs_are_counted_in_the_text_without_masks(
  name, request, monkeypatch
):
  folder = str(request.getfixturevalue(name)[0])
  monkeypatch.setattr(initialization, "_BATCH", 7)
  manifest = tfrecords.read_manifest(folder)
  size = manifest.tokenizer.vocab_size
  expected = _counts(folder, size)
  assert expected.sum() > 1000 and not expected[4].any()  # No [MASK].
  counts = initialization.count_pairs(folder, manifest).toarray()
  np.testing.assert_allclose(counts, expected, rtol=1e-12)
  monkeypatch.setattr(initialization, "_TOKENS", 100)
  fewer = initialization.count_pairs(folder, manifest).toarray()
  assert 0 < fewer.sum() < expected.sum() / 2


def _vectors(counts, size):
  return initialization.word_vectors(sparse.csr_matrix(counts), size)


def test_tokens_of_the_same_contexts_have_similar_vectors():
  rng = np.random.default_rng(0)
  # Tokens 0 to 9 occur with 20 to 29, tokens 10 to 19 with 30 to 39.
  counts = np.zeros((41, 41))
  for start in (0, 10):
    counts[start : start + 10, start + 20 : start + 30] = rng.poisson(
      5, (10, 10)
    )
  vectors = _vectors(counts + counts.T, 4)
  assert vectors.shape == (41, 4) and vectors.dtype == np.float32
  size = np.sqrt(np.mean(vectors[:40] ** 2, axis=1))
  np.testing.assert_allclose(size, 1, rtol=0.02)  # It is rounded.
  assert not vectors[40].any()  # It does not occur.
  cosines = vectors @ vectors.T / 4
  assert cosines[:10, :10].min() > 0.8
  assert abs(cosines[:10, 10:20]).max() < 0.5


def test_vectors_may_be_longer_than_the_vocabulary_or_zero():
  counts = np.random.default_rng(0).poisson(2, (5, 5))
  vectors = _vectors(counts + counts.T, 7)
  assert vectors[:, :4].any(axis=1).all() and not vectors[:, 4:].any()
  # A text of one token tells nothing.
  assert not _vectors(np.diag([0, 0, 0, 8, 0]), 3).any()
