"""Initial word embeddings from the training text.

From random embeddings, a small model needs most of a short training to learn
which tokens occur near the same tokens (docs/results/quality.md). Counting
pairs of tokens in the records takes seconds. Their positive pointwise mutual
information, factorized, gives word vectors (Levy and Goldberg, Neural Word
Embedding as Implicit Matrix Factorization, 2014; contexts as in Levy, Goldberg
and Dagan, 2015: weights by distance, and a smoothed distribution).
"""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.sparse import linalg

from official_albert import modeling, tfrecords
from official_albert.tasks.pretraining import record_rules
from official_albert.tfrecords import reader

# Tokens to count, and the largest distance of a pair.
_TOKENS = 4_000_000
_WINDOW = 4
_BATCH = 8192
# The power of the contexts' frequencies.
_SMOOTHING = 0.75
# Steps of the result: coarser than the differences between processors, because
# workers must agree.
_STEP = 1 / 64


def start_from_text(
  model: modeling.AlbertModel, input_dir: str, manifest: tfrecords.Manifest
) -> None:
  """Replaces the word embeddings of tokens that occur in the text.

  Args:
    model: changed in place.
    input_dir: folder of pretraining records, with masks or without them.
    manifest: its manifest.
  """
  config = model.config
  table = model.embedding.word_embeddings
  vectors = config.initializer_range * word_vectors(
    input_dir, manifest, config.embedding_size
  )
  table.assign(np.where(vectors.any(axis=1)[:, None], vectors, table))


def word_vectors(
  input_dir: str, manifest: tfrecords.Manifest, embedding_size: int
) -> np.ndarray:
  """Computes a vector for each token of the vocabulary.

  Returns:
    <float32>[V, E]. The root mean square of a row is 1, or 0 if the token does
    not occur in the records that were read. Columns from V - 1 on are 0.
  """
  counts = count_pairs(input_dir, manifest)
  weights = np.asarray(counts.sum(axis=1))[:, 0]
  smoothed = weights**_SMOOTHING
  counts = counts.tocoo()
  # log(P(a, b) / (P(a) P(b))), with the smoothed P(b).
  information = np.log(
    counts.data * smoothed.sum() / (weights[counts.row] * smoothed[counts.col])
  )
  used = information > 0
  matrix = sparse.csr_matrix(
    (information[used], (counts.row[used], counts.col[used])), counts.shape
  )
  if not used.any():
    return np.zeros((len(weights), embedding_size), np.float32)
  start = np.random.default_rng(0).normal(size=len(weights))
  rank = min(embedding_size, len(weights) - 1)
  left, values, _ = linalg.svds(matrix, rank, v0=start)
  vectors = np.zeros((len(weights), embedding_size))
  vectors[:, :rank] = left * np.sqrt(values)
  norms = np.sqrt(np.mean(vectors**2, axis=1, keepdims=True))
  vectors = np.divide(
    vectors, norms, np.zeros_like(vectors), where=norms > 1e-6
  )
  return (_STEP * np.round(vectors / _STEP)).astype(np.float32)


def count_pairs(
  input_dir: str, manifest: tfrecords.Manifest
) -> sparse.csr_matrix:
  """Counts pairs of tokens within 4 positions, each 1 / distance.

  Returns:
    A symmetric matrix <float64>[V, V].
  """
  size = manifest.tokenizer.vocab_size
  total = sparse.csr_matrix((size, size))
  tokens = 0
  for batch in reader.read_dataset(
    input_dir, "train", _BATCH, manifest=manifest, training=False
  ).as_numpy_iterator():
    real = batch["input_mask"] * batch["example_weight"][:, None] > 0
    is_masked = "masked_lm_ids" in batch
    ids = (
      record_rules.put_labels_back(batch) if is_masked else batch["input_ids"]
    )
    firsts, seconds, weights = [], [], []
    for distance in range(1, _WINDOW + 1):
      both = real[:, distance:]  # Padding is at the end.
      firsts.append(ids[:, :-distance][both])
      seconds.append(ids[:, distance:][both])
      weights.append(np.full(len(firsts[-1]), 1 / distance))
    pairs = np.concatenate(firsts), np.concatenate(seconds)
    total += sparse.csr_matrix((np.concatenate(weights), pairs), (size, size))
    tokens += int(real.sum())
    if tokens >= _TOKENS:
      break
  return total + total.T
