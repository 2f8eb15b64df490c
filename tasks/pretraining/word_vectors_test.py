"""Tests of the initial word embeddings."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from official_albert import tfrecords
from official_albert.tasks.pretraining import word_vectors
from official_albert.tfrecords import reader


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
  monkeypatch.setattr(word_vectors, "_BATCH", 7)
  manifest = tfrecords.read_manifest(folder)
  size = manifest.tokenizer.vocab_size
  expected = _counts(folder, size)
  assert expected.sum() > 1000 and not expected[4].any()  # No [MASK].
  counts = word_vectors.count_pairs(folder, manifest).toarray()
  np.testing.assert_allclose(counts, expected, rtol=1e-12)
  monkeypatch.setattr(word_vectors, "_TOKENS", 100)
  fewer = word_vectors.count_pairs(folder, manifest).toarray()
  assert 0 < fewer.sum() < expected.sum() / 2


def _vectors(monkeypatch, counts, size):
  monkeypatch.setattr(
    word_vectors, "count_pairs", lambda *unused: sparse.csr_matrix(counts)
  )
  return word_vectors.word_vectors("", None, size)


def test_tokens_of_the_same_contexts_have_similar_vectors(monkeypatch):
  rng = np.random.default_rng(0)
  # Tokens 0 to 9 occur with 20 to 29, tokens 10 to 19 with 30 to 39.
  counts = np.zeros((41, 41))
  for start in (0, 10):
    counts[start : start + 10, start + 20 : start + 30] = rng.poisson(
      5, (10, 10)
    )
  vectors = _vectors(monkeypatch, counts + counts.T, 4)
  assert vectors.shape == (41, 4) and vectors.dtype == np.float32
  size = np.sqrt(np.mean(vectors[:40] ** 2, axis=1))
  np.testing.assert_allclose(size, 1, rtol=0.02)  # It is rounded.
  assert not vectors[40].any()  # It does not occur.
  cosines = vectors @ vectors.T / 4
  assert cosines[:10, :10].min() > 0.8
  assert abs(cosines[:10, 10:20]).max() < 0.5


def test_vectors_may_be_longer_than_the_vocabulary(monkeypatch):
  counts = np.random.default_rng(0).poisson(2, (5, 5))
  vectors = _vectors(monkeypatch, counts + counts.T, 7)
  assert vectors[:, :4].any(axis=1).all() and not vectors[:, 4:].any()


def test_text_of_one_token_gives_no_vectors(monkeypatch):
  counts = np.zeros((7, 7))
  counts[5, 5] = 8
  assert not _vectors(monkeypatch, counts, 3).any()
